"""Notices that something has not been used for a while."""

import asyncio
from collections.abc import Callable

_BUSY_SECONDS = 1.0


class Idleness:
    """Calls `idle` when nobody has touched it for `seconds`, but not while it is busy; with 0 seconds never."""

    def __init__(self, seconds: float, busy: Callable[[], bool], idle: Callable[[], None]) -> None:
        self._seconds = seconds
        self._busy = busy
        self._idle = idle
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def touch(self) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self._used = loop.time()
        if self._timer is None and self._seconds:
            self._timer = loop.call_later(self._seconds, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        left = self._used + self._seconds - loop.time()
        if self._busy() or left > 0:
            self._timer = loop.call_later(max(left, _BUSY_SECONDS), self._look)
        else:
            self._idle()
