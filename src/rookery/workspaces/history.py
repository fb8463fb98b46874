"""How heads stand to their bases: distances, merges that were tried, and whether work is merged already."""

from pathlib import Path

import msgspec

from rookery.system.git import Git
from rookery.workspaces.conflicts import Merge, try_merges
from rookery.workspaces.divergence import Distance, Pair, distances


class Against(msgspec.Struct, frozen=True):
    """What a base is now: its commit, and the tree of that."""

    commit: str
    tree: str


class Measured(msgspec.Struct):
    """What is known of a repository's history; of commits, so that it never gets old."""

    bases: dict[str, Against]
    heads: dict[Path, str]
    distances: dict[Pair, Distance]
    merges: dict[Pair, Merge]


async def find_against(git: Git, checkout: Path, base: str) -> Against | None:
    """The commit that a base names; it stands in metadata, where anything may be written."""
    if base.startswith("-") or not base.isprintable():
        return None
    ran = await git.run(checkout, "rev-parse", "--quiet", "--revs-only", f"{base}^{{commit}}", f"{base}^{{tree}}")
    named = ran.stdout.decode("ascii", "replace").split()
    return Against(*named) if ran.returncode == 0 and len(named) == 2 else None


async def measure(git: Git, checkout: Path, head: str, base: Against) -> Measured:
    """How one head stands to its base, asked of git now."""
    measured = Measured({}, {}, {}, {})
    await measure_all(git, checkout, measured, {(head, base.commit)})
    return measured


def unmerged(measured: Measured, pair: Pair, base: Against) -> int:
    """The commits of a head that its base does not have; none, if merging it would change nothing."""
    merge = measured.merges.get(pair)
    return 0 if merge is not None and merge.tree == base.tree else measured.distances.get(pair, (0, 0))[0]


async def measure_all(git: Git, checkout: Path, measured: Measured, pairs: set[Pair]) -> None:
    """Ask about the pairs that are not known, and forget those that are no head and base any more."""
    heads, bases = set(measured.heads.values()), {one.commit for one in measured.bases.values()}
    known = {
        pair: one
        for pair, one in measured.distances.items()
        if pair in pairs or (pair[0] in heads and pair[1] in bases)
    }
    measured.distances = known | await distances(git, checkout, pairs - known.keys())
    diverged = {pair for pair, one in measured.distances.items() if all(one)}
    merged = {pair: one for pair, one in measured.merges.items() if pair in diverged}
    measured.merges = merged | await try_merges(git, checkout, diverged - merged.keys())
