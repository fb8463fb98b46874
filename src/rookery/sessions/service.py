"""The one service behind every face: sessions are made, driven, waited for and read through it.

Time limits are in seconds, moments in milliseconds since the epoch. `scope` is the folder of the one workspace that
the caller may see, None for the owner, who sees all.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rookery.agents.client import Reply
from rookery.agents.life import Life
from rookery.agents.service import AgentService
from rookery.sessions.asking import Asking, require_owner
from rookery.sessions.changes import Changes, Told
from rookery.sessions.choosing import Alias, Choice, choose
from rookery.sessions.executor import Executor
from rookery.sessions.finding import Finding
from rookery.sessions.following import Following, require_count
from rookery.sessions.history import History
from rookery.sessions.making import Making
from rookery.sessions.records import AskShown, Closed, Messages, Progress, SessionInfo, Toast, ToolRun, Turn
from rookery.sessions.screens import Screens
from rookery.sessions.shelf import Shelf
from rookery.sessions.telling import Telling
from rookery.sessions.terminals import Terminals
from rookery.sessions.turns import Turns
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.workspaces.service import Workspaces


class Sessions(Screens):
    """Raises RookeryError: `session-not-found`, `workspace-not-found`, `invalid-input`, `agent-unavailable`, ..."""

    def __init__(
        self,
        agents: AgentService,
        workspaces: Workspaces,
        events: Bus,
        *,
        executor: Executor | None = None,
        aliases: Mapping[str, Alias] | None = None,
        shelf: Shelf | None = None,
        terminals: Terminals | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._aliases = aliases or {}
        self._changes = Changes()
        finding = Finding(agents, self._changes, shelf or Shelf(), clock)
        following = Following(self._changes, clock)
        terminals = terminals or Terminals(agents.launcher.spawner, agents.launcher.user)
        super().__init__(finding, following, clock, terminals)
        self._making = Making(agents, workspaces, finding, terminals, clock)
        self._turns, self._asking, self._history = Turns(following, clock), Asking(finding), History(finding)
        self._telling = Telling(finding, self._changes, events)
        # May be given later, by whoever wires all of it.
        self.executor = executor

    # ---- sessions

    async def create(
        self,
        directory: str,
        agent: str | None = None,
        model: str | None = None,
        *,
        title: str | None = None,
        scope: Path | None = None,
    ) -> SessionInfo:
        """A session in the workspace at `directory`, whose agent is started if it has to be."""
        return await self._making.create(directory, agent, model, title, self._aliases, scope)

    async def list(self, scope: Path | None = None) -> Sequence[SessionInfo]:
        """All open sessions, the one that was used last first."""
        return await self._finding.open(scope)

    async def get(self, id_: str, scope: Path | None = None) -> SessionInfo:
        return await (await self._finding.find(id_, scope)).info()

    async def close(self, id_: str, scope: Path | None = None, *, delete: bool = False) -> Closed:
        """End its turn, its terminal and all that waits for it. OpenCode keeps its history, unless told otherwise."""
        return await self._making.close(await self._finding.find(id_, scope), delete)

    async def abort(self, id_: str, scope: Path | None = None) -> SessionInfo:
        """End the turn that runs, if there is one."""
        return await self._making.abort(await self._finding.find(id_, scope))

    @asynccontextmanager
    async def used(self, id_: str, scope: Path | None = None) -> AsyncGenerator[Life]:
        """The agent of a session, kept awake until the end of the block."""
        async with (await self._finding.find(id_, scope)).room.used() as life:
            yield life

    # ---- messages

    async def send(
        self,
        id_: str,
        content: str,
        *,
        wait: bool = True,
        timeout: float = 30.0,
        agent: str | None = None,
        model: str | None = None,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> Turn:
        """Send a message and, if wanted, wait for the end of the turn; past the time limit the turn goes on."""
        found, choice = await self._finding.find(id_, scope), Choice()
        if agent is not None or model is not None:
            async with found.room.used() as life:
                choice = await choose(life.client, agent, model, self._aliases)
        return await self._turns.send(found, content, choice, wait=wait, seconds=timeout, progress=progress)

    async def messages(
        self, id_: str, limit: int | None = 50, since: float | None = None, scope: Path | None = None
    ) -> Messages:
        """The newest ones, in the order in which they were made; without a limit all."""
        require_count(limit)
        found = await self._finding.find(id_, scope)
        book = await found.room.ledger.book(found.session)
        shown = book.messages(running=found.running, limit=limit, since=since)
        return Messages(messages=shown, note=book.note(len(shown), limit))

    # ---- toasts, tools, asks

    async def toasts(
        self, id_: str | None = None, since: float | None = None, scope: Path | None = None
    ) -> Sequence[Toast]:
        """Those on show now, or all since a moment; of one session's workspace, or of all."""
        rooms = self._finding.rooms(scope) if id_ is None else [(await self._finding.find(id_, scope)).room]
        now = self._clock.wall() * 1000
        logs = [room.toasts for room in rooms]
        found = [one for log in logs for one in (log.current(now) if since is None else log.since(since))]
        return sorted(found, key=lambda one: one.shown_at)

    async def show_toast(
        self,
        id_: str,
        message: str,
        *,
        title: str | None = None,
        variant: str = "info",
        duration: int = 5000,
        scope: Path | None = None,
    ) -> None:
        await self._making.show_toast(await self._finding.find(id_, scope), message, title, variant, duration)

    async def tool_history(
        self, id_: str | None = None, limit: int = 20, scope: Path | None = None
    ) -> Sequence[ToolRun]:
        """The newest runs, in the order in which they began; of one session, or of all."""
        require_count(limit)
        if id_ is None:
            return await self._history.all(scope, limit)
        return await self._history.of(await self._finding.find(id_, scope), limit)

    async def execute(
        self,
        id_: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = 30.0,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> ToolRun:
        if self.executor is None:
            raise RookeryError("agent-unavailable", "no tool can be run by its name here")
        async with self.used(id_, scope) as life:
            return await self.executor.execute(life, id_, tool, args, wait=wait, timeout=timeout, progress=progress)

    async def asks(self, id_: str | None = None, scope: Path | None = None) -> Sequence[AskShown]:
        """What sessions wait for; for the owner only."""
        require_owner(scope)
        return self._asking.all() if id_ is None else await self._asking.of(id_)

    async def answer(
        self,
        ask_id: str,
        reply: Reply | None = None,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        message: str | None = None,
        scope: Path | None = None,
    ) -> AskShown:
        """For the owner only. A permission takes a `reply`, a question the labels for each of its questions."""
        require_owner(scope)
        return await self._asking.answer(ask_id, reply, answers, message)

    def listen(self, told: Told) -> Callable[[], None]:
        """Be told what has changed, many changes at once; answers how to end that."""
        return self._changes.listen(told)
