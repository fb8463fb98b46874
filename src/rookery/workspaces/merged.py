"""Whether the work of a branch is in its base already, however it came there."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.system.git import Git
from rookery.workspaces.history import Against, find_against, measure, unmerged
from rookery.workspaces.listing import Found
from rookery.workspaces.status import read_changes

# By ancestry; because merging would change nothing (squashed); because each commit was picked or rebased.
How = Literal["merged", "same-content", "picked"]
_LARGEST = 16 * 2**20


async def how_merged(git: Git, checkout: Path, head: str, base: Against) -> How | None:
    pair = (head, base.commit)
    measured = await measure(git, checkout, head, base)
    if pair not in measured.distances:
        return None
    ahead, _ = measured.distances[pair]
    if ahead == 0:
        return "merged"
    if unmerged(measured, pair, base) == 0:
        return "same-content"
    # A plus marks a commit whose change the base does not have.
    compared = await git.run(checkout, "cherry", base.commit, head)
    lines = compared.stdout.decode("ascii", "replace").splitlines()
    # Merge commits are in no answer of git cherry: with one among them, that says too little.
    everything = compared.returncode == 0 and len(lines) == ahead
    return "picked" if everything and all(line.startswith("- ") for line in lines) else None


async def merged_workspaces(git: Git, found: Iterable[Found], bases: Mapping[Path, str]) -> list[tuple[Found, How]]:
    """Those that may go: ready, clean, unlocked, and with work that is merged. One without any work has just begun."""
    ready = [one for one in found if one.workspace.state == "ready" and not one.workspace.main]
    each = await asyncio.gather(*(_judged(git, one, bases.get(one.workspace.path)) for one in ready))
    return [(one, how) for one, how in zip(ready, each, strict=True) if how is not None]


async def _judged(git: Git, found: Found, base: str | None) -> How | None:
    checkout, head = Path(found.workspace.project.path), found.worktree.head
    if base is None or head is None or found.worktree.locked is not None or not _has_begun(found.own):
        return None
    against = await find_against(git, checkout, base)
    how = await how_merged(git, checkout, head, against) if against is not None else None
    if how is None:
        return None
    try:
        return None if (await read_changes(git, found.workspace.path)).dirty else how
    except RookeryError:
        return None


def _has_begun(own: Path) -> bool:
    """Whether its head has ever moved. Each line of the reflog names where it was and where it went."""
    try:
        lines = read_plain(own / "logs" / "HEAD", _LARGEST).splitlines()
    except OSError:
        return True
    return len({line.split(b" ", 2)[1] for line in lines if line.count(b" ") > 1}) > 1
