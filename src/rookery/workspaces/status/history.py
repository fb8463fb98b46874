"""Compare heads with their bases: distances, trial merges, and the branches that contain a commit.

The distances of all worktrees of a repository take one walk through the history, and trial merges change no worktree.

Remaining branches are those that stay when a workspace is deleted: all that belong to no linked worktree, which are
other local branches, the branch of the main checkout, and remote-tracking branches. The branch of a workspace does not
count, nor does its copy on a remote: a push is not a merge.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rookery.system.git import Git, git_error
from rookery.workspaces.worktrees import Worktree

# A head and its base, as object names.
CommitPair = tuple[str, str]
Distance = tuple[int, int]

_MERGE_TIMEOUT_SECONDS = 120.0
_LOCAL_PREFIX = "refs/heads/"
_REMOTE_PREFIX = "refs/remotes/"
_BRANCH_FORMAT = "--format=%(objectname)%00%(tree)%00%(symref)%00%(refname)"


async def count_distances(git: Git, checkout: Path, pairs: Iterable[CommitPair]) -> dict[CommitPair, Distance]:
    """Return, for each head and base, the number of commits that only the head has and that only the base has."""
    requested = set(pairs)
    distances = {pair: (0, 0) for pair in requested if pair[0] == pair[1]}
    different = sorted(requested - distances.keys())
    if len(different) > 1:
        distances |= await _count_in_one_walk(git, checkout, different)
    missing = [pair for pair in different if pair not in distances]
    results = await asyncio.gather(*(_count_pair(git, checkout, pair) for pair in missing))
    return distances | {pair: distance for pair, distance in zip(missing, results, strict=True) if distance is not None}


async def _count_in_one_walk(git: Git, checkout: Path, pairs: Sequence[CommitPair]) -> dict[CommitPair, Distance]:
    """Count all pairs in one walk.

    Return an empty dict if they have no common ancestor, or if the history between them is too long.
    """
    tips = sorted({tip for pair in pairs for tip in pair})
    merge_base = await git.run(checkout, "merge-base", "--octopus", *tips)
    if merge_base.returncode != 0:
        return {}
    # Commits that all tips have in common do not affect any difference.
    excluded = f"^{merge_base.stdout.decode('ascii').strip()}"
    history = await git.run(checkout, "rev-list", "--topo-order", "--parents", *tips, excluded)
    if history.returncode != 0 or history.cut:
        return {}
    return await asyncio.to_thread(count_divergence, history.stdout.decode("ascii").splitlines(), pairs)


async def _count_pair(git: Git, checkout: Path, pair: CommitPair) -> Distance | None:
    head, base = pair
    result = await git.run(checkout, "rev-list", "--left-right", "--count", f"{head}...{base}", "--")
    if result.returncode != 0:
        return None
    ahead, behind = result.stdout.split()
    return int(ahead), int(behind)


def count_divergence(lines: Iterable[str], pairs: Sequence[CommitPair]) -> dict[CommitPair, Distance]:
    """Return, for each pair, the commits that only the one and only the other tip reaches.

    `lines` are commits with their parents, children first.
    """
    tips = sorted({tip for pair in pairs for tip in pair})
    indexes = {tip: index for index, tip in enumerate(tips)}
    reached = count_reached_commits(lines, tips)
    return {pair: _compute_distance(reached, indexes[pair[0]], indexes[pair[1]]) for pair in pairs}


def count_reached_commits(lines: Iterable[str], tips: Sequence[str]) -> dict[int, int]:
    """Count commits by the set of tips that reach them. A set is a mask with the bit of each tip's index.

    Most commits are reached by the same few sets, so counts per set are kept instead of the commits.
    """
    reached_by = {tip: 1 << index for index, tip in enumerate(tips)}
    counts: dict[int, int] = {}
    for line in lines:
        commit, *parents = line.split()
        mask = reached_by.get(commit, 0)
        counts[mask] = counts.get(mask, 0) + 1
        for parent in parents:
            reached_by[parent] = reached_by.get(parent, 0) | mask
    return counts


def _compute_distance(counts: Mapping[int, int], head: int, base: int) -> Distance:
    ahead = sum(count for mask, count in counts.items() if mask >> head & 1 and not mask >> base & 1)
    behind = sum(count for mask, count in counts.items() if mask >> base & 1 and not mask >> head & 1)
    return ahead, behind


class TrialMerge(msgspec.Struct, frozen=True):
    """The result of a trial merge: the tree, and the paths that conflict."""

    tree: str
    conflicts: tuple[str, ...]


async def try_merges(git: Git, checkout: Path, pairs: Iterable[CommitPair]) -> dict[CommitPair, TrialMerge]:
    """Merge each head into its base, all in one process. Pairs without a common ancestor have no result.

    Git keeps the trees as loose objects until its housekeeping. The result for two commits never changes, so callers
    can keep it.
    """
    remaining = sorted(set(pairs))
    results: dict[CommitPair, TrialMerge] = {}
    while remaining:
        lines = b"".join(f"{base} {head}\n".encode("ascii") for head, base in remaining)
        output = await git.run(
            checkout,
            "merge-tree",
            "--stdin",
            "--name-only",
            "--no-messages",
            input=lines,
            timeout=_MERGE_TIMEOUT_SECONDS,
        )
        merges = list(parse_merges(output.stdout))
        results |= zip(remaining, merges, strict=False)
        # Git stops at the first pair that it cannot merge.
        remaining = remaining[len(merges) + 1 :]
    return results


def parse_merges(output: bytes) -> Iterator[TrialMerge]:
    """Parse the output of `git merge-tree --stdin --name-only --no-messages`, in the order of the input.

    Each record has a digit, the tree, the paths in conflict, and an empty field.
    """
    fields = iter(output.split(b"\0"))
    for digit in fields:
        if digit not in (b"0", b"1"):
            return
        tree = next(fields, b"").decode("ascii")
        yield TrialMerge(tree, tuple(os.fsdecode(path) for path in iter(lambda: next(fields, b""), b"")))


class BaseCommit(msgspec.Struct, frozen=True):
    """The commit that a base refers to now, and the tree of that commit."""

    commit: str
    tree: str


class RepositoryHistory(msgspec.Struct):
    """The measured history of a repository. Distances and merges are between commits, so they never become stale."""

    bases: dict[str, BaseCommit]
    heads: dict[Path, str]
    distances: dict[CommitPair, Distance]
    merges: dict[CommitPair, TrialMerge]
    # For heads that are ahead of their base: the number of their commits that no remaining branch has, and the branch
    # that has all of them.
    outside: dict[str, int] = {}
    containing: dict[str, str] = {}
    worktrees: list[Worktree] = []


async def resolve_base(git: Git, checkout: Path, base: str) -> BaseCommit | None:
    """Return the commit that a base names; None if it names none.

    The base comes from metadata, which may contain anything.
    """
    if base.startswith("-") or not base.isprintable():
        return None
    result = await git.run(checkout, "rev-parse", "--quiet", "--revs-only", f"{base}^{{commit}}", f"{base}^{{tree}}")
    object_names = result.stdout.decode("ascii", "replace").split()
    return BaseCommit(*object_names) if result.returncode == 0 and len(object_names) == 2 else None


async def measure_head(git: Git, checkout: Path, head: str, base: BaseCommit) -> RepositoryHistory:
    """Measure how one head relates to its base, with git and without a cache."""
    measured = RepositoryHistory({}, {}, {}, {})
    await measure_pairs(git, checkout, measured, {(head, base.commit)})
    return measured


def count_unmerged(measured: RepositoryHistory, pair: CommitPair, base: BaseCommit) -> int:
    """Return the number of commits of a head that its base does not have; 0 if merging would change nothing."""
    merge = measured.merges.get(pair)
    return 0 if merge is not None and merge.tree == base.tree else measured.distances.get(pair, (0, 0))[0]


async def measure_pairs(git: Git, checkout: Path, measured: RepositoryHistory, pairs: set[CommitPair]) -> None:
    """Measure the pairs that are not known yet, and drop those that are no longer a current head and base."""
    heads = set(measured.heads.values())
    bases = {base.commit for base in measured.bases.values()}
    kept = {
        pair: distance
        for pair, distance in measured.distances.items()
        if pair in pairs or (pair[0] in heads and pair[1] in bases)
    }
    measured.distances = kept | await count_distances(git, checkout, pairs - kept.keys())
    diverged = {pair for pair, distance in measured.distances.items() if all(distance)}
    merged = {pair: merge for pair, merge in measured.merges.items() if pair in diverged}
    measured.merges = merged | await try_merges(git, checkout, diverged - merged.keys())


class Branch(msgspec.Struct, frozen=True):
    """A remaining branch, with its name for users: `main`, `origin/main`."""

    name: str
    commit: str
    tree: str


async def list_remaining_branches(git: Git, checkout: Path, worktrees: Iterable[Worktree]) -> list[Branch]:
    """Return the remaining branches, the default ones first, then by the time of the last commit."""
    worktrees = list(worktrees)
    taken = {worktree.branch for worktree in worktrees if worktree.branch is not None and not worktree.main}
    output = await git.output(
        checkout, "for-each-ref", "--sort=-committerdate", _BRANCH_FORMAT, _LOCAL_PREFIX, _REMOTE_PREFIX
    )
    branches: list[Branch] = []
    for line in os.fsdecode(output).split("\n"):
        commit, tree, symref, ref = line.split("\0") if line.count("\0") == 3 else ("", "", "", "")
        # A ref that is no commit has no tree; HEAD of a remote only names another branch.
        if tree and not symref and not _is_taken(ref, taken):
            branches.append(Branch(ref.removeprefix(_LOCAL_PREFIX).removeprefix(_REMOTE_PREFIX), commit, tree))
    current = next((worktree.branch for worktree in worktrees if worktree.main), None)
    return sorted(branches, key=lambda branch: not is_default_branch(branch, current))


def is_default_branch(branch: Branch, current: str | None) -> bool:
    """Return whether a branch is that of the main checkout, or has the same name on a remote."""
    return current is not None and (branch.name == current or branch.name.partition("/")[2] == current)


def _is_taken(ref: str, worktree_branches: set[str]) -> bool:
    """Return whether a branch, or its copy on a remote, belongs to a worktree.

    Names of remotes may contain slashes.
    """
    if ref.startswith(_LOCAL_PREFIX):
        return ref.removeprefix(_LOCAL_PREFIX) in worktree_branches
    parts = ref.removeprefix(_REMOTE_PREFIX).split("/")
    return any("/".join(parts[start:]) in worktree_branches for start in range(1, len(parts)))


async def count_commits_outside(
    git: Git, checkout: Path, heads: Iterable[str], branches: Sequence[Branch]
) -> dict[str, int]:
    """Count, for each head, its commits that none of the branches has, in one walk."""
    heads = sorted(set(heads))
    if not heads or not branches:
        return {}
    lines = [*heads, *(f"^{commit}" for commit in sorted({branch.commit for branch in branches}))]
    arguments = ("rev-list", "--topo-order", "--parents", "--stdin")
    history = await git.run(checkout, *arguments, input="\n".join([*lines, ""]).encode("ascii"))
    if history.returncode != 0:
        raise git_error(checkout, "rev-list", history)
    if history.cut:
        return {}
    reached = count_reached_commits(history.stdout.decode("ascii").splitlines(), heads)
    return {head: _count_reached_by(reached, index) for index, head in enumerate(heads)}


def _count_reached_by(counts: Mapping[int, int], number: int) -> int:
    return sum(count for mask, count in counts.items() if mask >> number & 1)


async def find_containing_branch(git: Git, checkout: Path, head: str, branches: Sequence[Branch]) -> Branch | None:
    """Return the first of these branches that contains a commit."""
    arguments = ("for-each-ref", f"--contains={head}", "--format=%(refname)", _LOCAL_PREFIX, _REMOTE_PREFIX)
    refs = os.fsdecode(await git.output(checkout, *arguments)).splitlines()
    names = {ref.removeprefix(_LOCAL_PREFIX).removeprefix(_REMOTE_PREFIX) for ref in refs}
    return next((branch for branch in branches if branch.name in names), None)
