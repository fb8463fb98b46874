"""The entries of a folder and of its folders, in a stable order, as many as are wanted and never more."""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Literal

from rookery.files.secrets import Denied
from rookery.system.beneath import FOLDER, Beneath

Type = Literal["file", "folder", "link", "other"]
Names = tuple[str, ...]

# What may become of a folder between two looks at it. Its entries are left out then.
_PASSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Found:
    """`names` lead to it from the root; `denied` says why it may not be read, if so."""

    names: Names
    type: Type
    size: int | None
    denied: str


@dataclass(frozen=True)
class Walk:
    """`keep` is asked with the names from `start` on; `after` is the last one of the page before."""

    beneath: Beneath
    denied: Denied
    start: Names
    depth: int
    after: Names = ()
    keep: Callable[[Names], bool] = lambda names: True

    def first(self, limit: int) -> list[Found]:
        """The first so many, in the order of their names, what a folder holds right after it. Closes its descriptor."""
        try:
            return list(islice(self._folder((), limit), limit))
        finally:
            os.close(self.beneath.folder)

    def _folder(self, way: Names, limit: int) -> Iterator[Found]:
        level = len(way)
        # The folder in which the last page ended is entered again, though not told again.
        least = self.after[level] if way == self.after[:level] and level < len(self.after) else ""
        for found in self._scan(way, least, limit + 1):
            here = found.names[len(self.start) :]
            passed = here <= self.after
            if not passed:
                yield found
            enters = found.type == "folder" and not found.denied and level + 1 < self.depth
            if enters and (not passed or here == self.after[: level + 1]):
                yield from self._folder(here, limit)

    def _scan(self, way: Names, least: str, limit: int) -> list[Found]:
        try:
            folder = self.beneath.open_linkless((*self.start, *way), FOLDER)
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return []
        try:
            entries: list[os.DirEntry[str]] = []
            with os.scandir(folder) as listed:
                for entry in listed:
                    if way and entry.name == ".git":
                        return []  # a repository of its own, with rules of its own
                    if entry.name >= least and self.keep((*way, entry.name)):
                        entries.append(entry)
                        if len(entries) > 4 * limit + 1000:
                            entries = sorted(entries, key=attrgetter("name"))[:limit]
            entries.sort(key=attrgetter("name"))
            return [self._found(way, entry) for entry in entries[:limit]]
        finally:
            os.close(folder)

    def _found(self, way: Names, entry: os.DirEntry[str]) -> Found:
        names = (*self.start, *way, entry.name)
        kind = _type(entry)
        denied = self.denied.entry(names, is_folder=kind == "folder")
        return Found(names, kind, _size(entry) if kind == "file" and not denied else None, denied)


def _type(entry: os.DirEntry[str]) -> Type:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _size(entry: os.DirEntry[str]) -> int | None:
    """None for a file that has gone in the meantime."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return None
