"""Server-sent events of one stream: numbered and kept for a while, so that a client can resume where it broke off."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from rookery.wire.lines import one_line

_KEPT = 256
KEPT_BYTES = 4 * 1024 * 1024
STILL_HERE = b": still here\r\n\r\n"
_KEEP_ALIVE_SECONDS = 15.0

Sender = Callable[[bytes], Awaitable[None]]
Beat = Callable[[], Awaitable[None]]


def event(data: bytes, id_: str | None = None, kind: bytes = b"message") -> bytes:
    head = b"id: %b\r\n" % id_.encode() if id_ is not None else b""
    return b"%bevent: %b\r\ndata: %b\r\n\r\n" % (head, kind, one_line(data))


class News:
    """Messages that wait for a reader; one that waits already does not wait twice, which bounds a slow one's cost."""

    # By its connection, as long as there is one.
    attended = True

    def __init__(self) -> None:
        self._waiting: dict[bytes, None] = {}
        self._wake = asyncio.Event()
        self._ended = False

    def push(self, message: bytes) -> None:
        self._waiting[message] = None
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def next(self) -> list[bytes]:
        """What has come since the last time, waiting for the first; nothing once it has ended."""
        while not self._waiting and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        found = list(self._waiting)
        self._waiting.clear()
        return found


async def relay(news: News, send: Sender, still_here: Beat | None = None) -> None:
    """Send what comes until it ends, with a sign of life where nothing does."""
    while True:
        try:
            async with asyncio.timeout(_KEEP_ALIVE_SECONDS if still_here is not None else None):
                messages = await news.next()
        except TimeoutError:
            assert still_here is not None
            await still_here()
            continue
        if not messages:
            return
        for message in messages:
            await send(message)


class Stream:
    """What was sent on one stream; its events have ids only if it has a name."""

    __slots__ = ("_count", "_events", "_readers", "_wake", "ended", "name", "size")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.ended = False
        self._count = 0
        self._readers = 0
        self._events: deque[bytes] = deque()
        # In bytes, of what is kept.
        self.size = 0
        self._wake = asyncio.Event()

    def push(self, data: bytes) -> bytes:
        """Keep a message; answers the event to send."""
        self._count += 1
        made = event(data, f"{self.name}-{self._count}" if self.name else None)
        self._events.append(made)
        self.size += len(made)
        # The newest is kept whatever its size: most of all, it may be the answer.
        while len(self._events) > _KEPT or (self.size > KEPT_BYTES and len(self._events) > 1):
            self.size -= len(self._events.popleft())
        self._wake.set()
        return made

    def prime(self) -> bytes:
        """An event without a message, that only gives the client an id to resume from."""
        return b"id: %b-0\r\ndata: \r\n\r\n" % (self.name or "").encode()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    @property
    def attended(self) -> bool:
        """Whether anybody reads it."""
        return self._readers > 0

    @contextmanager
    def read(self) -> Generator[None]:
        """Somebody does, for as long as this lasts."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    def has_been_at(self, position: int) -> bool:
        return position <= self._count

    def keeps(self, position: int) -> bool:
        """Whether all that came after it is still known."""
        return position >= self._count - len(self._events)

    async def after(self, position: int) -> tuple[list[bytes], int]:
        """The events after `position` and the new position, waiting for the first.

        None once the stream has ended, or if the reader is so far behind that some are no longer kept.
        """
        while True:
            if not self.keeps(position):
                return [], self._count
            if position < self._count:
                return list(self._events)[position - self._count :], self._count
            if self.ended:
                return [], self._count
            self._wake.clear()
            await self._wake.wait()
