"""Time as a test wants it: a clock that it sets, and a loop for which it lets time pass."""

import asyncio


class SetClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def let_pass(seconds: float) -> None:
    """For the loop that runs, it is later by so much: what was due until then is done now.

    So a test of a time-out has one that no slow machine reaches by itself, and yet takes no longer.
    """
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds
