"""When to restart an agent, when it hangs and when it may sleep. Does no I/O: callers pass the time."""

from typing import Literal

import msgspec

# After a run of this length, a failure does not count together with earlier ones.
STABLE_RUN_SECONDS = 60.0
MAX_RESTART_PAUSE = 300.0
# From this number of failures on, the state is `failed`. Restarts go on: a full disk or a network that is down may be
# repaired.
MAX_FAILURES = 5
# This many failed checks in a row mean that the agent hangs.
MAX_FAILED_CHECKS = 3


class SupervisionIntervals(msgspec.Struct, frozen=True):
    """Times in seconds.

    `first_pause` is the first pause before a restart, `check` the time limit of a health check, `between_checks` the
    pause until the next check, and `silence` the time without events after which their stream counts as lost.
    """

    first_pause: float = 1.0
    check: float = 5.0
    between_checks: float = 5.0
    silence: float = 30.0


class RestartDecision(msgspec.Struct, frozen=True):
    """The agent is restarted after `seconds`; until then its state is `state`."""

    seconds: float
    state: Literal["restarting", "failed"]


class RestartPolicy:
    """Counts the failures of one agent and decides when it is restarted."""

    def __init__(self, first_pause: float = 1.0) -> None:
        self._first_pause = first_pause
        self._failures = 0
        self._listening_since: float | None = None

    def on_listening(self, now: float) -> None:
        """Record that the agent listens."""
        self._listening_since = now

    def on_failure(self, now: float) -> RestartDecision:
        """Record that the agent ended or could not be started, and return when to restart it.

        The pause doubles with each failure up to MAX_RESTART_PAUSE, until a run lasts for STABLE_RUN_SECONDS.
        """
        if self._listening_since is not None and now - self._listening_since >= STABLE_RUN_SECONDS:
            self._failures = 0
        self._listening_since = None
        self._failures += 1
        seconds = min(self._first_pause * 2.0 ** min(self._failures - 1, 20), MAX_RESTART_PAUSE)
        return RestartDecision(seconds, "failed" if self._failures >= MAX_FAILURES else "restarting")


class HangDetector:
    """Detects from checks whether one agent hangs. A single check may fail because the machine is busy."""

    def __init__(self) -> None:
        self._failed_checks = 0

    def record_check(self, healthy: bool) -> bool:
        """Record the result of a check and return whether the agent hangs."""
        self._failed_checks = 0 if healthy else self._failed_checks + 1
        return self._failed_checks >= MAX_FAILED_CHECKS


class IdleTimer:
    """Measures how long an agent is idle. It may sleep after `seconds`; with 0 it never may."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._last_used = now
        self._users = 0

    def enter(self) -> None:
        """Keep the agent awake until the matching `leave`."""
        self._users += 1

    def leave(self, now: float) -> None:
        """End a use that began with `enter`."""
        self._users -= 1
        self._last_used = now

    def mark_used(self, now: float) -> None:
        """Record that the agent was used, or that something in it changed."""
        self._last_used = now

    def seconds_left(self, now: float, busy: bool) -> float | None:
        """Return the seconds until the agent may sleep, 0 if it may now, None if it never may."""
        if not self._seconds:
            return None
        if busy or self._users:
            self._last_used = now
        return max(self._last_used + self._seconds - now, 0.0)
