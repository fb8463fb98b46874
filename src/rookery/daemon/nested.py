"""What lies inside a workspace and is none of it: other workspaces, and the state folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces
from rookery.workspaces.worktrees import named_git_folder

# How long it may take until a worktree is known that was moved by other hands than ours.
_LOOK_SECONDS = 2.0

Mark = tuple[int, ...]


class Nested:
    """Known from the last look, as long as no repository has a worktree more or less. It takes no git to tell.

    Nobody reads a workspace through the one around it, or the owner's token through any.
    """

    def __init__(self, state: Path, projects: Projects, workspaces: Workspaces, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state, self._projects, self._workspaces, self._clock = state, projects, workspaces, clock
        self._looked = -_LOOK_SECONDS
        self._folders: list[Path] = []
        self._mark: list[Mark] = []
        self._roots: list[Path] = []
        self._inside: dict[Path, tuple[tuple[str, ...], ...]] = {}

    def forget(self) -> None:
        """A project or a workspace has come or gone."""
        self._looked = -_LOOK_SECONDS

    async def inside(self, root: Path) -> tuple[tuple[str, ...], ...]:
        """What is denied beneath this root, as names from there."""
        now = self._clock.monotonic()
        if now >= self._looked + _LOOK_SECONDS or self._mark != _marks(self._folders):
            await self._look()
        if root not in self._inside:
            found = [one.relative_to(root).parts for one in self._roots if root in one.parents]
            self._inside[root] = tuple(found)
        return self._inside[root]

    async def _look(self) -> None:
        # Before the look: what comes meanwhile is seen at the next one.
        looked = self._clock.monotonic()
        folders = [_worktrees(Path(one.path)) for one in await self._projects.all()]
        mark = _marks(folders)
        roots = [Path(os.path.realpath(one)) for one in (self._state, *await self._workspaces.finding.roots())]
        self._folders, self._mark, self._roots, self._looked = folders, mark, roots, looked
        self._inside.clear()


def _worktrees(checkout: Path) -> Path:
    """The folder in which git keeps a worktree's registration, whether or not it is there."""
    return (named_git_folder(checkout) or checkout / ".git") / "worktrees"


def _marks(folders: Sequence[Path]) -> list[Mark]:
    return [_mark(one) for one in folders]


def _mark(folder: Path) -> Mark:
    try:
        found = folder.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns
