"""What to do when an agent ends, hangs or idles. Touches nothing outside: whoever asks says what time it is."""

from typing import Literal

import msgspec

# After a life of this length an end is an accident, and no longer one of a series.
GOOD_LIFE_SECONDS = 60.0
LONGEST_PAUSE = 300.0
# From here on it is called failed. It is still tried again: a full disk or a network that is down may be mended.
MANY_FAILURES = 5
# So many checks in a row that fail mean that it hangs.
CHECKS = 3


class Pace(msgspec.Struct, frozen=True):
    """Seconds: the first pause before a new start, how long a check may take, and how long it is until the next."""

    first_pause: float = 1.0
    check: float = 5.0
    between_checks: float = 5.0
    silence: float = 30.0


class Again(msgspec.Struct, frozen=True):
    """It is started again after so many seconds, and called that until then."""

    seconds: float
    state: Literal["restarting", "failed"]


class Restarts:
    """Counts the ends of one agent."""

    def __init__(self, first_pause: float = 1.0) -> None:
        self._first_pause = first_pause
        self._failures = 0
        self._listens: float | None = None

    def listens(self, now: float) -> None:
        self._listens = now

    def failed(self, now: float) -> Again:
        """It ended, or could not be started. The pauses grow until it has lived well."""
        if self._listens is not None and now - self._listens >= GOOD_LIFE_SECONDS:
            self._failures = 0
        self._listens = None
        self._failures += 1
        seconds = min(self._first_pause * 2.0 ** min(self._failures - 1, 20), LONGEST_PAUSE)
        return Again(seconds, "failed" if self._failures >= MANY_FAILURES else "restarting")


class Checks:
    """Tells from checks of one agent whether it hangs: a busy machine may well keep it from answering once."""

    def __init__(self) -> None:
        self._unanswered = 0

    def hangs(self, answered: bool) -> bool:
        """After one more check."""
        self._unanswered = 0 if answered else self._unanswered + 1
        return self._unanswered >= CHECKS


class Rest:
    """Tells when an agent has idled for `seconds`; with 0 that is never."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._used = now
        self._users = 0

    def enter(self) -> None:
        """Somebody needs it until they leave."""
        self._users += 1

    def leave(self, now: float) -> None:
        self._users -= 1
        self._used = now

    def used(self, now: float) -> None:
        """Something needed it, or something in it changed."""
        self._used = now

    def left(self, now: float, busy: bool) -> float | None:
        """Seconds until it may sleep, 0 if it may now; None if it never may."""
        if not self._seconds:
            return None
        if busy or self._users:
            self._used = now
        return max(self._used + self._seconds - now, 0.0)
