"""Who uses the endpoint of each workspace, and what goes over it, by whichever way they come."""

from collections.abc import Callable
from pathlib import Path

from rookery.wire.attendance import Attendance
from rookery.wire.traffic import Line, Traffic


class Usage:
    """That of one workspace; its endpoints differ in what a query asked for."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.traffic = Traffic(changed)
        self._endpoints: list[Attendance] = []

    def add(self, endpoint: Attendance) -> None:
        self._endpoints = [*self._there(), endpoint]

    @property
    def clients(self) -> int:
        """Open sessions and connections, and clients without one that were here in the last minute or still listen."""
        there = self._there()
        stateless = self.traffic.present().union(*(one.listeners() for one in there))
        return sum(one.connected for one in there) + len(stateless)

    def _there(self) -> list[Attendance]:
        return [one for one in self._endpoints if not one.closing]


class Usages:
    """`changed` hears of each directory whose clients may be others now."""

    def __init__(self) -> None:
        self.changed: Callable[[Path], None] = lambda directory: None
        self._known: dict[Path, Usage] = {}

    def of(self, directory: Path) -> Usage:
        if directory not in self._known:
            self._known[directory] = Usage(lambda: self.changed(directory))
        return self._known[directory]

    def clients(self, directory: Path) -> int:
        return self._known[directory].clients if directory in self._known else 0

    def lines(self, directory: Path) -> list[Line]:
        """What went over it last."""
        return self._known[directory].traffic.lines() if directory in self._known else []

    def forget(self, directory: Path) -> None:
        self._known.pop(directory, None)
