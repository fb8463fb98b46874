"""What git ignores in a folder, asked of git itself. The answers only ever take names away from a listing."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.git import Git, failed

# Of `check-ignore`: some are ignored, none is.
_FINE = (0, 1)


async def ignored_among(git: Git, folder: Path, names: Sequence[str]) -> frozenset[str]:
    """Those of the names in one folder that git ignores; what is tracked is not ignored."""
    # Git compares each name with the whole index. So it is asked about the patterns alone first: few are left then.
    matching = await _checked(git, folder, names, "--no-index")
    return await _checked(git, folder, sorted(matching))


async def _checked(git: Git, folder: Path, names: Sequence[str], *options: str) -> frozenset[str]:
    if not names:
        return frozenset()
    asked = b"".join(b"./" + os.fsencode(name) + b"\0" for name in names)
    ran = await git.run(folder, "check-ignore", "-z", "--stdin", *options, input=asked)
    if ran.returncode not in _FINE:
        raise failed(folder, "check-ignore", ran)
    _check_whole(ran.cut)
    return frozenset(os.fsdecode(name.removeprefix(b"./")) for name in ran.stdout.split(b"\0") if name)


async def ignored_beneath(git: Git, folder: Path) -> frozenset[str]:
    """All that git ignores in a folder and its folders, by path from there; of an ignored folder only itself."""
    ran = await git.run(folder, "ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
    if ran.returncode != 0:
        raise failed(folder, "ls-files", ran)
    _check_whole(ran.cut)
    return frozenset(ignored_paths(os.fsdecode(path) for path in ran.stdout.split(b"\0") if path))


def ignored_paths(listed: Iterable[str]) -> Iterator[str]:
    """The ignored ones of what `ls-files -o -i --directory` prints.

    A folder of which only the content is ignored stands there too, right before that content.
    """
    before = ""
    for path in listed:
        if before and not path.startswith(before):
            yield before.removesuffix("/")
        before = path if path.endswith("/") else ""
        if not before:
            yield path
    if before:
        yield before.removesuffix("/")


def _check_whole(cut: int) -> None:
    if cut:
        raise RookeryError(
            "limit-reached", "git ignores more files here than can be told apart", "list a folder further down"
        )
