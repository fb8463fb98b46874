"""The entries of a folder and of its folders, in a stable order: a bounded piece at a time, from any place on."""

import errno
import os
from collections.abc import Container, Iterator, Sequence, Set
from itertools import islice, repeat
from typing import Literal

import msgspec

from rookery.files.ignoring import Tracked
from rookery.files.secrets import Denied
from rookery.system.beneath import FOLDER, Beneath

Type = Literal["file", "folder", "link", "other"]
Names = tuple[str, ...]

# What may become of a folder between two looks at it. Its entries are left out then.
_PASSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EPERM)
_AT_ONCE = 4096
_FILES: Iterator[Type] = repeat("file")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """`path` is from the workspace's root, as `read_file` takes it; bytes that are no text stand as `\\xff` in it.

    `denied` says why it may not be read, if so. A link's target is not told: it may lie outside.
    """

    path: str
    type: Type
    size: int | None = None
    denied: str = ""


class Scope(msgspec.Struct, frozen=True):
    """What is listed: a folder, by its names from the root, how deep, whether with hidden names and with sizes."""

    start: Names
    depth: int
    hidden: bool
    sizes: bool


class Walk:
    """One piece of a listing: about as many entries as wanted that come after the names `after`, from `start` on.

    What is not tracked is `unknown` until git was asked whether it is ignored, and `sift` is told. Folders among it are
    entered only then: an ignored one may be larger than all the rest.
    """

    def __init__(self, scope: Scope, denied: Denied, after: Names, most: int, tracked: Tracked) -> None:
        self._scope, self._denied, self._after, self._most, self._tracked = scope, denied, after, most, tracked
        self.entries: list[Entry] = []
        self.unknown: list[str] = []
        # Whether there may be more, which then comes after `last`.
        self.cut = self._full = False
        self._passed = ""
        self._waiting: set[str] = set()

    @property
    def last(self) -> Names:
        return tuple(self._passed.split("/"))[len(self._scope.start) :] if self._passed else self._after

    def begin(self, beneath: Beneath) -> None:
        """Closes the descriptor that it is given."""
        try:
            self._enter(beneath, None, self._scope.start, self._after)
        finally:
            os.close(beneath.folder)
        self.cut = self._full
        self._passed = self.entries[-1].path if self.entries else ""

    def sift(self, ignored: Set[str], beneath: Beneath) -> None:
        """Leave out what is ignored, and enter the folders that waited for it. Closes the descriptor too."""
        found, waiting = self.entries, self._waiting
        self.entries, self.unknown, self._waiting, self._full = [], [], set(), False
        try:
            for entry in found:
                self._passed = entry.path
                if entry.path in ignored:
                    continue
                self.entries.append(entry)
                if entry.path in waiting:
                    self._enter(beneath, None, tuple(entry.path.split("/")), ())
                    self._passed = self.entries[-1].path
                if self._full or len(self.entries) >= self._most:
                    self.cut = True
                    break
        finally:
            os.close(beneath.folder)

    def _enter(self, beneath: Beneath, above: int | None, names: Names, after: Names) -> None:
        """Take in what a folder holds. `above` is the folder that it lies in, if that is open."""
        try:
            folder = beneath.open_linkless(names, FOLDER) if above is None else beneath.enter(above, names[-1])
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return
        try:
            self._take_in(beneath, folder, names, after)
        finally:
            os.close(folder)

    def _take_in(self, beneath: Beneath, folder: int, names: Names, after: Names) -> None:
        inside = names != self._scope.start
        listed, types, whole = _scan(folder, after[0] if after else "", self._scope.hidden, self._most, inside)
        folders = {name for name, type in types.items() if type == "folder"}
        denied = self._denied.among(names, listed, folders)
        deeper = len(names) - len(self._scope.start) + 1 < self._scope.depth
        if after and listed[:1] == [after[0]]:
            # It was told before. What it holds was not, or not all of it.
            told = listed.pop(0)
            if deeper and told in folders and told not in denied:
                self._enter(beneath, folder, (*names, told), after[1:])
                if self._full:
                    return
        prefix = "".join(f"{name}/" for name in names)
        paths = [prefix + name for name in listed]
        sizes = _sizes(folder, listed, types.keys() | denied) if self._scope.sizes else [None] * len(listed)
        tracked = self._tracked.files
        if types or denied:
            for name, path, size in zip(listed, paths, sizes, strict=True):
                why = denied.get(name, "")
                self.entries.append(Entry(path, types.get(name, "file"), size, why))
                if why:
                    continue
                if path in tracked or (name in folders and self._tracked.has_folder(path)):
                    if deeper and name in folders:
                        self._enter(beneath, folder, (*names, name), ())
                else:
                    self.unknown.append(path)
                    if deeper and name in folders:
                        self._waiting.add(path)
                if self._full:
                    return
        else:
            self.unknown += [path for path in paths if path not in tracked]
            self.entries += map(Entry, paths, _FILES, sizes)
        self._full = not whole or len(self.entries) >= self._most


def _scan(folder: int, least: str, hidden: bool, most: int, inside: bool) -> tuple[list[str], dict[str, Type], bool]:
    """The first names from `least` on, in order, the types of those that are no files, and whether that is all."""
    names, whole = list[str](), True
    types: dict[str, Type] = {}
    with os.scandir(folder) as listed:
        while batch := list(islice(listed, _AT_ONCE)):
            found = [entry.name for entry in batch]
            if inside and ".git" in found:
                return [], {}, True  # a repository of its own, with rules of its own
            if least or not hidden:
                found = [name for name in found if name >= least and (hidden or name[0] != ".")]
            names += found
            for entry in [entry for entry in batch if not entry.is_file(follow_symlinks=False)]:
                types[entry.name] = _type(entry)
            if len(names) > 4 * most + _AT_ONCE:
                whole = False
                names = sorted(names)[: most + 1]
                types = {name: types[name] for name in names if name in types}
    names.sort()
    # One more than are wanted, because the first may have been told before.
    return names[: most + 1], types, whole and len(names) <= most + 1


def _type(entry: os.DirEntry[str]) -> Type:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "other"


def _sizes(folder: int, names: Sequence[str], without: Container[str]) -> list[int | None]:
    return [None if name in without else _size(folder, name) for name in names]


def _size(folder: int, name: str) -> int | None:
    """None for a file that has gone in the meantime."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except OSError:
        return None
