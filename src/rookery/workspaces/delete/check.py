"""Check what a deletion would remove, and whether to refuse it. Git is run each time; no cache is used."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git, git_error
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.status.cache import read_changes
from rookery.workspaces.status.changes import WorktreeChanges
from rookery.workspaces.status.history import BaseCommit, list_remaining_branches, resolve_base
from rookery.workspaces.status.merges import MergedWork, find_merged_work
from rookery.workspaces.worktrees import Worktree, find_default_base_name, list_worktrees

_MAX_LINES_SHOWN = 20
_MAX_DETAILS = 1000


class DeletionCheck(msgspec.Struct, frozen=True):
    """What a deletion would remove. `unmerged` are the commits that no remaining branch has, as lines.

    `merged` is the branch that has the work, if one does; `inside` are the checkouts inside this workspace.
    """

    located: LocatedWorkspace
    worktree: Worktree
    changes: WorktreeChanges | None
    unmerged: tuple[str, ...]
    merged: MergedWork | None
    inside: tuple[Path, ...]
    # Whether another worktree has the same branch checked out.
    shared: bool
    config: tuple[tuple[str, str], ...]


async def examine_workspace(
    git: Git, located: LocatedWorkspace, base: str | None, roots: Sequence[Path] = ()
) -> DeletionCheck:
    """Collect everything that the decision needs.

    A workspace whose folder is missing has no changes. `roots` are the folders of all projects.
    """
    checkout = Path(located.workspace.project.path)
    path = located.workspace.path
    exists = located.workspace.state != "missing"
    worktrees, changes, config, base_commit = await asyncio.gather(
        list_worktrees(git, checkout),
        _read_changes(git, path, exists=exists),
        _read_branch_config(git, checkout, located),
        _resolve_base(git, checkout, base),
    )
    worktree = next((entry for entry in worktrees if entry.path == located.worktree.path), located.worktree)
    others = [entry for entry in worktrees if entry.path != worktree.path]
    base_name = base or await find_default_base_name(git, checkout)
    unmerged, merged = await _find_unmerged(
        git, checkout, worktree.head, (base_name, base_commit) if base_commit else None, worktrees
    )
    return DeletionCheck(
        located=located,
        worktree=worktree,
        changes=changes,
        unmerged=unmerged,
        merged=merged,
        inside=tuple(
            dict.fromkeys(root for root in (*(other.path for other in others), *roots) if path in root.parents)
        ),
        shared=worktree.branch is not None and any(other.branch == worktree.branch for other in others),
        config=config,
    )


def find_refusal(check: DeletionCheck, *, force: bool, keep_branch: bool) -> RookeryError | None:
    """Return why a deletion is refused; None if it is allowed.

    `force` overrides the protection of what the trash keeps, never that of other checkouts.
    """
    workspace = check.located.workspace
    if workspace.main or check.worktree.main:
        message = f"{workspace.path} is the main checkout, which is never deleted"
        return RookeryError("invalid-input", message, "to remove the project from Rookery: rookery project remove")
    if check.inside:
        inner = ", ".join(str(path) for path in check.inside)
        return RookeryError(
            "workspace-not-clean",
            f"{workspace.name} contains other checkouts: {inner}",
            "delete or move those first",
            [str(path) for path in check.inside],
        )
    if force:
        return None
    reasons: list[str] = []
    details: list[str] = []
    if check.worktree.locked is not None:
        details.append(f"it is locked ({check.worktree.locked or 'no reason given'})")
        reasons += details
    if check.changes is not None and check.changes.is_dirty:
        details += check.changes.format_short()
        reasons.append("changes that are not committed:" + _format_lines(check.changes.format_short()))
    # A branch that is kept keeps its commits.
    if check.unmerged and not (keep_branch and check.worktree.branch is not None):
        details += check.unmerged
        reasons.append("commits that are not merged:" + _format_lines(check.unmerged))
    if not reasons:
        return None
    return RookeryError(
        "workspace-not-clean",
        f"{workspace.name} has " + "\nand ".join(reasons),
        "commit and merge, or force the deletion: the folder and the branch are kept in the trash",
        details[:_MAX_DETAILS],
    )


def _format_lines(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - _MAX_LINES_SHOWN} more"] if len(lines) > _MAX_LINES_SHOWN else []
    return "".join(f"\n  {line}" for line in [*lines[:_MAX_LINES_SHOWN], *more])


async def _read_changes(git: Git, path: Path, *, exists: bool) -> WorktreeChanges | None:
    return await read_changes(git, path) if exists else None


async def _resolve_base(git: Git, checkout: Path, base: str | None) -> BaseCommit | None:
    return await resolve_base(git, checkout, base or await find_default_base_name(git, checkout))


async def _find_unmerged(
    git: Git,
    checkout: Path,
    head: str | None,
    base: tuple[str, BaseCommit] | None,
    worktrees: Sequence[Worktree],
) -> tuple[tuple[str, ...], MergedWork | None]:
    """Return the commits that exist nowhere else, as lines, or the branch that has the work."""
    if head is None:
        return (), None
    branches = await list_remaining_branches(git, checkout, worktrees)
    merged = await find_merged_work(git, checkout, head, base, branches)
    if merged is not None:
        return (), merged
    excluded = {branch.commit for branch in branches} | ({base[1].commit} if base is not None else set[str]())
    lines = "\n".join([head, *(f"^{commit}" for commit in sorted(excluded)), ""])
    arguments = ("log", "--format=%h %s", "--max-count=1000", "--stdin")
    result = await git.run(checkout, *arguments, input=lines.encode("ascii"))
    if result.returncode != 0:
        raise git_error(checkout, "log", result)
    return tuple(result.stdout.decode("utf-8", "replace").splitlines()), None


async def _read_branch_config(git: Git, checkout: Path, located: LocatedWorkspace) -> tuple[tuple[str, str], ...]:
    """Return the repository's config for the branch, which git deletes with the branch."""
    if located.worktree.branch is None:
        return ()
    prefix = f"branch.{located.worktree.branch}."
    result = await git.run(checkout, "config", "--local", "--list", "-z")
    entries = [entry.partition("\n") for entry in os.fsdecode(result.stdout).split("\0")]
    return tuple((key, value) for key, _, value in entries if key.startswith(prefix) and _is_text(key + value))


def _is_text(text: str) -> bool:
    return text.isprintable() or not any("\ud800" <= character <= "\udfff" for character in text)
