"""One subscription to an agent's events, from `server.connected` on until it ends or falls silent."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from rookery.agents.events import CONNECTED, Event, decode
from rookery.agents.link import Link, unreachable
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.http_answer import Answer
from rookery.wire.remote import EVENTS
from rookery.wire.sse_parser import SseParser

# OpenCode's heart beats every 10 seconds; three beats that are not heard are enough.
SILENCE_SECONDS = 30.0


class EventStream:
    """What has come waits here until somebody listens, who then hears of everything at once."""

    def __init__(self, silence: float) -> None:
        self.silence = silence
        self._connected = False
        self._events: list[Event] = []
        self._heard: Callable[[Sequence[Event]], None] | None = None
        self._over: Exception | None = None
        self._more = asyncio.Event()

    async def connected(self) -> None:
        """Returns when nothing that happens from now on is missed."""
        while not self._connected:
            await self._wait()

    async def listen(self, heard: Callable[[Sequence[Event]], None], *first: Event) -> NoReturn:
        """Hand over all events: at first, with `first`, what has come so far, and then each piece where it comes in.

        Raises why no more will come, or what `heard` does.
        """
        heard([*first, *self._events])
        self._events, self._heard = [], heard
        while True:
            await self._wait()

    async def _wait(self) -> None:
        if isinstance(self._over, RookeryError):
            raise RookeryError(self._over.code, self._over.message, self._over.remedy)
        if self._over is not None:
            raise self._over
        self._more.clear()
        await self._more.wait()

    async def follow(self, answer: Answer) -> None:
        parser = SseParser()
        try:
            while chunk := await self._next(answer):
                for made in parser.feed(chunk):
                    type_, event = decode(made.data)
                    if event is not None:
                        self._events.append(event)
                    elif type_ == CONNECTED:
                        self._connected = True
                        self._more.set()
                if self._heard is not None and not self._hand_over(self._heard):
                    return
            self._over = RookeryError("agent-unavailable", "the agent ended its stream of events")
        except TimeoutError:
            self._over = RookeryError("timeout", f"nothing was heard from the agent for {self.silence:g} s")
        except (OSError, ValueError) as error:
            self._over = unreachable(error)
        finally:
            self._more.set()

    def _hand_over(self, heard: Callable[[Sequence[Event]], None]) -> bool:
        events, self._events = self._events, []
        try:
            heard(events)
        except Exception as error:
            # A fault of whoever listens, and not of the connection, whatever it looks like.
            self._over = error
        return self._over is None

    async def _next(self, answer: Answer) -> bytes:
        async with asyncio.timeout(self.silence):
            return await answer.next()


@asynccontextmanager
async def subscription(link: Link, silence: float = SILENCE_SECONDS) -> AsyncGenerator[EventStream]:
    """Subscribed, for the block. Raises RookeryError where that cannot be."""
    tasks = TaskSet("agent events")
    with await link.stream("/event", silence) as answer:
        if answer.kind != EVENTS:
            raise RookeryError("agent-unavailable", f"the agent's events are of the kind {answer.kind!r}")
        stream = EventStream(silence)
        try:
            tasks.start(stream.follow(answer), "stream")
            await stream.connected()
            yield stream
        finally:
            await tasks.close()
