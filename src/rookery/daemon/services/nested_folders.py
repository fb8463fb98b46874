"""Folders inside a workspace that are not part of it: other workspaces, and the state folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces
from rookery.workspaces.worktrees import read_git_folder

# How long a worktree that another program moved may stay unnoticed.
_RESCAN_SECONDS = 2.0

FolderStamp = tuple[int, ...]


class NestedFolders:
    """Caches the folders until a repository gains or loses a worktree, which is checked without running git.

    A workspace cannot be read through the one around it, nor the owner's token through any.
    """

    def __init__(self, state: Path, projects: Projects, workspaces: Workspaces, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state = state
        self._projects = projects
        self._workspaces = workspaces
        self._clock = clock
        self._scanned_at = -_RESCAN_SECONDS
        self._folders: list[Path] = []
        self._stamps: list[FolderStamp] = []
        self._roots: list[Path] = []
        self._nested: dict[Path, tuple[tuple[str, ...], ...]] = {}

    def invalidate(self) -> None:
        """Drop the cache: a project or a workspace was added or removed."""
        self._scanned_at = -_RESCAN_SECONDS

    async def find_nested(self, root: Path) -> tuple[tuple[str, ...], ...]:
        """Return the folders that are denied beneath this root, as path parts relative to it."""
        now = self._clock.monotonic()
        if now >= self._scanned_at + _RESCAN_SECONDS or self._stamps != _read_stamps(self._folders):
            await self._scan()
        if root not in self._nested:
            relative = [folder.relative_to(root).parts for folder in self._roots if root in folder.parents]
            self._nested[root] = tuple(relative)
        return self._nested[root]

    async def _scan(self) -> None:
        # Taken first: a change during the scan is noticed at the next one.
        scanned_at = self._clock.monotonic()
        folders = [_worktrees(Path(project.path)) for project in await self._projects.all()]
        mark = _read_stamps(folders)
        roots = [Path(os.path.realpath(folder)) for folder in (self._state, *await self._workspaces.finder.roots())]
        self._folders = folders
        self._stamps = mark
        self._roots = roots
        self._scanned_at = scanned_at
        self._nested.clear()


def _worktrees(checkout: Path) -> Path:
    """Return the folder in which git registers worktrees, whether or not it exists."""
    return (read_git_folder(checkout) or checkout / ".git") / "worktrees"


def _read_stamps(folders: Sequence[Path]) -> list[FolderStamp]:
    return [_read_stamp(folder) for folder in folders]


def _read_stamp(folder: Path) -> FolderStamp:
    try:
        status = folder.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns
