"""What waits to be written to a program's input: all that comes in one turn of the loop is one write."""

import asyncio
from collections.abc import Callable

from rookery.system.pipes import PipeWriter
from rookery.wire.deadline import Deadline

# More than this waits with its sender.
_ROOM = 1_048_576


class Outbox:
    """Written by `run`, which ends with a ConnectionError when the other side has gone."""

    def __init__(self, pipe: PipeWriter, seconds: float, on_stuck: Callable[[], None]) -> None:
        """`on_stuck` is called when nothing was read for so long."""
        self._pipe = pipe
        self._seconds = seconds
        self._stuck = Deadline(on_stuck)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._size = 0
        self._draining = False
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def post(self, data: bytes) -> bool:
        """Have it written soon; False if there is no room for it."""
        if self._draining or self._size > _ROOM:
            return False
        self._waiting.append(data)
        self._size += len(data)
        if self._wake is not None:
            self._wake.set_result(None)
            self._wake = None
        return True

    async def room(self) -> None:
        """Returns when there may be some."""
        if self._room is None:
            self._room = self._loop.create_future()
        await asyncio.shield(self._room)

    def close(self) -> None:
        """Nothing is written any more."""
        self._draining = True
        self._stuck.cancel()
        self._give_room()

    async def run(self) -> None:
        while True:
            if not self._waiting:
                self._wake = self._loop.create_future()
                await self._wake
            data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._pipe.write(data)
            self._draining = True
            self._stuck.set(self._seconds)
            await self._pipe.drain()
            self._stuck.set(None)
            self._draining = False
            self._give_room()

    def _give_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
