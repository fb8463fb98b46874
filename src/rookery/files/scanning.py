"""What an open folder holds: names in order, and what each of them is."""

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice

from rookery.files.entries import Type
from rookery.system import getdents

_AT_ONCE = 4096
_NO_ENTRIES = (".", "..")
# So many bytes of records: about a hundred thousand names.
_REMEMBERED = 4 * 2**20
_TYPES: Mapping[int, Type] = defaultdict(lambda: "other", {getdents.FOLDER: "folder", getdents.LINK: "link"})

Held = tuple[list[str], dict[str, Type]]


class Folders:
    """Looks at folders, and remembers what their records mean: those of a folder that is as it was are equal bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, Held] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """How many it remembers."""
        return len(self._known)

    def scan(
        self, folder: int, least: str, most: int, *, hidden: bool, inside: bool
    ) -> tuple[list[str], Mapping[str, Type], bool]:
        """The first names from `least` on, the types of those that are no files, and whether that is all of them.

        Of a repository that lies `inside` another one nothing is told: it has rules of its own.
        """
        held = self._held(folder)
        if held is None:
            return scan(folder, least, most, hidden=hidden, inside=inside)
        names, types = held[0].copy(), held[1]
        if inside and ".git" in names:
            return [], {}, True
        return names, types, _keep(names, least, most, hidden)

    def _held(self, folder: int) -> Held | None:
        """None if it has to be looked at entry by entry."""
        records = getdents.read(folder)
        if records is None:
            return None
        known = self._known.get(records)
        if known is None:
            names, kinds = getdents.parsed(records)
            if getdents.UNKNOWN in kinds:
                os.lseek(folder, 0, os.SEEK_SET)
                return None
            # Two of them are `.` and `..`, which are no entries.
            others = [one for one in zip(names, kinds, strict=True) if one[1] != getdents.FILE]
            types: dict[str, Type] = {name: _TYPES[kind] for name, kind in others if name not in _NO_ENTRIES}
            known = sorted(set(names).difference(_NO_ENTRIES)), types
            self._remember(records, known)
        return known

    def _remember(self, records: bytes, held: Held) -> None:
        if self._bytes > _REMEMBERED:
            self._known.clear()
            self._bytes = 0
        self._known[records] = held
        self._bytes += len(records)


def scan(folder: int, least: str, most: int, *, hidden: bool, inside: bool) -> tuple[list[str], dict[str, Type], bool]:
    """The same, entry by entry, for folders of any size and on any system."""
    names, types, whole = list[str](), dict[str, Type](), True
    with os.scandir(folder) as listed:
        while True:
            batch = list(islice(listed, _AT_ONCE))
            found = [entry.name for entry in batch]
            if inside and ".git" in found:
                return [], {}, True
            names += found
            for entry in [entry for entry in batch if not entry.is_file(follow_symlinks=False)]:
                types[entry.name] = _type(entry)
            if len(batch) < _AT_ONCE:
                return names, types, _order(names, least, most, hidden) and whole
            if len(names) > 4 * most + _AT_ONCE:
                whole = _order(names, least, most, hidden) and whole
                types = dict[str, Type]((name, types[name]) for name in names if name in types)


def sizes_of(folder: int, names: Sequence[str]) -> list[int | None]:
    return [_size(folder, name) for name in names]


def _order(names: list[str], least: str, most: int, hidden: bool) -> bool:
    names.sort()
    return _keep(names, least, most, hidden)


def _keep(names: list[str], least: str, most: int, hidden: bool) -> bool:
    """Keep only the first of those that are wanted, which are in order; whether that is all of them."""
    if not hidden:
        del names[bisect_left(names, ".") : bisect_left(names, "/")]
    if least:
        del names[: bisect_left(names, least)]
    whole = len(names) <= most
    del names[most:]
    return whole


def _type(entry: os.DirEntry[str]) -> Type:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "other"


def _size(folder: int, name: str) -> int | None:
    """None for a file that has gone in the meantime."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except OSError:
        return None
