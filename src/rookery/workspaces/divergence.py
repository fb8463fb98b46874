"""How far heads are ahead of and behind their bases: of all worktrees of a repository with one walk through history."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rookery.system.git import Git

# A head and its base, as object names.
Pair = tuple[str, str]
Distance = tuple[int, int]


async def distances(git: Git, checkout: Path, pairs: Iterable[Pair]) -> dict[Pair, Distance]:
    """For each head and base: the commits that only the head has, and those that only the base has."""
    wanted = set(pairs)
    found = {pair: (0, 0) for pair in wanted if pair[0] == pair[1]}
    apart = sorted(wanted - found.keys())
    if len(apart) > 1:
        found |= await _together(git, checkout, apart)
    missing = [pair for pair in apart if pair not in found]
    each = await asyncio.gather(*(_alone(git, checkout, pair) for pair in missing))
    return found | {pair: one for pair, one in zip(missing, each, strict=True) if one is not None}


async def _together(git: Git, checkout: Path, pairs: Sequence[Pair]) -> dict[Pair, Distance]:
    """One walk for all of them; nothing where they share no past, or where it is too long for that."""
    tips = sorted({tip for pair in pairs for tip in pair})
    shared = await git.run(checkout, "merge-base", "--octopus", *tips)
    if shared.returncode != 0:
        return {}
    # What all of them have in common adds nothing to any difference.
    excluded = f"^{shared.stdout.decode('ascii').strip()}"
    walked = await git.run(checkout, "rev-list", "--topo-order", "--parents", *tips, excluded)
    if walked.returncode != 0 or walked.cut:
        return {}
    return await asyncio.to_thread(count, walked.stdout.decode("ascii").splitlines(), pairs)


async def _alone(git: Git, checkout: Path, pair: Pair) -> Distance | None:
    head, base = pair
    counted = await git.run(checkout, "rev-list", "--left-right", "--count", f"{head}...{base}", "--")
    if counted.returncode != 0:
        return None
    ahead, behind = counted.stdout.split()
    return int(ahead), int(behind)


def count(lines: Iterable[str], pairs: Sequence[Pair]) -> dict[Pair, Distance]:
    """From commits with their parents, children first: for each pair, what only one and only the other reaches."""
    numbers = {tip: number for number, tip in enumerate(sorted({tip for pair in pairs for tip in pair}))}
    reached_by = {tip: 1 << number for tip, number in numbers.items()}
    # Most commits are reached by the same few sets of tips; those are counted, not the commits.
    seen: dict[int, int] = {}
    for line in lines:
        commit, *parents = line.split()
        mask = reached_by.get(commit, 0)
        seen[mask] = seen.get(mask, 0) + 1
        for parent in parents:
            reached_by[parent] = reached_by.get(parent, 0) | mask
    return {pair: _distance(seen, numbers[pair[0]], numbers[pair[1]]) for pair in pairs}


def _distance(seen: Mapping[int, int], head: int, base: int) -> Distance:
    ahead = sum(times for mask, times in seen.items() if mask >> head & 1 and not mask >> base & 1)
    behind = sum(times for mask, times in seen.items() if mask >> base & 1 and not mask >> head & 1)
    return ahead, behind
