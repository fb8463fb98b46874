"""Recent failures in a workspace, as context for agents and users that fix them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rookery.files.context.section import Section
from rookery.system.clock import SYSTEM_CLOCK, Clock

_MAX_FAILURES = 20
_MAX_LINES = 40
_MAX_TEXT = 6_000
# This many are as urgent as git's status; older ones have a lower priority.
_URGENT_FAILURES = 3
_KEEP_SECONDS = 86_400.0


@dataclass(frozen=True)
class FailureRecord:
    """A failure. `what` names it, and is the same the next time; `at` is None if its time is unknown."""

    what: str
    why: str
    lines: Sequence[str] = ()
    at: float | None = None


class FailureLog:
    """The failures of one workspace, in memory: the last of each kind, until it succeeds or a day has passed."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._records: dict[str, FailureRecord] = {}

    def add(self, what: str, why: str, output: str = "") -> None:
        """Record a failure, with the last lines of its output."""
        self.clear(what)
        self._records[what] = FailureRecord(what, why, output.splitlines()[-_MAX_LINES:], self._clock.wall())
        while len(self._records) > _MAX_FAILURES:
            del self._records[next(iter(self._records))]

    def clear(self, what: str) -> None:
        """Remove a failure after a success."""
        self._records.pop(what, None)

    def recent(self) -> list[FailureRecord]:
        """Return the failures of the last day, the newest first."""
        since = self._clock.wall() - _KEEP_SECONDS
        return [failure for failure in reversed(self._records.values()) if failure.at is None or failure.at >= since]


def build_failure_sections(failures: Iterable[FailureRecord]) -> list[Section]:
    """Return a section per failure; of a long output only the end, which says most."""
    return [
        Section(
            f"failures/{failure.what}",
            f"Failure: {failure.what}",
            1 if index < _URGENT_FAILURES else 4,
            _format_failure(failure),
        )
        for index, failure in enumerate(failures)
    ]


def _format_failure(failure: FailureRecord) -> str:
    when = f" ({datetime.fromtimestamp(failure.at, UTC):%Y-%m-%d %H:%M:%S} UTC)" if failure.at is not None else ""
    return f"{failure.why}{when}\n" + "".join(f"{line}\n" for line in failure.lines[-_MAX_LINES:])[-_MAX_TEXT:]
