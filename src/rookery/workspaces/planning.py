"""All that can be wrong with a new workspace is said before anything on disk or in git is touched."""

import os
from collections.abc import Sequence
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.base import find_base
from rookery.workspaces.journal import Creation
from rookery.workspaces.listing import Found
from rookery.workspaces.naming import check_name, folder_name
from rookery.workspaces.projects import Project

_BRANCHES = "refs/heads/"


async def plan_creation(
    git: Git,
    project: Project,
    name: str,
    *,
    place: Path,
    base: str | None,
    branch: str | None,
    found: Sequence[Found],
    roots: Sequence[Path],
) -> Creation:
    """What to make, or the error; `roots` are the folders of other projects."""
    checkout = Path(project.path)
    check_name(name)
    wanted = branch if branch is not None else name
    if branch is not None:
        await _check_branch(git, checkout, branch)
    path = place.parent.resolve() / place.name
    _refuse_twin(name, found)
    _refuse_checked_out(wanted, found)
    branches = await _branches(git, checkout)
    if wanted not in branches:
        if branch is not None:
            raise _refused(f"there is no branch {branch}", "leave --branch out to make a new one")
        _refuse_clash(wanted, branches)
    _refuse_place(path, [*(one.workspace.path for one in found), *roots])
    start = await find_base(git, checkout, base)
    commit = branches.get(wanted)
    return Creation(name, wanted, str(path), start.name, commit or start.commit, commit is None)


async def _check_branch(git: Git, checkout: Path, branch: str) -> None:
    named = await git.run(checkout, "check-ref-format", _BRANCHES + branch)
    if named.returncode != 0 or branch.startswith("-"):
        raise _refused(f"{branch!r} cannot be a branch", "name a branch that exists")


async def _branches(git: Git, checkout: Path) -> dict[str, str]:
    """Every local branch and its commit."""
    listed = await git.told(checkout, "for-each-ref", "--format=%(objectname) %(refname)", _BRANCHES)
    pairs = [line.partition(" ") for line in os.fsdecode(listed).splitlines()]
    return {name.removeprefix(_BRANCHES): commit for commit, _, name in pairs}


def _refuse_twin(name: str, found: Sequence[Found]) -> None:
    for one in found:
        # Also on file systems that do not tell cases apart, one name is one folder.
        if folder_name(one.workspace.name).lower() == folder_name(name).lower():
            raise RookeryError(
                "workspace-exists",
                f"there is a workspace {one.workspace.name} already, at {one.workspace.path}",
                "choose another name",
            )


def _refuse_checked_out(branch: str, found: Sequence[Found]) -> None:
    for one in found:
        if one.worktree.branch == branch:
            raise _refused(f"the branch {branch} is checked out at {one.workspace.path}")


def _refuse_clash(branch: str, branches: dict[str, str]) -> None:
    """Git keeps branches as files: none can be the folder of another."""
    for other in branches:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise _refused(f"the branch {branch} cannot be made beside the branch {other}")


def _refuse_place(path: Path, roots: Sequence[Path]) -> None:
    if os.path.lexists(path):
        raise _refused(f"{path} is in the way", "move it away, or choose another name")
    for root in roots:
        if path == root:
            raise _refused(f"{path} is registered for a worktree that is missing", "bring it back, or prune it")
        # One inside the other would let the outer one's agent at the inner one's files.
        if path.is_relative_to(root) or root.is_relative_to(path):
            raise _refused(f"{path} would lie inside {root}, or around it", "set worktrees.path to another place")
    above = next(folder for folder in path.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise _refused(f"{path} cannot be made: {above} cannot be written to", "set worktrees.path to another place")


def _refused(why: str, remedy: str = "choose another name") -> RookeryError:
    return RookeryError("invalid-input", why, remedy)
