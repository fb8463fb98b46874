"""What would conflict if a head were merged into its base, found without touching any worktree."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from rookery.system.git import Git
from rookery.workspaces.divergence import Pair

_MERGE_SECONDS = 120.0


class Merge(msgspec.Struct, frozen=True):
    """A merge that was tried: the tree it gives, and the paths that conflict."""

    tree: str
    conflicts: tuple[str, ...]


async def try_merges(git: Git, checkout: Path, pairs: Iterable[Pair]) -> dict[Pair, Merge]:
    """Merge each head into its base, all in one process; histories without a common past have no answer.

    Git keeps the trees as loose objects until its housekeeping. What two commits give never changes, so that callers
    keep the answer and ask once.
    """
    left = sorted(set(pairs))
    found: dict[Pair, Merge] = {}
    while left:
        lines = b"".join(f"{base} {head}\n".encode("ascii") for head, base in left)
        tried = await git.run(
            checkout, "merge-tree", "--stdin", "--name-only", "--no-messages", input=lines, timeout=_MERGE_SECONDS
        )
        merges = list(parse_merges(tried.stdout))
        found |= zip(left, merges, strict=False)
        # It ends at the first pair that it cannot merge.
        left = left[len(merges) + 1 :]
    return found


def parse_merges(printed: bytes) -> Iterator[Merge]:
    """The answers of `git merge-tree --stdin --name-only --no-messages`, in the order of the questions.

    Each is: a digit, the tree, the paths in conflict, and an empty field.
    """
    fields = iter(printed.split(b"\0"))
    for digit in fields:
        if digit not in (b"0", b"1"):
            return
        tree = next(fields, b"").decode("ascii")
        yield Merge(tree, tuple(os.fsdecode(path) for path in iter(lambda: next(fields, b""), b"")))
