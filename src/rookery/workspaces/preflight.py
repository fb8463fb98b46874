"""What a deletion would take away, asked of git at that moment and of no cache, and whether that is refused."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.base import default_name
from rookery.workspaces.changes import Changes
from rookery.workspaces.history import Against, find_against
from rookery.workspaces.listing import Found
from rookery.workspaces.merged import how_merged
from rookery.workspaces.status import read_changes
from rookery.workspaces.worktrees import Worktree, list_worktrees

_SHOWN = 20
_MOST_DETAILS = 1000


class Findings(msgspec.Struct, frozen=True):
    """`unmerged` are the commits that the base does not have, as lines; `inside` the checkouts that lie in this one."""

    found: Found
    worktree: Worktree
    changes: Changes | None
    unmerged: tuple[str, ...]
    inside: tuple[Path, ...]
    # Whether another worktree has the same branch.
    shared: bool
    config: tuple[tuple[str, str], ...]


async def examine(git: Git, found: Found, base: str | None, roots: Sequence[Path] = ()) -> Findings:
    """All that the decision needs. A workspace whose folder is missing has no changes; `roots` are of all projects."""
    checkout, path = Path(found.workspace.project.path), found.workspace.path
    there = found.workspace.state != "missing"
    listed, changes, config, against = await asyncio.gather(
        list_worktrees(git, checkout),
        _changes(git, path, there=there),
        _branch_config(git, checkout, found),
        _against(git, checkout, base),
    )
    worktree = next((one for one in listed if one.path == found.worktree.path), found.worktree)
    others = [one for one in listed if one.path != worktree.path]
    return Findings(
        found=found,
        worktree=worktree,
        changes=changes,
        unmerged=await _unmerged(git, checkout, worktree.head, against),
        inside=tuple(dict.fromkeys(one for one in (*(one.path for one in others), *roots) if path in one.parents)),
        shared=worktree.branch is not None and any(one.branch == worktree.branch for one in others),
        config=config,
    )


def refusal(findings: Findings, *, force: bool, keep_branch: bool) -> RookeryError | None:
    """Why this deletion does not happen. Force overrides what the trash keeps, never what would break others."""
    workspace = findings.found.workspace
    if workspace.main or findings.worktree.main:
        return RookeryError("invalid-input", f"{workspace.path} is the main checkout, which is never deleted")
    if findings.inside:
        inner = ", ".join(str(path) for path in findings.inside)
        return RookeryError(
            "workspace-not-clean",
            f"other checkouts lie in {workspace.name}: {inner}",
            "delete or move those first",
            [str(path) for path in findings.inside],
        )
    if force:
        return None
    reasons: list[str] = []
    details: list[str] = []
    if findings.worktree.locked is not None:
        details.append(f"it is locked ({findings.worktree.locked or 'no reason given'})")
        reasons += details
    if findings.changes is not None and findings.changes.dirty:
        details += findings.changes.listed()
        reasons.append("changes that are not committed:" + _lines(findings.changes.listed()))
    # A branch that stays keeps its commits.
    if findings.unmerged and not (keep_branch and findings.worktree.branch is not None):
        details += findings.unmerged
        reasons.append("commits that are not merged:" + _lines(findings.unmerged))
    if not reasons:
        return None
    return RookeryError(
        "workspace-not-clean",
        f"{workspace.name} has " + "\nand ".join(reasons),
        "commit and merge, or force it: the folder and the branch are kept in the trash",
        details[:_MOST_DETAILS],
    )


def _lines(found: Sequence[str]) -> str:
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return "".join(f"\n  {line}" for line in [*found[:_SHOWN], *more])


async def _changes(git: Git, path: Path, *, there: bool) -> Changes | None:
    return await read_changes(git, path) if there else None


async def _against(git: Git, checkout: Path, base: str | None) -> Against | None:
    return await find_against(git, checkout, base or await default_name(git, checkout))


async def _unmerged(git: Git, checkout: Path, head: str | None, against: Against | None) -> tuple[str, ...]:
    if head is None:
        return ()
    if against is not None and await how_merged(git, checkout, head, against) is not None:
        return ()
    # Without a base to compare with, what no remote has counts.
    excluded = [f"^{against.commit}"] if against is not None else ["--not", "--remotes"]
    listed = await git.told(checkout, "log", "--format=%h %s", "--max-count=1000", head, *excluded, "--")
    return tuple(listed.decode("utf-8", "replace").splitlines())


async def _branch_config(git: Git, checkout: Path, found: Found) -> tuple[tuple[str, str], ...]:
    """What the repository's config says of the branch; git forgets it with the branch."""
    if found.worktree.branch is None:
        return ()
    prefix = f"branch.{found.worktree.branch}."
    ran = await git.run(checkout, "config", "--local", "--list", "-z")
    entries = [entry.partition("\n") for entry in os.fsdecode(ran.stdout).split("\0")]
    return tuple((key, value) for key, _, value in entries if key.startswith(prefix) and _is_text(key + value))


def _is_text(text: str) -> bool:
    return text.isprintable() or not any("\ud800" <= character <= "\udfff" for character in text)
