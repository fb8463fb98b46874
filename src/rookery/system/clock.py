"""The clock. Durations and timeouts use `monotonic`, which neither a clock change nor NTP affects."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """A source of time; tests pass one that they set themselves."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    def wall(self) -> float:
        """Return seconds since the epoch, for display."""
        ...

    def uptime(self) -> tuple[str, float]:
        """Return the id of this boot of the machine, and seconds that continue to count while the machine sleeps.

        Two counts with the same id can be compared, also between processes. Setting the clock changes neither.
        """
        ...


class SystemClock:
    """The clock of the system. Uses its functions directly: some are called several times per request."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def uptime(self) -> tuple[str, float]:
        if hasattr(time, "CLOCK_BOOTTIME"):
            return boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME)
        return boot_id(), time.monotonic()


SYSTEM_CLOCK = SystemClock()


def thread_cpu_seconds() -> float:
    """Return the CPU time that the calling thread has used."""
    return time.thread_time()


def iso(wall: float) -> str:
    """Format a time as RFC 3339 in UTC, with milliseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def boot_id() -> str:
    """Return an id that changes with every boot: the kernel's, or else the time of the boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        import psutil

        return str(psutil.boot_time())
