"""The terminals of all sessions: started when one is wanted, few at a time, and ended for certain."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from rookery.agents.events import Ended, Event, SessionGone, SessionSeen
from rookery.agents.life import Life
from rookery.sessions.interface import COLUMNS, ROWS, Interface, Size
from rookery.sessions.terminal import Terminal
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.sessions")

MOST = 4
IDLE_SECONDS = 300.0


class Seat:
    """A terminal, and who uses it."""

    def __init__(self, terminal: Terminal, leave: Callable[[], None], now: float) -> None:
        self.terminal, self._leave = terminal, leave
        self.users = 0
        self.used = now
        self._leaving = False
        # Whether its conversation was on the screen.
        self.ready = False
        # Who sets its size looks at it before somebody else does so.
        self.sizing = asyncio.Lock()

    def left(self, now: float, idle_seconds: float) -> float:
        """How long it may still stand idle."""
        return idle_seconds if self.users else self.used + idle_seconds - now

    @property
    def usable(self) -> bool:
        return self.terminal.alive and not self._leaving

    async def close(self) -> None:
        self._leaving = True
        self._leave()
        await self.terminal.close()


class Terminals:
    """At most `most`, of which each is ended when it was idle for `idle_seconds`. `user` is the user's environment."""

    def __init__(
        self,
        spawner: Spawner,
        user: Callable[[], Awaitable[Mapping[str, str]]],
        *,
        most: int = MOST,
        idle_seconds: float = IDLE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._spawner, self._user, self._clock = spawner, user, clock
        self._most, self._idle_seconds = most, idle_seconds
        self._seats: dict[str, Seat] = {}
        self._tasks = TaskSet("terminals")
        # Whoever starts or ends one: only then it is known how many there are.
        self._turn = asyncio.Lock()
        self._closed = False

    @asynccontextmanager
    async def used(self, life: Life, session: str, size: Size | None = None) -> AsyncGenerator[Seat]:
        """The terminal of a session, started if there is none, of this size; not ended before the end of the block."""
        seat = self._seats.get(session)
        if seat is None or not seat.usable:
            async with self._turn:
                seat = await self._seat(life, session, size or (COLUMNS, ROWS))
        seat.users += 1
        try:
            yield seat
        finally:
            seat.users -= 1
            seat.used = self._clock.monotonic()

    def pids(self) -> dict[str, int]:
        """The processes of those that run, by session."""
        return {session: seat.terminal.pid for session, seat in self._seats.items() if seat.terminal.alive}

    async def end(self, session: str) -> None:
        """See that a session has none. A caller that goes away does not leave it half-way."""
        await asyncio.shield(self._tasks.start(self._end(session), f"end {session}"))

    async def close(self) -> None:
        """End all of them; none is started from here on."""
        self._closed = True
        async with self._turn:
            seats, self._seats = list(self._seats.values()), {}
            await asyncio.gather(*(seat.close() for seat in seats))
        await self._tasks.close()

    # ---- how they come

    async def _seat(self, life: Life, session: str, size: Size) -> Seat:
        seat = self._seats.get(session)
        if seat is not None and seat.usable:
            return seat
        if self._closed or self._most == 0:
            raise RookeryError("agent-unavailable", "no terminals are run here", "sessions.terminals says how many")
        if seat is not None:
            await self._leave(session)
        await self._make_room()
        interface = Interface(
            life.started.installed.opencode, life.process.url, life.process.password, await self._user()
        )

        def heard(event: Event) -> None:
            if _ends(event, session):
                self._tasks.start(self._end(session), f"end {session}")

        # From before it is started, so that nothing is missed.
        life.listeners.append(heard)

        def leave() -> None:
            if heard in life.listeners:
                life.listeners.remove(heard)

        try:
            terminal = await Terminal.start(self._spawner, interface, session, size)
        except BaseException:
            leave()
            raise
        seat = self._seats[session] = Seat(terminal, leave, self._clock.monotonic())
        self._tasks.start(self._watch(session, seat), f"watch {session}")
        if not life.process.alive:
            await self._leave(session)
            raise RookeryError("agent-unavailable", "the agent has ended", "start it: rookery agent start")
        return seat

    async def _make_room(self) -> None:
        for session in [one for one, seat in self._seats.items() if not seat.terminal.alive]:
            await self._leave(session)
        while len(self._seats) >= self._most:
            idle = [session for session, seat in self._seats.items() if not seat.users]
            if not idle:
                message = f"all {self._most} terminals that may run are in use"
                raise RookeryError("limit-reached", message, "try again, or raise sessions.terminals")
            await self._leave(min(idle, key=lambda session: self._seats[session].used))

    # ---- how they go

    async def _watch(self, session: str, seat: Seat) -> None:
        """Until it has ended by itself, or was idle for long."""
        while self._seats.get(session) is seat:
            if seat.terminal.alive and (left := self._left(seat)) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await seat.terminal.ended()
                continue
            async with self._turn:
                # Somebody may want it by now, or have used it meanwhile: then it is watched further.
                wanted = seat.terminal.alive and self._left(seat) > 0
                if self._seats.get(session) is seat and not wanted:
                    await self._leave(session)

    def _left(self, seat: Seat) -> float:
        return seat.left(self._clock.monotonic(), self._idle_seconds)

    async def _end(self, session: str) -> None:
        async with self._turn:
            await self._leave(session)

    async def _leave(self, session: str) -> None:
        if (seat := self._seats.get(session)) is not None:
            try:
                await seat.close()
            finally:
                self._seats.pop(session, None)


def _ends(event: Event, session: str) -> bool:
    match event:
        case Ended():
            return True
        case SessionGone(id_):
            return id_ == session
        case SessionSeen(seen):
            return seen.id == session and seen.time.archived is not None
        case _:
            return False
