"""A time limit that is set often and seldom reached."""

import asyncio
from collections.abc import Callable


class Deadline:
    """One timer, moved only when it would ring too late: most time limits never touch it."""

    def __init__(self, on_reached: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_reached = on_reached
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def set(self, seconds: float | None) -> None:
        """From now on; None: no limit."""
        self._due = self._loop.time() + seconds if seconds is not None else None
        if self._due is not None and (self._timer is None or self._rings_at > self._due):
            self._start(self._due)

    def cancel(self) -> None:
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = due
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._loop.time() < self._due:
            self._start(self._due)
        else:
            self._due = None
            self._on_reached()
