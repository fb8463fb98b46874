"""Determine what git tracks and ignores beneath a folder, by running git."""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path

from rookery.files.entries import is_json_safe
from rookery.system.errors import RookeryError
from rookery.system.git import Git, IndexMark, git_error, read_index_mark

# The exit codes of `check-ignore`: some paths are ignored, none is.
_CHECK_IGNORE_CODES = (0, 1)
# About the output of git for a million files.
_MAX_OUTPUT_BYTES = 64 * 2**20
# From this many names on, it is cheaper if git lists all ignored files itself.
_MANY_NAMES = 5000
_MAX_KEPT_BYTES = 8 * 2**20
# How far from the last path the next one is searched for, before all paths are sorted.
_SEARCH_DISTANCE = 8192


class TrackedFiles:
    """The paths that git tracks, as it prints them. None of them is ignored, nor is a folder that contains one.

    Lookups come in nearly the order of the paths, so that each search starts where the last one ended.
    """

    def __init__(self, output: bytes = b"", prefix: str = "") -> None:
        text = os.fsdecode(output.removesuffix(b"\0"))
        self._text = f"\0{prefix}" + text.replace("\0", f"\0{prefix}") + "\0" if text else ""
        self._position = 0

    def copy_rewound(self) -> "TrackedFiles":
        """Return a copy for another listing, with a search position of its own."""
        # Computed before the copy, so that it is computed only once.
        _ = self.is_plain
        other = copy(self)
        other._position = 0
        return other

    def __len__(self) -> int:
        """Return about how many bytes it holds."""
        return len(self._text)

    def has_all(self, prefix: str, names: Sequence[str]) -> bool:
        """Return whether all these files of one folder are tracked, if possible without a lookup of each."""
        between = f"\0{prefix}"
        wanted = f"{between}{between.join(names)}\0"
        if self._find(wanted, f"\0{prefix}{names[0]}\0"):
            self._position += len(wanted) - 1
            return True
        return all(self.has_file(prefix + name) for name in names)

    def has_file(self, path: str) -> bool:
        """Return whether a file is tracked."""
        index = bisect_left(self._sorted, path)
        return self._sorted[index : index + 1] == [path]

    def has_folder(self, path: str) -> bool:
        """Return whether a folder contains tracked files."""
        within = f"{path}/"
        if self._find(f"\0{within}", f"\0{within}"):
            return True
        index = bisect_left(self._sorted, within)
        is_tracked = any(path.startswith(within) for path in self._sorted[index : index + 1])
        if is_tracked:
            # Its content is looked up next.
            self._position = self._text.find(f"\0{within}")
        return is_tracked

    def _find(self, wanted: str, beginning: str) -> bool:
        """Return whether `wanted` is at or near the search position; if so, move the position there."""
        if self._text.startswith(wanted, self._position):
            return True
        position = self._text.find(
            beginning, max(self._position - _SEARCH_DISTANCE, 0), self._position + _SEARCH_DISTANCE
        )
        if position < 0 or not self._text.startswith(wanted, position):
            return False
        self._position = position
        return True

    @cached_property
    def is_plain(self) -> bool:
        """Whether none of the paths needs escapes in JSON."""
        return is_json_safe(self._text.replace("\0", ""))

    @cached_property
    def _sorted(self) -> list[str]:
        # Git's order is the same, except for undecodable names.
        return sorted(self._text[1:-1].split("\0")) if self._text else []


class TrackedCache:
    """Caches the tracked files of one folder for as long as the index stays the same."""

    def __init__(self) -> None:
        self._entry: tuple[Path, IndexMark, TrackedFiles] | None = None

    def get(self, folder: Path, mark: IndexMark | None) -> TrackedFiles | None:
        """Return the tracked files of a folder if its index still has this mark; else None."""
        entry = self._entry
        return entry[2] if entry is not None and mark is not None and entry[:2] == (folder, mark) else None

    def put(self, folder: Path, mark: IndexMark | None, tracked: TrackedFiles) -> None:
        """Keep the tracked files of a folder, unless there is no mark or they are too large."""
        self._entry = (folder, mark, tracked) if mark is not None and len(tracked) < _MAX_KEPT_BYTES else None


class IgnoreChecker:
    """Checks which paths git ignores. All paths, given and returned, begin with `prefix`, which leads to the folder."""

    def __init__(self, git: Git, folder: Path, prefix: str, cache: TrackedCache) -> None:
        self._git = git
        self._folder = folder
        self._prefix = prefix
        self._cache = cache
        self.tracked = TrackedFiles()
        self._has_tracked = False
        self._all_ignored: frozenset[str] | None = None

    async def load_tracked(self) -> None:
        """Read the tracked files from git, once. Git need not read any file for that."""
        if self._has_tracked:
            return
        mark = read_index_mark(self._folder)
        tracked = self._cache.get(self._folder, mark)
        if tracked is None:
            listed = await self._run("ls-files", "-z")
            tracked = await asyncio.to_thread(TrackedFiles, listed, self._prefix)
            self._cache.put(self._folder, mark, tracked)
        self.tracked = tracked.copy_rewound()
        self._has_tracked = True

    def reset(self) -> None:
        """Drop the results, so that git runs again the next time."""
        self.tracked = TrackedFiles()
        self._has_tracked = False
        self._all_ignored = None

    async def find_ignored(self, paths: Sequence[str]) -> frozenset[str]:
        """Return the ignored ones of the paths, and possibly others. Known tracked paths must not be given."""
        if len(paths) > _MANY_NAMES and self._has_tracked and self._all_ignored is None:
            listed = await self._run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
            self._all_ignored = frozenset(self._prefix + path for path in parse_ignored(_split_output(listed)))
        if self._all_ignored is not None:
            return self._all_ignored
        # Git compares each name with the whole index. So only the patterns are checked first, which leaves few names.
        matching = await self._check_ignore(paths, "--no-index")
        return matching if self._has_tracked else await self._check_ignore(sorted(matching))

    async def _check_ignore(self, paths: Sequence[str], *options: str) -> frozenset[str]:
        if not paths:
            return frozenset()
        stdin = os.fsencode("".join(f"./{path.removeprefix(self._prefix)}\0" for path in paths))
        printed = await self._run("check-ignore", "-z", "--stdin", *options, input=stdin)
        return frozenset(self._prefix + path.removeprefix("./") for path in _split_output(printed))

    async def _run(self, command: str, *options: str, input: bytes | None = None) -> bytes:
        result = await self._git.run(self._folder, command, *options, input=input, limit=_MAX_OUTPUT_BYTES)
        if result.returncode not in (_CHECK_IGNORE_CODES if command == "check-ignore" else (0,)):
            raise git_error(self._folder, command, result)
        if result.cut:
            raise RookeryError("limit-reached", "there are too many files here to check with git", "list a subfolder")
        return result.stdout


def parse_ignored(listed: Iterable[str]) -> Iterator[str]:
    """Yield the ignored paths in the output of `ls-files -o -i --directory`.

    A folder of which only the content is ignored is listed too, right before that content.
    """
    folder = ""
    for path in listed:
        if folder and not path.startswith(folder):
            yield folder.removesuffix("/")
        folder = path if path.endswith("/") else ""
        if not folder:
            yield path
    if folder:
        yield folder.removesuffix("/")


def _split_output(output: bytes) -> list[str]:
    return os.fsdecode(output.removesuffix(b"\0")).split("\0") if output else []
