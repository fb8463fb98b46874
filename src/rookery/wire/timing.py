"""Time limits that are set often and seldom reached, and pauses between retries."""

import asyncio
from collections.abc import Callable

_LONGEST_BACKOFF = 60.0


class Deadline:
    """A time limit with one timer, which is moved only if it would fire too late: most changes do not touch it."""

    def __init__(self, on_reached: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_reached = on_reached
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0

    def set(self, seconds: float | None) -> None:
        """Set the limit to `seconds` from now. None means no limit."""
        self._due = self._loop.time() + seconds if seconds is not None else None
        if self._due is not None and (self._timer is None or self._fires_at > self._due):
            self._start(self._due)

    def cancel(self) -> None:
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = due
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._loop.time() < self._due:
            self._start(self._due)
        else:
            self._due = None
            self._on_reached()


def compute_backoff(failures: int) -> float:
    """Return the pause in seconds after `failures` in a row: 1, 2, 4 and so on, up to 60."""
    return min(2.0 ** min(failures - 1, 10), _LONGEST_BACKOFF) if failures > 0 else 0.0
