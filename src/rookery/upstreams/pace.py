"""Keeps whoever asks for something without end from having it done without end."""

import asyncio
from collections.abc import Callable

_SHORTEST = 0.1
_LONGEST = 5.0


class Pace:
    """Calls `do` at once when it is asked to, but later, and ever later, where it is asked again and again."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do = do
        self._pause = _SHORTEST
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._next:
            if self._timer is None:
                self._timer = loop.call_at(self._next, self._ring)
            return
        self._pause = min(2 * self._pause, _LONGEST) if now < self._next + self._pause else _SHORTEST
        self._next = now + self._pause
        self._do()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self.ask()
