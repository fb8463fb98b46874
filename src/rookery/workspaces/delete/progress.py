"""Progress of a deletion or a restore. Each event carries the whole state, so that a missed event loses nothing."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.workspaces.delete.processes import FolderProcess
from rookery.workspaces.delete.trash import TrashEntry


class Progress:
    """The progress of one operation, published as events.

    `error` is set if the operation failed; `occupants` are processes in the folder that Rookery did not start.
    """

    def __init__(self, events: Bus, entry: TrashEntry, operation: Literal["deleting", "restoring"]) -> None:
        self.entry = entry
        self.error: RookeryError | None = None
        self.occupants: Sequence[FolderProcess] = ()
        self._events = events
        self._operation = operation
        self._done: list[str] = []
        self._step: str | None = None

    def start_step(self, step: str) -> None:
        """Start a step, which ends the previous one."""
        self._end_step()
        self._step = step
        self._publish(self._operation)

    def set_occupants(self, occupants: Sequence[FolderProcess]) -> None:
        """Record the processes in the folder, and publish them if there are any."""
        self.occupants = occupants
        if occupants:
            self._publish(self._operation)

    def fail(self, error: RookeryError) -> None:
        """Record the error and publish it."""
        self.error = error
        self._publish("failed")

    def finish(self) -> None:
        """End the last step and publish the end of the operation."""
        self._end_step()
        self._publish("deleted" if self._operation == "deleting" else "restored")

    def as_dict(self) -> dict[str, object]:
        return {
            "trash": self.entry.id,
            "done": [*self._done],
            "step": self._step,
            "mergedInto": self.entry.merged_into,
            "processes": [msgspec.to_builtins(process) for process in self.occupants],
            "error": None if self.error is None else self.error.as_dict(),
        }

    def _end_step(self) -> None:
        if self._step is not None:
            self._done.append(self._step)
        self._step = None

    def _publish(self, type_: str) -> None:
        entry = self.entry
        fields = {
            "project": entry.project.id,
            "name": entry.name,
            "path": entry.path,
            "branch": entry.branch,
            "main": False,
        }
        self._events.publish(f"workspace.{type_}", **fields, state=type_, progress=self.as_dict())
