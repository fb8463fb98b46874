"""One workspace and its agent: it waits for the preparation, gets the first prompt, and tells what became of it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from rookery.agents import first_prompt
from rookery.agents.agent import WorkspaceAgent
from rookery.agents.barrier import Barrier
from rookery.agents.installing import Tell
from rookery.agents.launching import Launcher
from rookery.agents.life import Life, Started
from rookery.agents.needs import needs_of
from rookery.agents.project_config import KIND
from rookery.agents.supervision import Pace
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.workspaces.agent import Agent, AgentStatus, Need
from rookery.workspaces.record import Workspace, as_text

logger = logging.getLogger("rookery.agents")
# How long a workspace waits for its running turns to end before their process does.
_ENDING_SECONDS = 5.0


class Tenant:
    """`own` is the workspace's git folder."""

    def __init__(
        self,
        workspace: Workspace,
        own: Path,
        *,
        launcher: Launcher,
        barrier: Barrier,
        events: Bus,
        idle_seconds: float,
        pace: Pace,
        began: Callable[["Tenant", Life], None],
    ) -> None:
        self.workspace, self.own = workspace, own
        # The session of the first prompt.
        self.session: str | None = None
        # Whether what its agent was started with has changed since.
        self.outdated = False
        # Why the first prompt was not sent.
        self.unsent: RookeryError | None = None
        self._launcher, self._barrier, self._events = launcher, barrier, events
        self._told: tuple[Agent, AgentStatus] = Agent(), AgentStatus()
        self._taking_up: asyncio.Task[None] | None = None
        self._began = began
        self._served: Life | None = None
        self._tasks = TaskSet(f"workspace {workspace.name}")
        self.agent = WorkspaceAgent(workspace.name, self._start, self.tell, idle_seconds=idle_seconds, pace=pace)

    def take_up(self) -> None:
        """Start its agent once the workspace is prepared, and send the first prompt where one is kept."""
        if self._taking_up is None or self._taking_up.done():
            self._taking_up = self._tasks.start(self._take_up(), "take up")

    def watch_turn(self, life: Life, session: str) -> None:
        """See that it does not fall asleep before a turn that was asked for has begun."""
        self._tasks.start(life.began(session), "turn")

    async def taken_up(self) -> None:
        """Wait until that has been done, or has failed."""
        if self._taking_up is not None:
            await asyncio.wait([self._taking_up])

    def require_sent(self, said: str = "") -> None:
        """Raise why the first prompt was not sent, after what is `said` of it."""
        if (error := self.unsent) is not None:
            raise RookeryError(error.code, f"{said}{error.message}", error.remedy)

    async def end_turns(self) -> None:
        """Have OpenCode write down that its turns were ended, and not cut off.

        What it was answered before is written down too: an agent may have asked itself for the end of its workspace.
        """
        if (life := self.agent.life) is None:
            return
        with contextlib.suppress(RookeryError, TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await asyncio.gather(*map(life.client.abort, life.running))

    async def close(self) -> bool:
        """End it; whether there was anything to end."""
        await self._tasks.close()
        return await self.agent.stop()

    def record(self) -> Agent:
        agent, life = self.agent, self.agent.life
        waits = life.started.wired.waits if life is not None else ""
        needs = list(needs_of(agent.sessions))
        if waits:
            needs.append(Need("needs-approval", f"{waits}: rookery guard approve {KIND}"))
        if self.unsent is not None and agent.error is None:
            told = f"{self.unsent.message}; {self.unsent.remedy}" if self.unsent.remedy else self.unsent.message
            needs.append(Need("prompt-not-sent", f"the first prompt was not sent: {told}"))
        return Agent(
            state=agent.state,
            port=life.process.port if life is not None else None,
            pid=life.process.pid if life is not None else None,
            error=agent.error,
            detail=agent.detail,
            notes=(*life.started.notes, *([waits] if waits else [])) if life is not None else (),
            needs_restart=self.outdated and life is not None,
            attention=tuple(needs),
        )

    def tell(self) -> None:
        """Publish what has changed."""
        before, now = self._told, (self.record(), self.agent.status)
        self._told = now
        if now[0] != before[0]:
            self._publish("agent.state", agent=msgspec.to_builtins(now[0]))
        if now[1] != before[1]:
            self._publish("agent.status", status=msgspec.to_builtins(now[1]))
        if self.agent.life is not None and self.agent.life is not self._served:
            self._served = self.agent.life
            self._began(self, self._served)
            if first_prompt.kept(self.own) is not None:
                self.take_up()

    async def _take_up(self) -> None:
        workspace = await self._barrier.passed(self.workspace, self.agent.hold)
        self.agent.start()
        prompt = first_prompt.kept(self.own)
        if prompt is None:
            return
        self.unsent = None
        try:
            async with self.agent.used() as life:
                self.session = await first_prompt.send(life.client, workspace, self.own, prompt)
                self.watch_turn(life, self.session)
            first_prompt.forget(self.own)
            self._publish("agent.prompted", session=self.session, error=None)
        except RookeryError as error:
            logger.warning("the first prompt of %s was not sent: %s", workspace.name, error.message)
            self.unsent = error
            self._publish("agent.prompted", session=None, error=error.as_dict())
        self.tell()

    async def _start(self, tell: Tell) -> Started:
        self.outdated = False
        return await self._launcher.start(self.workspace, tell)

    def _publish(self, event: str, **more: object) -> None:
        one = self.workspace
        self._events.publish(event, project=one.project.id, name=one.name, path=as_text(one.path), **more)
