"""The one clock. Durations and time-outs use `monotonic`, which neither a clock change nor NTP moves."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where time comes from; tests pass one that they set themselves."""

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for people to read."""
        ...


class SystemClock:
    """The system's own functions, without a call in between: some are asked several times a request."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


SYSTEM_CLOCK = SystemClock()


def iso(wall: float) -> str:
    """A moment as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
