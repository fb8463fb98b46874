"""How far a deletion or restoring is; each event carries the whole state, so that who missed one misses nothing."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.workspaces.occupants import Occupant
from rookery.workspaces.trash import Trashed


class Progress:
    """`error` is set if it failed; `occupants` are foreign processes that still live in the folder."""

    def __init__(self, events: Bus, trashed: Trashed, doing: Literal["deleting", "restoring"]) -> None:
        self.trashed = trashed
        self.error: RookeryError | None = None
        self.occupants: Sequence[Occupant] = ()
        self._events, self._doing = events, doing
        self._done: list[str] = []
        self._now: str | None = None

    def at(self, step: str) -> None:
        """Begin a step, which ends the one before it."""
        self._end_step()
        self._now = step
        self._tell(self._doing)

    def occupied(self, occupants: Sequence[Occupant]) -> None:
        self.occupants = occupants
        if occupants:
            self._tell(self._doing)

    def failed(self, error: RookeryError) -> None:
        self.error = error
        self._tell("failed")

    def finished(self) -> None:
        self._end_step()
        self._tell("deleted" if self._doing == "deleting" else "restored")

    def as_dict(self) -> dict[str, object]:
        return {
            "trash": self.trashed.id,
            "done": [*self._done],
            "step": self._now,
            "processes": [msgspec.to_builtins(one) for one in self.occupants],
            "error": None if self.error is None else self.error.as_dict(),
        }

    def _end_step(self) -> None:
        if self._now is not None:
            self._done.append(self._now)
        self._now = None

    def _tell(self, type_: str) -> None:
        one = self.trashed
        about = {"project": one.project.id, "name": one.name, "path": one.path, "branch": one.branch, "main": False}
        self._events.publish(f"workspace.{type_}", **about, state=type_, progress=self.as_dict())
