"""One timer for each session that is waited for."""

import asyncio
from collections.abc import Callable

from rookery.system.clock import Clock

# A timer that would ring later rings now and then meanwhile, and is set anew.
_LONGEST = 3600.0


class Alarms:
    """Calls `ring` with the session's id at the moment that was set for it, in seconds since the epoch."""

    def __init__(self, clock: Clock, ring: Callable[[str], None]) -> None:
        self._clock, self._ring = clock, ring
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def set(self, session: str, at: float) -> None:
        self.cancel(session)
        seconds = min(max(at - self._clock.wall(), 0.0), _LONGEST)
        self._timers[session] = asyncio.get_running_loop().call_later(seconds, self._rings, session)

    def cancel(self, session: str) -> None:
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        for session in list(self._timers):
            self.cancel(session)

    def __len__(self) -> int:
        return len(self._timers)

    def _rings(self, session: str) -> None:
        self._timers.pop(session, None)
        self._ring(session)
