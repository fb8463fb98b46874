"""What git ignores beneath a folder, asked of git itself. The answers only ever take names away from a listing."""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path

from rookery.files.entries import is_plain
from rookery.system.errors import RookeryError
from rookery.system.git import Git, failed
from rookery.system.git_index import Mark, mark_of_index

# Of `check-ignore`: some are ignored, none is.
_FINE = (0, 1)
# As much as git prints for a million files.
_MOST_BYTES = 64 * 2**20
# From so many names on, it costs less if git looks itself at all that is there.
_MANY = 5000
_MOST_KEPT = 8 * 2**20
# How far from the last path the next one is looked for before all are sorted.
_NEAR = 8192


class Tracked:
    """The paths that git tracks, as it prints them. None of them is ignored, nor is a folder on the way to one.

    They are asked for in nearly the order in which they stand here, so that each is looked for where the last one was.
    """

    def __init__(self, printed: bytes = b"", prefix: str = "") -> None:
        text = os.fsdecode(printed.removesuffix(b"\0"))
        self._text = f"\0{prefix}" + text.replace("\0", f"\0{prefix}") + "\0" if text else ""
        self._place = 0

    def from_the_top(self) -> "Tracked":
        """For another listing, which has a place of its own."""
        # What takes long to find out is found out once.
        _ = self.is_plain
        other = copy(self)
        other._place = 0
        return other

    def __len__(self) -> int:
        """About how many bytes it holds."""
        return len(self._text)

    def has_all(self, prefix: str, names: Sequence[str]) -> bool:
        """Whether all these files of one folder are there; for an answer without a look at each."""
        between = f"\0{prefix}"
        wanted = f"{between}{between.join(names)}\0"
        if self._find(wanted, f"\0{prefix}{names[0]}\0"):
            self._place += len(wanted) - 1
            return True
        return all(self.has_file(prefix + name) for name in names)

    def has_file(self, path: str) -> bool:
        place = bisect_left(self._sorted, path)
        return self._sorted[place : place + 1] == [path]

    def has_folder(self, path: str) -> bool:
        within = f"{path}/"
        if self._find(f"\0{within}", f"\0{within}"):
            return True
        place = bisect_left(self._sorted, within)
        found = any(path.startswith(within) for path in self._sorted[place : place + 1])
        if found:
            # What it holds is asked for next.
            self._place = self._text.find(f"\0{within}")
        return found

    def _find(self, wanted: str, beginning: str) -> bool:
        """Whether it stands at our place or near, which is our place from then on."""
        if self._text.startswith(wanted, self._place):
            return True
        found = self._text.find(beginning, max(self._place - _NEAR, 0), self._place + _NEAR)
        if found < 0 or not self._text.startswith(wanted, found):
            return False
        self._place = found
        return True

    @cached_property
    def is_plain(self) -> bool:
        """Whether all of them stand in JSON as they are."""
        return is_plain(self._text.replace("\0", ""))

    @cached_property
    def _sorted(self) -> list[str]:
        # As they are, but for names that are no text.
        return sorted(self._text[1:-1].split("\0")) if self._text else []


class TrackedOnce:
    """What git said last about one folder, for as long as its index stays the same."""

    def __init__(self) -> None:
        self._known: tuple[Path, Mark, Tracked] | None = None

    def get(self, folder: Path, mark: Mark | None) -> Tracked | None:
        known = self._known
        return known[2] if known is not None and mark is not None and known[:2] == (folder, mark) else None

    def put(self, folder: Path, mark: Mark | None, tracked: Tracked) -> None:
        self._known = (folder, mark, tracked) if mark is not None and len(tracked) < _MOST_KEPT else None


class Ignoring:
    """All paths, given and answered, begin with `prefix`, which leads to the folder."""

    def __init__(self, git: Git, folder: Path, prefix: str, once: TrackedOnce) -> None:
        self._git, self._folder, self._prefix, self._once = git, folder, prefix, once
        self.tracked = Tracked()
        self._knows_tracked = False
        self._all: frozenset[str] | None = None

    async def learn_tracked(self) -> None:
        """Git need not look at any file for that."""
        if self._knows_tracked:
            return
        mark = mark_of_index(self._folder)
        tracked = self._once.get(self._folder, mark)
        if tracked is None:
            listed = await self._run("ls-files", "-z")
            tracked = await asyncio.to_thread(Tracked, listed, self._prefix)
            self._once.put(self._folder, mark, tracked)
        self.tracked, self._knows_tracked = tracked.from_the_top(), True

    def forget(self) -> None:
        """Ask anew the next time."""
        self.tracked, self._knows_tracked, self._all = Tracked(), False, None

    async def among(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of the paths that are ignored. What is known to be tracked must not be among them."""
        if len(paths) > _MANY and self._knows_tracked and self._all is None:
            listed = await self._run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
            self._all = frozenset(self._prefix + path for path in ignored_paths(_split(listed)))
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


def _split(printed: bytes) -> list[str]:
    return os.fsdecode(printed.removesuffix(b"\0")).split("\0") if printed else []
