"""What git ignores beneath a folder, asked of git itself. The answers only ever take names away from a listing."""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.git import Git, failed

# Of `check-ignore`: some are ignored, none is.
_FINE = (0, 1)
# As much as git prints for a million files.
_MOST_BYTES = 64 * 2**20
# From so many names on, it costs less if git looks itself at all that is there.
_MANY = 5000


class Tracked:
    """The paths that git tracks. None of them is ignored, nor is a folder on the way to one."""

    def __init__(self, paths: list[str]) -> None:
        self.files = frozenset(paths)
        # As git sorts them, but for names that are no text.
        self._sorted = sorted(paths)

    def has_folder(self, path: str) -> bool:
        within = f"{path}/"
        place = bisect_left(self._sorted, within)
        return place < len(self._sorted) and self._sorted[place].startswith(within)


class Ignoring:
    """All paths, given and answered, begin with `prefix`, which leads to the folder."""

    def __init__(self, git: Git, folder: Path, prefix: str) -> None:
        self._git, self._folder, self._prefix = git, folder, prefix
        self.tracked = Tracked([])
        self._knows_tracked = False
        self._all: frozenset[str] | None = None

    async def learn_tracked(self) -> None:
        """Git need not look at any file for that."""
        if not self._knows_tracked:
            listed = await self._run("ls-files", "-z")
            self.tracked = await asyncio.to_thread(lambda: Tracked(_split(listed, self._prefix)))
            self._knows_tracked = True

    def forget(self) -> None:
        """Ask anew the next time."""
        self.tracked, self._knows_tracked, self._all = Tracked([]), False, None

    async def among(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of the paths that are ignored. What is known to be tracked must not be among them."""
        if len(paths) > _MANY and self._knows_tracked and self._all is None:
            listed = await self._run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
            self._all = frozenset(ignored_paths(_split(listed, self._prefix)))
        if self._all is not None:
            return self._all
        # Git compares each name with the whole index. So it is asked about the patterns alone first: few are left then.
        matching = await self._checked(paths, "--no-index")
        return matching if self._knows_tracked else await self._checked(sorted(matching))

    async def _checked(self, paths: Sequence[str], *options: str) -> frozenset[str]:
        if not paths:
            return frozenset()
        asked = os.fsencode("".join(f"./{path.removeprefix(self._prefix)}\0" for path in paths))
        printed = await self._run("check-ignore", "-z", "--stdin", *options, input=asked)
        return frozenset(self._prefix + path.removeprefix("./") for path in _split(printed))

    async def _run(self, command: str, *options: str, input: bytes | None = None) -> bytes:
        ran = await self._git.run(self._folder, command, *options, input=input, limit=_MOST_BYTES)
        if ran.returncode not in (_FINE if command == "check-ignore" else (0,)):
            raise failed(self._folder, command, ran)
        if ran.cut:
            raise RookeryError(
                "limit-reached", "there are more files here than git can tell apart", "list a folder further down"
            )
        return ran.stdout


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


def _split(printed: bytes, prefix: str = "") -> list[str]:
    """The paths that git printed, each with the prefix."""
    text = os.fsdecode(printed.removesuffix(b"\0"))
    return (prefix + text.replace("\0", f"\0{prefix}") if prefix else text).split("\0") if printed else []
