"""One life of an agent's process: watched from when it listens until it ends, hangs, or has idled for long."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.agents.client import AgentClient
from rookery.agents.events import Ended, Event
from rookery.agents.install import Installed
from rookery.agents.process import AgentProcess
from rookery.agents.supervision import Checks, Pace, Rest
from rookery.agents.watcher import Watcher
from rookery.agents.wired import Wired
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet

if TYPE_CHECKING:
    from rookery.agents.status import SessionState

_LONG = 3600.0
# A first turn takes seconds to begin, and many where the machine is busy.
_BEGIN_SECONDS = 60.0


@dataclass(frozen=True)
class Started:
    """A process that listens, and what it was started with. `notes` are what does not work in it."""

    process: AgentProcess
    client: AgentClient
    wired: Wired
    installed: Installed
    notes: tuple[str, ...] = ()


class Life:
    """`changed` is called after every change of `sessions`, which is None until they are known.

    Whoever is among `listeners` before it is watched hears every event.
    """

    def __init__(
        self,
        started: Started,
        changed: Callable[[], None],
        rest: Rest,
        *,
        were_running: Collection[str] = (),
        pace: Pace = Pace(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.started = started
        self.process, self.client = started.process, started.client
        self.sessions: tuple[SessionState, ...] | None = None
        self.listeners: list[Callable[[Event], None]] = []
        self.watcher = Watcher(
            started.client,
            self._watched,
            heard=self._heard,
            were_running=were_running,
            silence=pace.silence,
            clock=clock,
        )
        self._were_running = frozenset(were_running)
        self._changed, self._rest, self._pace, self._clock = changed, rest, pace, clock
        self._trouble, self._news = asyncio.Event(), asyncio.Event()

    @property
    def running(self) -> frozenset[str]:
        """The sessions that are in the middle of a turn, or were in the life before this one."""
        return self._were_running if self.sessions is None else self.watcher.running

    async def over(self) -> str | None:
        """Watch it until it is to end; answers why, and None if it only may sleep."""
        tasks = TaskSet(f"life of {self.process.pid}")
        try:
            self.watcher.start()
            self._rest.used(self._clock.monotonic())
            died = tasks.start(self._death(), "end")
            hangs = tasks.start(self._hang(), "hang")
            idle = tasks.start(self._idle(), "idle")
            await asyncio.wait([died, hangs, idle], return_when=asyncio.FIRST_COMPLETED)
            return next((one.result() for one in (died, hangs) if one.done()), None)
        finally:
            await tasks.close()

    @contextlib.contextmanager
    def awake(self) -> Generator[None]:
        """Keep it from falling asleep until the end of the block."""
        self._rest.enter()
        try:
            yield
        finally:
            self._rest.leave(self._clock.monotonic())

    async def began(self, session: str) -> None:
        """Keep it awake until a turn that was asked for shows, for a while: OpenCode says yes before it begins."""
        with self.awake(), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                while session not in self.watcher.running:
                    self._news.clear()
                    await self._news.wait()

    async def end(self) -> None:
        """End what is left of it."""
        await self.watcher.close()
        self._heard(Ended())
        await self.process.stop()

    async def _death(self) -> str:
        return (await self.process.ended()).reason or "OpenCode ended"

    async def _hang(self) -> str:
        checks = Checks()
        while True:
            await self._trouble.wait()
            why = ""
            try:
                await self.client.health(self._pace.check)
            except RookeryError as error:
                why = error.message
            if checks.hangs(not why):
                return f"OpenCode hangs: {why}"
            await asyncio.sleep(self._pace.between_checks)

    async def _idle(self) -> None:
        while True:
            # Until its sessions are known it may well be busy.
            busy = self.sessions is None or bool(self.running)
            left = self._rest.left(self._clock.monotonic(), busy)
            if left == 0:
                return
            await asyncio.sleep(left if left is not None else _LONG)

    def _heard(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def _watched(self) -> None:
        if self.watcher.trouble is not None:
            # What is known may be old, but nothing else is.
            self._trouble.set()
            return
        self._trouble.clear()
        self.sessions = self.watcher.sessions
        self._news.set()
        self._rest.used(self._clock.monotonic())
        self._changed()


# What comes of a start.
Outcome = asyncio.Future[Life | RookeryError]


async def lived(outcome: Outcome) -> Life:
    """The life that came of it; raises why none did. Whoever stops waiting does not end it for the others."""
    found = await asyncio.shield(outcome)
    if isinstance(found, RookeryError):
        raise RookeryError(found.code, found.message, found.remedy)
    return found
