"""What an open folder holds: names in order, and what each of them is."""

import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

from rookery.files.entries import Type

_AT_ONCE = 4096


def scan(folder: int, least: str, most: int, *, hidden: bool, inside: bool) -> tuple[list[str], dict[str, Type], bool]:
    """The first names from `least` on, the types of those that are no files, and whether that is all of them.

    Of a repository that lies `inside` another one nothing is told: it has rules of its own.
    """
    names, types, whole = list[str](), dict[str, Type](), True
    with os.scandir(folder) as listed:
        while True:
            batch = list(islice(listed, _AT_ONCE))
            found = [entry.name for entry in batch]
            if inside and ".git" in found:
                return [], types, True
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
    """Sort them and keep only the first of those that are wanted; whether that is all of them."""
    names.sort()
    if not hidden:
        del names[bisect_left(names, ".") : bisect_left(names, "/")]
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
