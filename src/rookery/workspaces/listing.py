"""The workspaces of a project, from what git says and what lies in each one's git folder. Nothing else is kept."""

from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces import journal
from rookery.workspaces.metadata import read_kept, read_preparing
from rookery.workspaces.naming import folder_name, unique
from rookery.workspaces.projects import Project
from rookery.workspaces.record import MAIN, State, Workspace
from rookery.workspaces.worktrees import (
    Worktree,
    disagreement,
    list_worktrees,
    named_git_folder,
    registered_folders,
)

INITIALIZING = "initializing"


class Found(msgspec.Struct, frozen=True):
    """A workspace, what git says of it, and its own git folder."""

    workspace: Workspace
    worktree: Worktree
    own: Path


async def find_workspaces(git: Git, state: Path, project: Project) -> list[Found]:
    """All of them, the main checkout first; of a project that is gone, the main checkout as missing."""
    checkout = Path(project.path)
    common = common_folder(checkout)
    if common is None:
        gone = Workspace(project, MAIN, checkout, None, True, "missing", f"{checkout} is no git repository any more")
        return [Found(gone, Worktree(checkout, main=True), checkout / ".git")]
    worktrees = await list_worktrees(git, checkout)
    owns = {**registered_folders(common), worktrees[0].path: common}
    # Registered meanwhile: it is there at the next look.
    worktrees = [one for one in worktrees if one.path in owns]
    making = {Path(one.path): one for one in journal.unfinished(state, project)}
    deleting = journal.being_deleted(state, project)
    names = _names(worktrees, owns, {path: one.name for path, one in making.items()})
    found: list[Found] = []
    for worktree, name in zip(worktrees, names, strict=True):
        own = owns[worktree.path]
        told = _state(worktree, own, making=worktree.path in making)
        if folder_name(name) in deleting:
            told = "deleting", None, None
        path = checkout if worktree.main else worktree.path
        found.append(Found(Workspace(project, name, path, worktree.branch, worktree.main, *told), worktree, own))
    return found


def common_folder(checkout: Path) -> Path | None:
    """The git folder that all worktrees share; None where there is no repository."""
    named = named_git_folder(checkout)
    if named is None or not (named / "HEAD").exists():
        return None
    if (named / "commondir").exists():
        # The folder has become a worktree of another repository: not the project that was added.
        raise RookeryError("project-not-found", f"{checkout} is no main checkout any more", "add the project again")
    return named.resolve()


def _names(worktrees: list[Worktree], owns: dict[Path, Path], making: dict[Path, str]) -> list[str]:
    """Those that we made keep the name they were given; the others are called by branch or folder."""
    given = [making.get(one.path) or read_kept(owns[one.path]).name for one in worktrees]
    wishes: list[list[str]] = []
    for one, name in zip(worktrees, given, strict=True):
        usual = [*([one.branch] if one.branch else []), one.path.name or "worktree"]
        wishes.append([MAIN] if one.main else [name, *usual] if name else usual)
    order = sorted(range(len(worktrees)), key=lambda number: not given[number])
    names = dict(zip(order, unique([wishes[number] for number in order], set()), strict=True))
    return [names[number] for number in range(len(worktrees))]


def _state(worktree: Worktree, own: Path, *, making: bool) -> tuple[State, str | None, str | None]:
    """With why it is so, and the code of that."""
    if worktree.main:
        return "ready", None, None
    if making:
        return "preparing", None, None
    if why := disagreement(worktree.path, own):
        return "missing", why, None
    if worktree.locked == INITIALIZING:
        remedy = f"if none is at it: git worktree remove -f -f {worktree.path}"
        return "failed", f"git has not finished making it; {remedy}", None
    preparing = read_preparing(own)
    if preparing is None:
        return "ready", None, None
    return ("failed", preparing.error, preparing.code) if preparing.error else ("preparing", None, None)
