"""Time under the control of a test: a clock that it sets, and a loop for which it lets time pass."""

import asyncio


class SetClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def uptime(self) -> tuple[str, float]:
        return "boot", self.now


class MachineClock:
    """The clocks of a machine that a test switches on and off, suspends, and whose time of day it sets."""

    def __init__(self) -> None:
        self._boot, self._up, self._awake, self._wall = 1, 0.0, 0.0, 1_800_000_000.0

    def monotonic(self) -> float:
        return self._awake

    def wall(self) -> float:
        return self._wall

    def uptime(self) -> tuple[str, float]:
        return f"boot {self._boot}", self._up

    def run(self, seconds: float) -> None:
        self._awake += seconds
        self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self._up += seconds
        self._wall += seconds

    def set_wall(self, by: float) -> None:
        """Set the time of day only, as a person, NTP or an empty battery does."""
        self._wall += by

    def restart(self, off: float = 0.0) -> None:
        """Switch the machine off for this long, and on again."""
        self._boot, self._up, self._awake = self._boot + 1, 5.0, 5.0
        self._wall += off


def let_pass(seconds: float) -> None:
    """Advance the clock of the running loop by this much: timers that are due by then run now.

    A test can use a long timeout, which a slow machine does not reach by itself, without waiting for it.
    """
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds
