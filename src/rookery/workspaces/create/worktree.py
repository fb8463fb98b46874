"""Create a worktree, or undo a creation that failed. The caller holds the lock of the repository."""

import contextlib
import logging
import os
import shutil
from pathlib import Path, PurePath

from rookery.system.causes import explain_os_error
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import copy_beneath, rename_durably
from rookery.system.git import Git, git_error
from rookery.workspaces.create import journal
from rookery.workspaces.create.journal import CreationPlan
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.locks import run_git_write
from rookery.workspaces.lookup import GIT_INITIALIZING_LOCK, find_common_git_folder
from rookery.workspaces.metadata import (
    BASE_KEY,
    PreparationMarker,
    StoredMetadata,
    read_metadata,
    rookery_folder,
    write_metadata,
    write_preparation,
)
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import find_mismatch, list_registered_worktrees, list_worktrees

logger = logging.getLogger("rookery.workspaces")

# Passed to `git update-ref`: the ref must not exist yet.
_NO_OLD_VALUE = ""


async def create_worktree(git: Git, state: Path, project: Project, creation: CreationPlan) -> Path:
    """Create the planned worktree and return its own git folder. If that fails, undo everything."""
    checkout = Path(project.path)
    path = Path(creation.path)
    journal.write_creation(state, project, creation)
    await fault_point("create.begun")
    is_registered = False
    try:
        if creation.new_branch:
            # Not `git worktree add -b`, which writes the remote's branch into the config that all worktrees share.
            await _run_git_or_raise(
                git, checkout, "update-ref", f"refs/heads/{creation.branch}", creation.commit, _NO_OLD_VALUE
            )
        await fault_point("create.branch")
        path.parent.mkdir(parents=True, exist_ok=True)
        add = ("worktree", "add", "--quiet", str(path), creation.branch)
        await _run_git_or_raise(git, checkout, *add, trusted=creation.trusted)
        is_registered = True
        await fault_point("create.worktree")
        return await finish_creation(git, state, project, creation)
    except (RookeryError, OSError) as error:
        await undo_creation(git, state, project, creation, made=is_registered)
        if isinstance(error, OSError):
            if explained := explain_os_error(error, path):
                raise explained from error
            raise RookeryError("internal-error", f"{path} could not be created: {error}") from error
        raise


async def finish_creation(git: Git, state: Path, project: Project, creation: CreationPlan) -> Path:
    """Do the steps that follow the creation of the worktree. They can be repeated."""
    path = Path(creation.path)
    own = _find_git_folder(project, path)
    if own is None:
        raise RookeryError("internal-error", f"git did not register {path}")
    write_preparation(own, PreparationMarker("begun"))
    await fault_point("create.marked")
    stored = read_metadata(own)
    if stored.name is None:
        write_metadata(
            own,
            StoredMetadata(creation.name, {BASE_KEY: creation.base} | stored.metadata, creation.family, creation.start),
        )
    await fault_point("create.metadata")
    # Fill the index with the state of the files, so that every later `git status` is fast.
    await run_git_write(git, path, "status", "--porcelain", "-z", trusted=creation.trusted)
    await fault_point("create.status")
    journal.remove_creation(state, project, creation)
    await fault_point("create.ended")
    return own


async def undo_creation(git: Git, state: Path, project: Project, creation: CreationPlan, *, made: bool = False) -> None:
    """Remove what exists of an unfinished worktree; `made` says that git had finished its part.

    Anything that was not certainly created by Rookery is kept, and no file is deleted that git did not write.
    """
    checkout = Path(project.path)
    path = Path(creation.path)
    worktrees = await list_worktrees(git, checkout)
    worktree = next((entry for entry in worktrees if entry.path == path), None)
    if worktree is not None and (made or worktree.locked == GIT_INITIALIZING_LOCK):
        # Git itself refuses to remove a worktree that contains other files than its own.
        removed = await run_git_write(git, checkout, "worktree", "remove", str(path))
        if removed.returncode != 0:
            _unregister_and_keep_files(project, path)
        worktrees.remove(worktree)
    await fault_point("undo.worktree")
    if creation.new_branch and all(entry.branch != creation.branch for entry in worktrees):
        # Only if the branch has not moved: commits that were added meanwhile are kept.
        deleted = await run_git_write(
            git, checkout, "update-ref", "-d", f"refs/heads/{creation.branch}", creation.commit
        )
        if deleted.returncode != 0:
            logger.warning("kept the branch %s of %s: it points to another commit", creation.branch, project.id)
    journal.remove_creation(state, project, creation)


def _unregister_and_keep_files(project: Project, path: Path) -> None:
    """Unregister an unfinished worktree, as `git worktree prune` would, but only this one; its files are kept."""
    if path.is_dir() and any(entry.name != ".git" for entry in path.iterdir()):
        aside = path.with_name(f"{path.name}.half-made-{SYSTEM_CLOCK.wall():.0f}")
        rename_durably(path, aside)
        logger.warning("%s could not be completed; its files are now in %s", path, aside)
    shutil.rmtree(path, ignore_errors=True)
    if own := _find_git_folder(project, path):
        shutil.rmtree(own)


async def complete_creation(git: Git, state: Path, project: Project, creation: CreationPlan) -> bool:
    """Finish an interrupted creation if its worktree is complete enough, else undo it.

    Return whether the worktree exists. Only for creations of an earlier daemon, when none of its children is left.
    """
    path = Path(creation.path)
    worktree = next((entry for entry in await list_worktrees(git, Path(project.path)) if entry.path == path), None)
    own = _find_git_folder(project, path)
    if worktree is None or own is None or worktree.branch != creation.branch or find_mismatch(path, own):
        await undo_creation(git, state, project, creation)
        return False
    if worktree.locked == GIT_INITIALIZING_LOCK:
        try:
            await _fill_worktree(git, path, own, creation)
            await fault_point("complete.filled")
            await _run_git_or_raise(git, path, "worktree", "unlock", str(path))
        except RookeryError as error:
            logger.warning("%s cannot be completed: %s", path, error.message)
            await undo_creation(git, state, project, creation)
            return False
    await finish_creation(git, state, project, creation)
    return True


async def _fill_worktree(git: Git, path: Path, own: Path, creation: CreationPlan) -> None:
    """Write the files that a killed git process had still to write.

    Existing files that differ are first copied to Rookery's folder.
    """
    # The process that held the lock has ended with the earlier daemon.
    (own / "index.lock").unlink(missing_ok=True)
    if (own / "index").exists():
        return
    await _run_git_or_raise(git, path, "read-tree", "HEAD")
    arguments = ("diff-files", "-z", "--name-only", "--diff-filter=MT")
    differing = await run_git_write(git, path, *arguments, trusted=creation.trusted)
    (rookery_folder(own) / "half-made").mkdir(parents=True, exist_ok=True)
    for name in filter(None, differing.stdout.split(b"\0")):
        with contextlib.suppress(OSError):
            copy_beneath(path, rookery_folder(own) / "half-made", PurePath(os.fsdecode(name)))
    await _run_git_or_raise(
        git, path, "reset", "--hard", "--quiet", "--no-recurse-submodules", trusted=creation.trusted
    )


def _find_git_folder(project: Project, path: Path) -> Path | None:
    common = find_common_git_folder(Path(project.path))
    return list_registered_worktrees(common).get(path) if common else None


async def _run_git_or_raise(git: Git, folder: Path, *args: str, trusted: bool = False) -> None:
    result = await run_git_write(git, folder, *args, trusted=trusted)
    if result.returncode != 0:
        raise git_error(folder, args[0], result)
