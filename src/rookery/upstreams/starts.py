"""The order in which local servers are started: programs that all start at once delay each other past their limits."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

# Two for each processor, because a start also waits for files; and enough that a few servers that hang delay nobody.
_SLOTS = max(4, 2 * (os.cpu_count() or 1))
# A server that hangs would keep its slot until its start-up timeout.
_SLOT_SECONDS = 10.0


class StartQueue:
    """Gives slots to servers that start, in order. A call that needs a server lets it start at once."""

    def __init__(self, slots: int = _SLOTS, slot_seconds: float = _SLOT_SECONDS) -> None:
        # Below zero if servers started without waiting.
        self._free = slots
        self._seconds = slot_seconds
        self._waiting: dict[int, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def slot(self, server: object, *, urgent: bool) -> AsyncGenerator[None]:
        """Wait for a slot, unless the start is `urgent`, and keep it for the block, but not for long."""
        if not urgent and self._free <= 0:
            await self._wait(server)
        else:
            self._free -= 1
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._release()

        timer = asyncio.get_running_loop().call_later(self._seconds, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    def hurry(self, server: object) -> None:
        """Let a server that waits for a slot start now."""
        self._admit(id(server))

    async def _wait(self, server: object) -> None:
        turn = self._waiting[id(server)] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.pop(id(server), None)
            else:
                self._release()  # it was admitted in the same moment
            raise

    def _release(self) -> None:
        self._free += 1
        while self._free > 0 and self._waiting:
            self._admit(next(iter(self._waiting)))

    def _admit(self, number: int) -> None:
        turn = self._waiting.pop(number, None)
        if turn is not None and not turn.done():
            self._free -= 1
            turn.set_result(None)
