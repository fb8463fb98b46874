"""The entries of a listing: one by one, or a run of plain files at once, which is most of what any tree holds."""

import os
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal

import msgspec

Type = Literal["file", "folder", "link", "other"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """`path` is from the workspace's root, as `read_file` takes it; bytes that are no text stand as `\\xff` in it.

    `denied` says why it may not be read, if so. A link's target is not told: it may lie outside.
    """

    path: str
    type: Type
    size: int | None = None
    denied: str = ""

    def in_json(self) -> str:
        if is_plain(self.path) and self.size is None and not self.denied:
            return f'{{"path":"{self.path}","type":"{self.type}","size":null,"denied":""}}'
        return msgspec.json.encode(_shown(self)).decode()


class Files(msgspec.Struct, frozen=True, gc=False):
    """Files of one folder that may be read, one after the other, and are plain; without sizes if none are wanted."""

    prefix: str
    names: list[str]
    sizes: list[int | None] | None

    def part(self, some: slice) -> "Files":
        return Files(self.prefix, self.names[some], self.sizes and self.sizes[some])

    def entries(self) -> list[Entry]:
        sizes = self.sizes or repeat(None)
        return [Entry(self.prefix + name, "file", size) for name, size in zip(self.names, sizes, strict=False)]

    def in_json(self) -> str:
        """What `entries` would be. To make an object of each file takes longer than to find them all."""
        start, end = f'{{"path":"{self.prefix}', ',"denied":""}'
        if self.sizes is None:
            between = f'","type":"file","size":null{end}'
            return start + f"{between},{start}".join(self.names) + between
        sizes = ["null" if size is None else size for size in self.sizes]
        each = zip(self.names, sizes, strict=True)
        return ",".join([f'{start}{name}","type":"file","size":{size}{end}' for name, size in each])


Row = Entry | Files


def is_plain(text: str) -> bool:
    """Whether it stands in JSON as it is."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def count(rows: Iterable[Row]) -> int:
    return sum(len(row.names) if isinstance(row, Files) else 1 for row in rows)


def last_path(rows: Sequence[Row]) -> str:
    row = rows[-1]
    return row.prefix + row.names[-1] if isinstance(row, Files) else row.path


def split(rows: Sequence[Row], first: int) -> tuple[list[Row], list[Row]]:
    """So many entries, and the rest."""
    for index, row in enumerate(rows):
        length = len(row.names) if isinstance(row, Files) else 1
        if length > first:
            before, after = list(rows[:index]), list(rows[index:])
            if first and isinstance(row, Files):
                before.append(row.part(slice(first)))
                after[0] = row.part(slice(first, None))
            return before, after
        first -= length
    return list(rows), []


def spread(rows: Iterable[Row]) -> list[Entry]:
    """Each entry by itself, as it is shown."""
    return [entry for row in rows for entry in (row.entries() if isinstance(row, Files) else [_shown(row)])]


def in_json(rows: Iterable[Row], before: str, after: str) -> str:
    """The same as a list in JSON, between two texts."""
    parts = [row.in_json() for row in rows]
    if not parts:
        return f"{before}[]{after}"
    # The whole is large, and copied only once this way.
    parts[0] = f"{before}[{parts[0]}"
    parts[-1] = f"{parts[-1]}]{after}"
    return ",".join(parts)


def shown(path: str) -> str:
    """The path, with bytes that are no text written out. No path that is given to us has a backslash in it."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _shown(entry: Entry) -> Entry:
    return entry if entry.path.isascii() else msgspec.structs.replace(entry, path=shown(entry.path))
