"""Create, drive, wait for and read sessions of OpenCode.

The service behind MCP, REST, the CLI and the SDK. Time limits are in seconds, moments in milliseconds since the epoch.
`scope` is the folder of the only workspace that the caller may see, None for the owner, who sees all.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.api import PermissionReply
from rookery.agents.opencode.events import SessionDeleted, SessionUpdated, ToastShown
from rookery.agents.opencode.records import Session
from rookery.agents.run import AgentRun
from rookery.sessions.aliases import AgentAlias, AgentChoice, resolve_agent
from rookery.sessions.asks import PendingAsks, ToolAsks, require_owner
from rookery.sessions.conversion import is_hidden
from rookery.sessions.follow import ChangeFollower, require_limit
from rookery.sessions.index import (
    ChangeListener,
    ChangeNotifier,
    SessionEventPublisher,
    SessionIndex,
    SessionRef,
    WorkspaceSessions,
)
from rookery.sessions.records import (
    CloseResult,
    MessagePage,
    Progress,
    SessionAsk,
    SessionInfo,
    Toast,
    ToolRun,
    Turn,
    TurnReport,
)
from rookery.sessions.terminal.pool import TerminalPool
from rookery.sessions.terminal.screens import Screens
from rookery.sessions.transcript_store import TranscriptCache
from rookery.sessions.turns import TurnSender
from rookery.sessions.waits import Waits
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from rookery.workspaces.service import Workspaces

_TOAST_VARIANTS = ("info", "success", "warning", "error")


class SessionActions:
    """Creates, aborts and closes sessions, and shows toasts in them."""

    def __init__(
        self, agents: AgentManager, workspaces: Workspaces, index: SessionIndex, terminals: TerminalPool, clock: Clock
    ) -> None:
        self._agents = agents
        self._workspaces = workspaces
        self._index = index
        self._clock = clock
        self._terminals = terminals

    async def create(
        self,
        directory: str,
        agent: str | None,
        model: str | None,
        title: str | None,
        aliases: Mapping[str, AgentAlias],
        scope: Path | None,
    ) -> SessionInfo:
        """Create a session in the workspace that contains `directory`; start its agent if necessary."""
        workspace, note = await self._find_workspace(directory, scope)
        workspace_agent = await self._agents.require_agent(workspace)
        async with workspace_agent.supervisor.keep_awake():
            workspace_sessions = self._index.of_agent(workspace_agent)
            async with workspace_sessions.use_agent() as agent_run:
                choice = await resolve_agent(agent_run.client, agent, model, aliases)
                session = await agent_run.client.create_session(title=title, agent=choice.agent, model=choice.model)
                agent_run.watcher.apply_early(SessionUpdated(session))
                return await workspace_sessions.info(session, (*choice.notes, *([note] if note is not None else [])))

    async def abort(self, ref: SessionRef) -> SessionInfo:
        """Stop the running turn of a session, if there is one."""
        async with ref.workspace_sessions.use_agent() as agent_run:
            await agent_run.client.abort(ref.id)
        return await ref.info()

    async def close(self, ref: SessionRef, delete: bool) -> CloseResult:
        """Close a session and its terminal. With `delete`, delete its history too."""
        try:
            return await self._close(ref, delete)
        finally:
            await self._terminals.end(ref.id)

    async def _close(self, ref: SessionRef, delete: bool) -> CloseResult:
        async with ref.workspace_sessions.use_agent() as agent_run:
            if ref.is_running:
                await agent_run.client.abort(ref.id)
            if delete:
                await agent_run.client.delete_session(ref.id)
                agent_run.watcher.apply_early(SessionDeleted(ref.id))
            else:
                archived = await agent_run.client.archive_session(ref.id, self._clock.wall() * 1000)
                agent_run.watcher.apply_early(SessionUpdated(archived))
        ref.workspace_sessions.transcripts.drop(ref.id)
        return CloseResult(id=ref.id, deleted=delete)

    async def show_toast(self, ref: SessionRef, message: str, title: str | None, variant: str, duration: int) -> None:
        """Show a toast in the workspace of a session, and attribute it to the session."""
        if variant not in _TOAST_VARIANTS or duration <= 0 or not message:
            remedy = f"a toast has a message, a duration in milliseconds, and one of {', '.join(_TOAST_VARIANTS)}"
            raise RookeryError("invalid-input", "the toast is invalid", remedy)
        async with ref.workspace_sessions.use_agent() as agent_run:
            toast = ToastShown(message, title, variant, duration)
            ref.workspace_sessions.toasts.expect(toast, ref.id, self._clock.wall() * 1000)
            await agent_run.client.show_toast(message, title, variant, duration)

    async def _find_workspace(self, directory: str, scope: Path | None) -> tuple[Workspace, str | None]:
        """Return the workspace that contains a folder, and a note if the folder is not its root."""
        if not directory.startswith("/") or "\0" in directory:
            remedy = "give the absolute path of a workspace, or of a folder in it"
            raise RookeryError("invalid-input", f"{directory!r} is not an absolute path", remedy)
        lookup = self._workspaces.finder
        match = await lookup.find_at(directory) or await lookup.find_around(directory)
        if scope is not None and (match is None or match.workspace.path != scope):
            # The same error whether or not the folder exists: a token must not reveal anything about other folders.
            message = f"{directory} is not in the workspace of this token, which is {scope}"
            raise RookeryError("tool-denied", message, "name a folder of that workspace, or use the owner's token")
        if match is None:
            raise await lookup.explain_missing(directory)
        real_path = await asyncio.to_thread(os.path.realpath, directory)
        root = await asyncio.to_thread(os.path.realpath, match.workspace.path)
        if real_path == root:
            return match.workspace, None
        if not await asyncio.to_thread(os.path.isdir, real_path):
            raise RookeryError("invalid-input", f"{directory} is not a folder", "name a folder that exists")
        inside = os.path.relpath(real_path, root)
        name = match.workspace.name
        note = f"{inside} is a folder of the workspace {name}: the session uses the whole workspace, at {root}"
        return match.workspace, note


class ToolHistory:
    """Lists the tool runs of sessions, including those in hidden children."""

    def __init__(self, index: SessionIndex) -> None:
        self._index = index

    async def for_session(self, ref: SessionRef, limit: int) -> list[ToolRun]:
        """Return the newest runs of a session, in the order in which they started."""
        return _newest_runs(await self._runs(ref.workspace_sessions, ref.session), limit)

    async def all(self, scope: Path | None, limit: int) -> list[ToolRun]:
        """Return the newest runs of all sessions, in the order in which they started.

        A session that was not used since the oldest of these runs started is not read. An agent that does not work must
        not hide the runs of other agents.
        """
        workspaces = self._index.visible_to(scope)
        await self._index.wait_until_known(workspaces)
        sessions = [
            (used[session.id], workspace_sessions, session)
            for workspace_sessions in workspaces
            for used in [workspace_sessions.last_used()]
            for session in workspace_sessions.roots()
        ]
        sessions.sort(key=lambda entry: -entry[0])
        runs: list[ToolRun] = []
        last_error: RookeryError | None = None
        for used, workspace_sessions, session in sessions:
            if len(runs) >= limit and used < (runs[0].start or 0):
                break
            try:
                runs = _newest_runs([*runs, *await self._runs(workspace_sessions, session)], limit)
            except RookeryError as error:
                last_error = error if error.code != "session-not-found" else last_error
        if last_error is not None and not runs:
            raise last_error
        return runs

    async def _runs(self, workspace_sessions: WorkspaceSessions, session: Session) -> list[ToolRun]:
        """Return all runs of a session and of its hidden children."""
        async with workspace_sessions.use_agent() as agent_run:
            hidden = [child for child in await agent_run.client.children(session.id) if is_hidden(child)]
        transcripts = await asyncio.gather(
            *(workspace_sessions.transcripts.transcript(entry) for entry in (session, *hidden))
        )
        ids = [session.id, *(child.id for child in hidden)]
        return [
            msgspec.structs.replace(run, session_id=session.id)
            for id_, transcript in zip(ids, transcripts, strict=True)
            for message in transcript.messages(running=workspace_sessions.is_running(id_))
            for run in message.parts
        ]


def _newest_runs(runs: list[ToolRun], limit: int) -> list[ToolRun]:
    runs.sort(key=lambda run: (run.start or float("inf"), run.id))
    return runs[max(len(runs) - limit, 0) :]


class ToolExecutor(Protocol):
    """Runs a tool of an agent by its name, as `rookery.sessions.run_tool` does."""

    async def execute(
        self,
        agent_run: AgentRun,
        session_id: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        wait: bool = True,
        timeout: float = 30.0,
        progress: Progress | None = None,
    ) -> ToolRun: ...


class Sessions:
    """All operations on sessions.

    They raise RookeryError: `session-not-found`, `workspace-not-found`, `invalid-input`, `agent-unavailable`, ...
    """

    def __init__(
        self,
        agents: AgentManager,
        workspaces: Workspaces,
        events: Bus,
        *,
        executor: ToolExecutor | None = None,
        aliases: Mapping[str, AgentAlias] | None = None,
        cache: TranscriptCache | None = None,
        terminals: TerminalPool | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._aliases = aliases or {}
        self._clock = clock
        self._changes = ChangeNotifier()
        self._index = index = SessionIndex(agents, self._changes, cache or TranscriptCache(), clock)
        follower = ChangeFollower(self._changes, clock)
        self.terminals = terminals or TerminalPool(agents.launcher.spawner, agents.launcher.user_environment)
        self._actions = SessionActions(agents, workspaces, index, self.terminals, clock)
        self._turns = TurnSender(follower, clock)
        self.tool_asks = ToolAsks(index)
        self._pending_asks = PendingAsks(index, self.tool_asks)
        self._history = ToolHistory(index)
        self._publisher = SessionEventPublisher(index, self._changes, events)
        waits = Waits(index, follower, clock)
        self.wait_for_message = waits.wait_for_message
        self.wait_for_toast = waits.wait_for_toast
        self.wait_for_idle = waits.wait_for_idle
        self.wait_for_tool = waits.wait_for_tool
        self.wait_for_file = waits.wait_for_file
        self._screens = screens = Screens(index, waits, clock, self.terminals)
        self.resolve = screens.resolve
        self.screen = screens.screen
        self.capture = screens.capture
        self.press = screens.press
        self.wait_for_screen = screens.wait_for_screen
        # May be set after construction, when the daemon is wired.
        self.executor = executor

    async def create(
        self,
        directory: str,
        agent: str | None = None,
        model: str | None = None,
        *,
        title: str | None = None,
        scope: Path | None = None,
    ) -> SessionInfo:
        """Create a session in the workspace at `directory`; start its agent if necessary."""
        return await self._actions.create(directory, agent, model, title, self._aliases, scope)

    async def list(self, scope: Path | None = None) -> Sequence[SessionInfo]:
        """Return all open root sessions, the most recently used first."""
        return await self._index.list_open(scope)

    async def list_in(self, project: str, workspace: str) -> Sequence[SessionInfo]:
        """Return the open sessions of one workspace. If its agent is starting, wait until they are known."""
        await self._index.wait_until_known_in(project, workspace)
        return [info for info in await self.list() if (info.project, info.workspace) == (project, workspace)]

    async def get(self, id_: str, scope: Path | None = None) -> SessionInfo:
        """Return a session by its id, or by a unique prefix of it."""
        return await (await self._index.find(id_, scope)).info()

    async def close(self, id_: str, scope: Path | None = None, *, delete: bool = False) -> CloseResult:
        """Close a session: stop its turn, its terminal and all waits for it.

        OpenCode keeps its history, unless `delete` is true.
        """
        return await self._actions.close(await self._index.find(id_, scope), delete)

    async def abort(self, id_: str, scope: Path | None = None) -> SessionInfo:
        """Stop the running turn, if there is one."""
        return await self._actions.abort(await self._index.find(id_, scope))

    async def find_conversation(self, id_: str) -> tuple[Path, str]:
        """Return the workspace of a session, by its id or a unique prefix, and the id of the session it works for."""
        ref = await self._index.find(id_, None)
        path = ref.workspace_sessions.workspace.path
        return path, await self._index.find_root(path, ref.id) or ref.id

    @asynccontextmanager
    async def use_agent(self, id_: str, scope: Path | None = None) -> AsyncGenerator[AgentRun]:
        """Keep the agent of a session awake until the end of the block."""
        async with (await self._index.find(id_, scope)).workspace_sessions.use_agent() as agent_run:
            yield agent_run

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
        report: TurnReport | None = None,
    ) -> Turn:
        """Send a message and, with `wait`, wait for the end of the turn. After the time limit the turn goes on.

        `report` receives text and tool runs of the turn as they appear.
        """
        ref = await self._index.find(id_, scope)
        choice = AgentChoice()
        if agent is not None or model is not None:
            async with ref.workspace_sessions.use_agent() as agent_run:
                choice = await resolve_agent(agent_run.client, agent, model, self._aliases)
        return await self._turns.send(
            ref, content, choice, wait=wait, seconds=timeout, progress=progress, report=report
        )

    async def messages(
        self,
        id_: str,
        limit: int | None = 50,
        since: float | None = None,
        scope: Path | None = None,
        *,
        before: str | None = None,
    ) -> MessagePage:
        """Return the newest messages, in the order in which they were created; without a limit all that are in memory.

        With `before`, the id of a message, return the newest messages before that one.
        """
        require_limit(limit)
        ref = await self._index.find(id_, scope)
        messages, older = await ref.workspace_sessions.transcripts.page(
            ref.session, running=ref.is_running, limit=limit, since=since, before=before
        )
        if not (older and messages):
            return MessagePage(messages=messages)
        cursor = messages[0].id
        return MessagePage(
            messages=messages, note=f"older messages are left out; get them with before={cursor}", before=cursor
        )

    async def toasts(
        self, id_: str | None = None, since: float | None = None, scope: Path | None = None
    ) -> Sequence[Toast]:
        """Return the toasts that are visible now, or all since a moment.

        With an id, leave out those of other sessions.
        """
        ref = await self._index.find(id_, scope) if id_ is not None else None
        workspaces, session = (
            ([ref.workspace_sessions], ref.id) if ref is not None else (self._index.visible_to(scope), None)
        )
        now = self._clock.wall() * 1000
        toasts = [
            toast
            for log in (workspace_sessions.toasts for workspace_sessions in workspaces)
            for toast in (log.current(now, session) if since is None else log.since(since, session=session))
        ]
        return sorted(toasts, key=lambda toast: toast.shown_at)

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
        """Show a toast in the workspace of a session for `duration` milliseconds."""
        await self._actions.show_toast(await self._index.find(id_, scope), message, title, variant, duration)

    async def tool_history(
        self, id_: str | None = None, limit: int = 20, scope: Path | None = None
    ) -> Sequence[ToolRun]:
        """Return the newest tool runs of one session or of all, in the order in which they started."""
        require_limit(limit)
        if id_ is None:
            return await self._history.all(scope, limit)
        return await self._history.for_session(await self._index.find(id_, scope), limit)

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
        """Run a tool of the session's agent by its name, with the permission rules of the session."""
        if self.executor is None:
            raise RookeryError("agent-unavailable", "tools cannot be run by name here")
        ref = await self._index.find(id_, scope)
        async with ref.workspace_sessions.use_agent() as agent_run:
            return await self.executor.execute(
                agent_run, ref.id, tool, args, wait=wait, timeout=timeout, progress=progress
            )

    async def asks(self, id_: str | None = None, scope: Path | None = None) -> Sequence[SessionAsk]:
        """Return the open asks of one session or of all. For the owner only."""
        require_owner(scope)
        return self._pending_asks.all() if id_ is None else await self._pending_asks.for_session(id_)

    async def answer(
        self,
        ask_id: str,
        reply: PermissionReply | None = None,
        *,
        answers: Sequence[Sequence[str]] | None = None,
        message: str | None = None,
        scope: Path | None = None,
    ) -> SessionAsk:
        """Answer an ask. For the owner only.

        A permission takes a `reply`, a question takes labels for each of its questions.
        """
        require_owner(scope)
        return await self._pending_asks.answer(ask_id, reply, answers, message)

    def listen(self, listener: ChangeListener) -> Callable[[], None]:
        """Add a listener for changes and return a function that removes it.

        Changes are delivered together, once per turn of the event loop.
        """
        return self._changes.listen(listener)
