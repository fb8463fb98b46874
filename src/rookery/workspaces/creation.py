"""Making a worktree, and taking back one that could not be made. Both under the repository's lock."""

import contextlib
import logging
import os
import shutil
from pathlib import Path, PurePath

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.copying import copy_beneath
from rookery.system.errors import RookeryError
from rookery.system.files import move_aside
from rookery.system.git import Git, failed
from rookery.workspaces import journal
from rookery.workspaces.journal import Creation
from rookery.workspaces.listing import INITIALIZING, common_folder
from rookery.workspaces.locks import write_git
from rookery.workspaces.metadata import BASE, Kept, Preparing, house, read_kept, write_kept, write_preparing
from rookery.workspaces.projects import Project
from rookery.workspaces.steps import step
from rookery.workspaces.worktrees import disagreement, list_worktrees, registered_folders

logger = logging.getLogger("rookery.workspaces")

# For git: the ref must not exist yet.
_NONE = ""


async def make(git: Git, state: Path, project: Project, creation: Creation) -> Path:
    """Make what was planned; answers its own git folder. If that fails, nothing of it is left."""
    checkout, path = Path(project.path), Path(creation.path)
    journal.begin(state, project, creation)
    await step("create.begun")
    made = False
    try:
        if creation.new_branch:
            # Not by `git worktree add -b`, which writes the remote's branch into the config that all share.
            await _done(git, checkout, "update-ref", f"refs/heads/{creation.branch}", creation.commit, _NONE)
        await step("create.branch")
        path.parent.mkdir(parents=True, exist_ok=True)
        add = ("worktree", "add", "--quiet", str(path), creation.branch)
        await _done(git, checkout, *add, trusted=creation.trusted)
        made = True
        await step("create.worktree")
        return await finish(git, state, project, creation)
    except (RookeryError, OSError) as error:
        await undo(git, state, project, creation, made=made)
        if isinstance(error, OSError):
            raise RookeryError("internal-error", f"{path} could not be made: {error}") from error
        raise


async def finish(git: Git, state: Path, project: Project, creation: Creation) -> Path:
    """What comes after the worktree itself; safe to do again."""
    path = Path(creation.path)
    own = _own(project, path)
    if own is None:
        raise RookeryError("internal-error", f"git did not register {path}")
    write_preparing(own, Preparing("begun"))
    await step("create.marked")
    kept = read_kept(own)
    if kept.name is None:
        write_kept(own, Kept(creation.name, {BASE: creation.base} | kept.metadata))
    await step("create.metadata")
    # Fills the index with what the files look like, so that every later look is cheap.
    await write_git(git, path, "status", "--porcelain", "-z", trusted=creation.trusted)
    await step("create.status")
    journal.end(state, project, creation)
    await step("create.ended")
    return own


async def undo(git: Git, state: Path, project: Project, creation: Creation, *, made: bool = False) -> None:
    """Take back what there is of a worktree that was not finished; `made` tells that git had finished its part.

    What is not certainly ours is left alone, and no file is deleted that git did not put there.
    """
    checkout, path = Path(project.path), Path(creation.path)
    worktrees = await list_worktrees(git, checkout)
    worktree = next((one for one in worktrees if one.path == path), None)
    if worktree is not None and (made or worktree.locked == INITIALIZING):
        # Git itself refuses to remove what holds more than it put there.
        removed = await write_git(git, checkout, "worktree", "remove", str(path))
        if removed.returncode != 0:
            _set_aside(project, path)
        worktrees.remove(worktree)
    await step("undo.worktree")
    if creation.new_branch and all(one.branch != creation.branch for one in worktrees):
        # Only if it still is where it began: whoever committed to it meanwhile keeps it.
        taken = await write_git(git, checkout, "update-ref", "-d", f"refs/heads/{creation.branch}", creation.commit)
        if taken.returncode != 0:
            logger.warning("the branch %s of %s was kept: it has moved on", creation.branch, project.id)
    journal.end(state, project, creation)


def _set_aside(project: Project, path: Path) -> None:
    """Unregister a half-made worktree, as `git worktree prune` would, but this one alone; its files are kept."""
    if path.is_dir() and any(one.name != ".git" for one in path.iterdir()):
        aside = path.with_name(f"{path.name}.half-made-{SYSTEM_CLOCK.wall():.0f}")
        move_aside(path, aside)
        logger.warning("%s could not be made whole; what was there is now in %s", path, aside)
    shutil.rmtree(path, ignore_errors=True)
    if own := _own(project, path):
        shutil.rmtree(own)


async def complete(git: Git, state: Path, project: Project, creation: Creation) -> bool:
    """Carry an interrupted creation to its end if its worktree is far enough, else take it back; whether it is there.

    Only for creations of a daemon that is no more, when none of its children is left.
    """
    path = Path(creation.path)
    worktree = next((one for one in await list_worktrees(git, Path(project.path)) if one.path == path), None)
    own = _own(project, path)
    if worktree is None or own is None or worktree.branch != creation.branch or disagreement(path, own):
        await undo(git, state, project, creation)
        return False
    if worktree.locked == INITIALIZING:
        try:
            await _fill(git, path, own, creation)
            await step("complete.filled")
            await _done(git, path, "worktree", "unlock", str(path))
        except RookeryError as error:
            logger.warning("%s cannot be completed: %s", path, error.message)
            await undo(git, state, project, creation)
            return False
    await finish(git, state, project, creation)
    return True


async def _fill(git: Git, path: Path, own: Path, creation: Creation) -> None:
    """Write the files that a killed git had still to write. What is there and differs is kept in our folder first."""
    # Whose lock it is has ended with the daemon before us.
    (own / "index.lock").unlink(missing_ok=True)
    if (own / "index").exists():
        return
    await _done(git, path, "read-tree", "HEAD")
    asked = ("diff-files", "-z", "--name-only", "--diff-filter=MT")
    differing = await write_git(git, path, *asked, trusted=creation.trusted)
    (house(own) / "half-made").mkdir(parents=True, exist_ok=True)
    for name in filter(None, differing.stdout.split(b"\0")):
        with contextlib.suppress(OSError):
            copy_beneath(path, house(own) / "half-made", PurePath(os.fsdecode(name)))
    await _done(git, path, "reset", "--hard", "--quiet", "--no-recurse-submodules", trusted=creation.trusted)


def _own(project: Project, path: Path) -> Path | None:
    common = common_folder(Path(project.path))
    return registered_folders(common).get(path) if common else None


async def _done(git: Git, folder: Path, *args: str, trusted: bool = False) -> None:
    ran = await write_git(git, folder, *args, trusted=trusted)
    if ran.returncode != 0:
        raise failed(folder, args[0], ran)
