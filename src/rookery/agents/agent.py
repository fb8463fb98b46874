"""The agent of one workspace: started once however many need it, put to sleep, and started again when it ended."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal

from rookery.agents.life import Life, Outcome, Started, lived
from rookery.agents.needs import ended
from rookery.agents.status import SessionState, aggregate
from rookery.agents.supervision import Pace, Rest, Restarts
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.workspaces.agent import AgentStatus

logger = logging.getLogger("rookery.agents")

State = Literal["stopped", "starting", "running", "asleep", "restarting", "failed"]
Tell = Callable[[str], None]
# Starts the process; told meanwhile is what that waits for.
Start = Callable[[Tell], Awaitable[Started]]


class WorkspaceAgent:
    """`changed` is called after every change of what can be read here."""

    def __init__(
        self,
        name: str,
        start: Start,
        changed: Callable[[], None],
        *,
        idle_seconds: float = 0.0,
        pace: Pace = Pace(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.state: State = "stopped"
        self.error: str | None = None
        self.detail: str | None = None
        self.life: Life | None = None
        # As they were last; of a process that is no more those that ran are interrupted.
        self.sessions: tuple[SessionState, ...] = ()
        self._start, self._changed, self._pace, self._clock = start, changed, pace, clock
        self._rest = Rest(idle_seconds, clock.monotonic())
        self._were_running: frozenset[str] = frozenset()
        self._run: asyncio.Task[None] | None = None
        # What comes of the start that is under way, or of the next one.
        self._outcome: Outcome = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks = TaskSet(f"agent {name}")

    @property
    def status(self) -> AgentStatus:
        return aggregate(self.sessions) if self.state != "stopped" else AgentStatus()

    # ---- what others want of it

    def hold(self, detail: str) -> None:
        """Say that it will start, and what that waits for."""
        if self._run is None:
            self._become("starting", detail=detail)

    def start(self) -> None:
        """See that it runs; it is kept running until it is stopped."""
        if self._run is None:
            self._await_outcome()
            self._run = self._tasks.start(self._supervise(self.error), "supervision")

    async def up(self) -> Life:
        """Start or wake it, or just wait until it listens. An error tells why it does not."""
        self.start()
        self._rest.used(self._clock.monotonic())
        if self.life is not None:
            return self.life
        self._wanted.set()
        return await lived(self._outcome)

    @contextlib.asynccontextmanager
    async def used(self) -> AsyncGenerator[Life]:
        """The same, kept awake until the end of the block."""
        self._rest.enter()
        try:
            yield await self.up()
        finally:
            self._rest.leave(self._clock.monotonic())

    async def stop(self) -> bool:
        """End it; whether there was anything to end."""
        # A caller that goes away must not leave it half-way.
        return await asyncio.shield(self._tasks.start(self._end(), "stop"))

    async def restart(self) -> Life:
        return await lived(await asyncio.shield(self._tasks.start(self._again(), "restart")))

    async def _end(self) -> bool:
        async with self._turn:
            was = self.state
            await self._cut_off()
            told = f"the agent of {self.name} was stopped"
            self._resolve(RookeryError("agent-unavailable", told, "start it: rookery agent start"))
            self._become("stopped")
            return was != "stopped"

    async def _again(self) -> Outcome:
        async with self._turn:
            await self._cut_off()
            self._become("restarting")
            self.start()
            return self._outcome

    async def _cut_off(self) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])
            self._run = None

    # ---- its lives

    async def _supervise(self, error: str | None) -> None:
        restarts = Restarts(self._pace.first_pause)
        if self.state != "restarting":
            self._become("starting", error=error)
        while True:
            found = await self._begun()
            if isinstance(found, Life):
                restarts.listens(self._clock.monotonic())
                why = await self._live(found)
                if why is None:
                    self._become("asleep")
                    await self._until_wanted(None)
                    self._become("starting")
                    continue
            else:
                why = f"{found.message}; {found.remedy}" if found.remedy else found.message
            again = restarts.failed(self._clock.monotonic())
            logger.warning("the agent of %s: %s; tried again in %g s", self.name, why, again.seconds)
            self._become(again.state, error=why)
            if isinstance(found, RookeryError):
                self._resolve(found)
                self._await_outcome()
            await self._until_wanted(again.seconds)
            self._become("restarting", error=why)

    async def _begun(self) -> Life | RookeryError:
        try:
            started = await self._start(self._waits)
        except RookeryError as error:
            return error
        except Exception as error:
            logger.exception("the agent of %s could not be started, in a way that should not be", self.name)
            return RookeryError("internal-error", f"{type(error).__name__}: {error}")
        running = self._were_running
        return Life(started, self._watched, self._rest, were_running=running, pace=self._pace, clock=self._clock)

    async def _live(self, life: Life) -> str | None:
        self.life = life
        self._become("running")
        self._resolve(life)
        try:
            why = await life.over()
            self.state, self.error = ("asleep", None) if why is None else ("restarting", why)  # from its end on
            return why
        finally:
            self.life, self._were_running, self.sessions = None, life.running, ended(self.sessions)
            # Who asks from here on waits for the next life.
            self._await_outcome()
            await life.end()

    async def _until_wanted(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()

    # ---- what is told

    def _watched(self) -> None:
        if self.life is not None and self.life.sessions is not None:
            self.sessions = self.life.sessions
            self._changed()

    def _waits(self, detail: str) -> None:
        self.detail = detail
        self._changed()

    def _become(self, state: State, *, error: str | None = None, detail: str | None = None) -> None:
        self.state, self.error, self.detail = state, error, detail
        self._changed()

    def _resolve(self, outcome: Life | RookeryError) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _await_outcome(self) -> None:
        if self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
            self._wanted.clear()
