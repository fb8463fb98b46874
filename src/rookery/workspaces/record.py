"""What a workspace is to everyone outside."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from rookery.workspaces.projects import Project

MAIN = "@main"

State = Literal["preparing", "ready", "failed", "missing", "deleting"]


class Workspace(msgspec.Struct, frozen=True):
    """One worktree of a project. `error` tells why it is failed or missing, `code` of which kind that is.

    It is `open` if what belongs to it, such as its agent, is to run.
    """

    project: Project
    name: str
    path: Path
    branch: str | None
    main: bool
    state: State
    error: str | None = None
    code: str | None = None
    open: bool = False

    def as_dict(self) -> dict[str, object]:
        """What every face answers and every event carries."""
        return {
            "project": self.project.id,
            "name": self.name,
            "path": as_text(self.path),
            "branch": self.branch,
            "main": self.main,
            "state": self.state,
            "error": self.error,
            "code": self.code,
            "open": self.open,
        }


def as_text(path: str | Path) -> str:
    """A path in an answer; bytes that are no text are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")
