"""Whether the work of a branch is merged into its base or into another remaining branch."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.status.cache import read_changes
from rookery.workspaces.status.history import (
    BaseCommit,
    Branch,
    count_commits_outside,
    count_unmerged,
    find_containing_branch,
    list_remaining_branches,
    measure_head,
    resolve_base,
)
from rookery.workspaces.worktrees import has_head_moved

# By ancestry; because merging would change nothing (squashed); because each commit was cherry-picked or rebased.
MergeKind = Literal["merged", "same-content", "picked"]
# The content of a head is compared with at most this many remaining branches that do not contain its commits.
_MAX_COMPARED = 10


async def find_merge_kind(git: Git, checkout: Path, head: str, base: BaseCommit) -> MergeKind | None:
    """Return how a head is merged into its base; None if it is not."""
    pair = (head, base.commit)
    measured = await measure_head(git, checkout, head, base)
    if pair not in measured.distances:
        return None
    ahead, _ = measured.distances[pair]
    if ahead == 0:
        return "merged"
    if count_unmerged(measured, pair, base) == 0:
        return "same-content"
    # A plus marks a commit whose change the base does not have.
    result = await git.run(checkout, "cherry", base.commit, head)
    lines = result.stdout.decode("ascii", "replace").splitlines()
    # `git cherry` leaves out merge commits: if there is one, the output is not sufficient.
    is_complete = result.returncode == 0 and len(lines) == ahead
    return "picked" if is_complete and all(line.startswith("- ") for line in lines) else None


class MergedWork(msgspec.Struct, frozen=True):
    """Where the work of a branch is: `branch` has it, and `how` says how it was merged."""

    how: MergeKind
    branch: str


async def find_merged_work(
    git: Git, checkout: Path, head: str, base: tuple[str, BaseCommit] | None, branches: Sequence[Branch]
) -> MergedWork | None:
    """Return where the work of a head is: in its base, else in one of the remaining branches."""
    if base is not None and (how := await find_merge_kind(git, checkout, head, base[1])) is not None:
        return MergedWork(how, base[0])
    others = [branch for branch in branches if base is None or branch.commit != base[1].commit]
    if (await count_commits_outside(git, checkout, [head], others)).get(head) == 0:
        containing = await find_containing_branch(git, checkout, head, others)
        return MergedWork("merged", containing.name) if containing is not None else None
    for branch in others[:_MAX_COMPARED]:
        how = await find_merge_kind(git, checkout, head, BaseCommit(branch.commit, branch.tree))
        if how is not None:
            return MergedWork(how, branch.name)
    return None


async def list_merged_workspaces(
    git: Git, workspaces: Iterable[LocatedWorkspace], bases: Mapping[Path, str]
) -> list[tuple[LocatedWorkspace, MergedWork]]:
    """Return the workspaces that can be deleted safely: ready, clean, unlocked, and with merged work.

    A workspace without any work is new, and is left out.
    """
    workspaces = list(workspaces)
    ready = [located for located in workspaces if located.workspace.state == "ready" and not located.workspace.main]
    if not ready:
        return []
    checkout = Path(ready[0].workspace.project.path)
    branches = await list_remaining_branches(git, checkout, [located.worktree for located in workspaces])
    results = await asyncio.gather(
        *(_find_workspace_merge(git, located, bases.get(located.workspace.path), branches) for located in ready)
    )
    return [(located, merged) for located, merged in zip(ready, results, strict=True) if merged is not None]


async def _find_workspace_merge(
    git: Git, located: LocatedWorkspace, base: str | None, branches: Sequence[Branch]
) -> MergedWork | None:
    checkout = Path(located.workspace.project.path)
    head = located.worktree.head
    if base is None or head is None or located.worktree.locked is not None or not has_head_moved(located.git_folder):
        return None
    base_commit = await resolve_base(git, checkout, base)
    merged = await find_merged_work(
        git, checkout, head, (base, base_commit) if base_commit is not None else None, branches
    )
    if merged is None:
        return None
    try:
        return None if (await read_changes(git, located.workspace.path)).is_dirty else merged
    except RookeryError:
        return None
