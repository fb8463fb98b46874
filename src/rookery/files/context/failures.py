"""What went wrong in a workspace lately, for whoever comes to mend it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rookery.files.context.section import Section
from rookery.system.clock import SYSTEM_CLOCK, Clock

_MOST = 20
_LINES = 40
_LONGEST = 6_000
# So many are more urgent than all but git's status; those before them are history.
_URGENT = 3
_SECONDS = 86_400.0


@dataclass(frozen=True)
class Mishap:
    """`what` names it, and is the same the next time; `at` is missing where nobody knows when it was."""

    what: str
    why: str
    lines: Sequence[str] = ()
    at: float | None = None


class Failures:
    """Those of one workspace, in memory: the last one of each thing, until it goes well again or a day has passed."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._known: dict[str, Mishap] = {}

    def add(self, what: str, why: str, output: str = "") -> None:
        self.clear(what)
        self._known[what] = Mishap(what, why, output.splitlines()[-_LINES:], self._clock.wall())
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    def clear(self, what: str) -> None:
        """It went well."""
        self._known.pop(what, None)

    def recent(self) -> list[Mishap]:
        """The newest first."""
        since = self._clock.wall() - _SECONDS
        return [one for one in reversed(self._known.values()) if one.at is None or one.at >= since]


def failure_sections(failures: Iterable[Mishap]) -> list[Section]:
    """Of one that is long the end, which tells most."""
    return [
        Section(f"failures/{one.what}", f"Failure: {one.what}", 1 if place < _URGENT else 4, _text(one))
        for place, one in enumerate(failures)
    ]


def _text(one: Mishap) -> str:
    when = f" ({datetime.fromtimestamp(one.at, UTC):%Y-%m-%d %H:%M:%S} UTC)" if one.at is not None else ""
    return f"{one.why}{when}\n" + "".join(f"{line}\n" for line in one.lines[-_LINES:])[-_LONGEST:]
