"""A clock that a test sets."""


class SetClock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now
