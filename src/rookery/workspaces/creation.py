"""Making a worktree, and taking back one that could not be made. Both under the repository's lock."""

import logging
import shutil
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.files import move_aside
from rookery.system.git import Git, failed
from rookery.workspaces import journal
from rookery.workspaces.journal import Creation
from rookery.workspaces.listing import common_folder
from rookery.workspaces.locks import write_git
from rookery.workspaces.metadata import BASE, Kept, Preparing, read_kept, write_kept, write_preparing
from rookery.workspaces.projects import Project
from rookery.workspaces.steps import step
from rookery.workspaces.worktrees import list_worktrees, registered_folders

logger = logging.getLogger("rookery.workspaces")

# For git: the ref must not exist yet.
_NONE = ""


async def make(git: Git, state: Path, project: Project, creation: Creation, *, trusted: bool = False) -> Path:
    """Make what was planned; answers its own git folder. If that fails, nothing of it is left."""
    checkout, path = Path(project.path), Path(creation.path)
    journal.begin(state, project, creation)
    await step("create.begun")
    try:
        if creation.new_branch:
            # Not by `git worktree add -b`, which writes the remote's branch into the config that all share.
            await _done(git, checkout, "update-ref", f"refs/heads/{creation.branch}", creation.commit, _NONE)
        await step("create.branch")
        path.parent.mkdir(parents=True, exist_ok=True)
        await _done(git, checkout, "worktree", "add", "--quiet", str(path), creation.branch, trusted=trusted)
        await step("create.worktree")
        return await finish(git, state, project, creation, trusted=trusted)
    except (RookeryError, OSError) as error:
        await undo(git, state, project, creation)
        if isinstance(error, OSError):
            raise RookeryError("internal-error", f"{path} could not be made: {error}") from error
        raise


async def finish(git: Git, state: Path, project: Project, creation: Creation, *, trusted: bool = False) -> Path:
    """What comes after the worktree itself; safe to do again."""
    path = Path(creation.path)
    own = _own(project, path)
    if own is None:
        raise RookeryError("internal-error", f"git did not register {path}")
    write_preparing(own, Preparing("begun"))
    await step("create.marked")
    if read_kept(own).name is None:
        write_kept(own, Kept(creation.name, {BASE: creation.base} | read_kept(own).metadata))
    await step("create.metadata")
    # Fills the index with what the files look like, so that every later look is cheap.
    await write_git(git, path, "status", "--porcelain", "-z", trusted=trusted)
    await step("create.status")
    journal.end(state, project, creation)
    await step("create.ended")
    return own


async def undo(git: Git, state: Path, project: Project, creation: Creation) -> None:
    """Take back what there is of a worktree that was not finished. No file is deleted that git did not put there."""
    checkout, path = Path(project.path), Path(creation.path)
    own = _own(project, path)
    if path.is_dir():
        if any(one.name != ".git" for one in path.iterdir()):
            aside = path.with_name(f"{path.name}.half-made-{SYSTEM_CLOCK.wall():.0f}")
            move_aside(path, aside)
            logger.warning("%s could not be made whole; what was there is now in %s", path, aside)
        else:
            shutil.rmtree(path)
    if own is not None:
        # What `git worktree prune` does, but to this one alone, and though it is locked.
        shutil.rmtree(own)
    await step("undo.worktree")
    if creation.new_branch and all(one.branch != creation.branch for one in await list_worktrees(git, checkout)):
        # Only if it still is where it began: whoever committed to it meanwhile keeps it.
        taken = await write_git(git, checkout, "update-ref", "-d", f"refs/heads/{creation.branch}", creation.commit)
        if taken.returncode != 0:
            logger.warning("the branch %s of %s was kept: it has moved on", creation.branch, project.id)
    journal.end(state, project, creation)


async def complete(git: Git, state: Path, project: Project, creation: Creation) -> bool:
    """Carry an interrupted creation to its end if its worktree is far enough, else take it back; whether it is there.

    Only for creations of a daemon that is no more, when none of its children is left.
    """
    path = Path(creation.path)
    worktree = next((one for one in await list_worktrees(git, Path(project.path)) if one.path == path), None)
    own = _own(project, path)
    if worktree is None or own is None or worktree.branch != creation.branch or not (path / ".git").is_file():
        await undo(git, state, project, creation)
        return False
    if worktree.locked == "initializing":
        # Killed while it wrote the files: a lock of the index is its own, and the rest of the files are still to come.
        (own / "index.lock").unlink(missing_ok=True)
        filled = await write_git(git, path, "reset", "--hard", "--quiet", "--no-recurse-submodules")
        if filled.returncode != 0:
            await undo(git, state, project, creation)
            return False
        await step("complete.filled")
        await _done(git, path, "worktree", "unlock", str(path))
    await finish(git, state, project, creation)
    return True


def _own(project: Project, path: Path) -> Path | None:
    common = common_folder(Path(project.path))
    return registered_folders(common).get(path) if common else None


async def _done(git: Git, folder: Path, *args: str, trusted: bool = False) -> None:
    ran = await write_git(git, folder, *args, trusted=trusted)
    if ran.returncode != 0:
        raise failed(folder, args[0], ran)
