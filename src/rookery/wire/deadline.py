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
        self._held = self._moved = False
        self._wanted: float | None = None

    def set(self, seconds: float | None) -> None:
        """From now on; None: no limit."""
        if self._held:
            self._wanted, self._moved = seconds, True
            return
        self._due = self._loop.time() + seconds if seconds is not None else None
        if self._due is not None and (self._timer is None or self._rings_at > self._due):
            self._start(self._due)

    def hold(self) -> None:
        """Of all that is set until the release, only the last is to count."""
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._moved:
            self._moved = False
            self.set(self._wanted)

    def cancel(self) -> None:
        self._due = None
        self._moved = False
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
