"""What waits to be written to a program's input: all that comes in one turn of the loop is one write."""

import asyncio
from collections.abc import Callable

from rookery.system.pipes import PipeWriter
from rookery.wire.deadline import Deadline

# More than this waits with its sender.
_ROOM = 1_048_576


class Outbox:
    """`on_stuck` is called when nothing was read for so many seconds, `on_gone` when the other side has gone."""

    def __init__(
        self, pipe: PipeWriter, seconds: float, on_stuck: Callable[[], None], on_gone: Callable[[], None]
    ) -> None:
        self._pipe = pipe
        self._seconds = seconds
        self._stuck = Deadline(on_stuck)
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._draining = self._closed = self._soon = False
        # Each has a future of its own, so that at the end they go on before anybody takes their time away.
        self._room: dict[asyncio.Future[None], None] = {}
        pipe.on_room = self._drained

    def post(self, data: bytes, *, at_once: bool = False) -> bool:
        """Have it written soon, with what others post meanwhile, or at once; False if there is no room for it."""
        if self._draining or self._closed or self._size > _ROOM:
            return False
        if at_once and not self._waiting:
            self._write(data)
            return True
        self._waiting.append(data)
        self._size += len(data)
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._flush)
        return True

    async def room(self) -> None:
        """Returns when there may be some."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._room[waiting] = None
        try:
            await waiting
        finally:
            self._room.pop(waiting, None)

    def close(self) -> None:
        """Nothing is written any more."""
        self._closed = True
        self._pipe.on_room = None
        self._stuck.cancel()
        self._give_room()

    def _flush(self) -> None:
        self._soon = False
        if self._closed or not self._waiting:
            return
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._write(data)
        self._give_room()

    def _write(self, data: bytes) -> None:
        try:
            if self._pipe.write(data):
                return
        except ConnectionError:
            self._give_up()
            return
        if self._pipe.gone:
            self._give_up()
        elif self._pipe.full:
            self._draining = True
            self._stuck.set(self._seconds)

    def _drained(self) -> None:
        if self._pipe.gone:
            self._give_up()
        elif self._draining:
            self._draining = False
            self._stuck.set(None)
            self._give_room()

    def _give_up(self) -> None:
        """Whoever has more to write waits until it is closed."""
        self._draining = True
        self._pipe.on_room = None
        self._stuck.cancel()
        self._on_gone()

    def _give_room(self) -> None:
        if self._closed or not self._draining:
            for waiting in self._room:
                if not waiting.done():
                    waiting.set_result(None)
