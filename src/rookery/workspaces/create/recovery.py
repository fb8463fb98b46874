"""Recovery when the daemon starts: creations that were interrupted, and worktrees that were moved by hand.

Nothing is pruned. A worktree that cannot be found is shown as missing, and the user decides about it.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_atomic
from rookery.system.git import Git
from rookery.workspaces.create import journal
from rookery.workspaces.create.journal import CreationPlan
from rookery.workspaces.create.worktree import complete_creation
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import LocatedWorkspace, find_common_git_folder, list_workspaces
from rookery.workspaces.model import project_state_folder
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import list_registered_worktrees, read_git_folder

logger = logging.getLogger("rookery.workspaces")

# How many folders are searched for a missing worktree.
_MAX_CANDIDATES = 2000


async def recover_workspaces(git: Git, state: Path, project: Project, locks: RepositoryLocks) -> list[LocatedWorkspace]:
    """Finish or undo interrupted creations, find moved worktrees, and return the workspaces that exist then."""
    # While the lock is held nothing is being created: what looks unfinished was interrupted.
    async with locks.write_lock(project.path):
        if find_common_git_folder(Path(project.path)) is not None:
            for creation in journal.list_unfinished(state, project):
                await _resume_creation(git, state, project, creation)
            repair_moved_worktrees(state, project)
        return await list_workspaces(git, state, project)


async def _resume_creation(git: Git, state: Path, project: Project, creation: CreationPlan) -> None:
    try:
        completed = await complete_creation(git, state, project, creation)
    except (RookeryError, OSError) as error:
        logger.error("the creation of %s in %s is still unfinished: %s", creation.name, project.id, error)
    else:
        outcome = "was completed" if completed else "was undone"
        logger.warning("the creation of %s in %s was interrupted, and %s", creation.name, project.id, outcome)


def repair_moved_worktrees(state: Path, project: Project) -> list[Path]:
    """Reconnect worktrees and repository where one of them was moved, and return the paths of the worktrees.

    `git worktree repair` is not used: it also takes over worktrees whose `.git` was changed to name another repository.
    Here one side is only changed if the path it names does not exist and the other side names it.
    """
    common = find_common_git_folder(Path(project.path))
    if common is None:
        return []
    repaired: list[Path] = []
    for path, own in list_registered_worktrees(common).items():
        if path.is_dir():
            git_folder = read_git_folder(path)
            # The repository was moved: its worktrees still name its old path.
            if (
                git_folder is not None
                and not git_folder.exists()
                and git_folder.name == own.name
                and (path / ".git").is_file()
            ):
                write_atomic(path / ".git", b"gitdir: " + os.fsencode(own) + b"\n")
                repaired.append(path)
            continue
        candidates = {new_path for new_path in _list_candidates(state, project, path) if _belongs_to(new_path, own)}
        if len(candidates) == 1:
            new_path = candidates.pop()
            write_atomic(own / "gitdir", os.fsencode(new_path / ".git") + b"\n")
            logger.warning("%s was moved to %s; the repository was updated", path, new_path)
            repaired.append(new_path)
    return repaired


def _list_candidates(state: Path, project: Project, path: Path) -> Iterator[Path]:
    """Yield the folders where a missing worktree may be: near its old path, or among the others of the project."""
    examined = 0
    for folder in dict.fromkeys((path.parent, path.parent.parent, project_state_folder(state, project) / "workspaces")):
        try:
            for entry in os.scandir(folder):
                examined += 1
                if examined > _MAX_CANDIDATES:
                    logger.warning("%s is missing, and there are too many folders to search for it", path)
                    return
                if entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)
        except OSError:
            continue


def _belongs_to(worktree: Path, own: Path) -> bool:
    git_folder = read_git_folder(worktree)
    return git_folder is not None and (worktree / ".git").is_file() and git_folder.resolve() == own.resolve()
