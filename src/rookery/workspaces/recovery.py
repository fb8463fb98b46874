"""What is set right when the daemon starts: creations that were cut off, and worktrees that were moved by hand.

Nothing is pruned. A worktree that cannot be found is shown as missing, for its owner to decide about.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic
from rookery.system.git import Git
from rookery.workspaces import journal
from rookery.workspaces.creation import complete
from rookery.workspaces.journal import Creation
from rookery.workspaces.listing import Found, common_folder, find_workspaces
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.naming import project_folder
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import named_git_folder, registered_folders

logger = logging.getLogger("rookery.workspaces")

# How many folders beside a missing one are looked at.
_LOOKS = 2000


async def recover(git: Git, state: Path, project: Project, locks: RepositoryLocks) -> list[Found]:
    """Finish or take back what was being made, find what was moved; answers what is there then."""
    # Under the lock nothing is being made: what looks so was cut off.
    async with locks.writing(project.path):
        if common_folder(Path(project.path)) is not None:
            for creation in journal.unfinished(state, project):
                await _take_up(git, state, project, creation)
            repair_moved(state, project)
        return await find_workspaces(git, state, project)


async def _take_up(git: Git, state: Path, project: Project, creation: Creation) -> None:
    try:
        there = await complete(git, state, project, creation)
    except (RookeryError, OSError) as error:
        logger.error("%s of %s is still half-made: %s", creation.name, project.id, error)
    else:
        ended = "was completed" if there else "was taken back"
        logger.warning("%s of %s was cut off while it was made, and %s", creation.name, project.id, ended)


def repair_moved(state: Path, project: Project) -> list[Path]:
    """Join worktrees and repository again where one of them was moved; answers the worktrees' places.

    Not by `git worktree repair`: that also seizes worktrees whose `.git` was made to name another repository. Here a
    side is only ever changed if what it names is no more, and if the other side names it.
    """
    common = common_folder(Path(project.path))
    if common is None:
        return []
    joined: list[Path] = []
    for path, own in registered_folders(common).items():
        if path.is_dir():
            named = named_git_folder(path)
            # The repository was moved: its worktrees still name its old place.
            if named is not None and not named.exists() and named.name == own.name and (path / ".git").is_file():
                write_atomic(path / ".git", b"gitdir: " + os.fsencode(own) + b"\n")
                joined.append(path)
            continue
        moved = {place for place in _candidates(state, project, path) if _names(place, own)}
        if len(moved) == 1:
            place = moved.pop()
            write_atomic(own / "gitdir", os.fsencode(place / ".git") + b"\n")
            logger.warning("%s was moved to %s; the repository knows it now", path, place)
            joined.append(place)
    return joined


def _candidates(state: Path, project: Project, path: Path) -> Iterator[Path]:
    """Where a missing worktree may have gone: beside its old place, or among the others of the project."""
    looked = 0
    for folder in dict.fromkeys((path.parent, path.parent.parent, project_folder(state, project) / "workspaces")):
        try:
            for entry in os.scandir(folder):
                looked += 1
                if looked > _LOOKS:
                    logger.warning("%s is missing, and too many folders lie around to look for it", path)
                    return
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
        except OSError:
            continue


def _names(place: Path, own: Path) -> bool:
    named = named_git_folder(place)
    return named is not None and (place / ".git").is_file() and named.resolve() == own.resolve()
