"""Entries of a listing: single entries, or runs of files of one folder.

Most entries of a tree are files that need no special treatment; a run of them is written to JSON at once.
"""

import os
import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal

import msgspec

EntryType = Literal["file", "folder", "link", "other"]


_ESCAPE = re.compile(rb"\\(\\|x[89a-f][0-9a-f])")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry. `path` is relative to the workspace's root, as for `read_file`; undecodable bytes appear as `\\xff`.

    `denied` says why it may not be read, if so. The target of a link is not included: it may be outside.
    """

    path: str
    type: EntryType
    size: int | None = None
    denied: str = ""

    def to_json(self) -> str:
        """Return the entry as a JSON object."""
        if is_json_safe(self.path) and self.size is None and not self.denied:
            return f'{{"path":"{self.path}","type":"{self.type}","size":null,"denied":""}}'
        return msgspec.json.encode(_with_display_path(self)).decode()


class FileRun(msgspec.Struct, frozen=True, gc=False):
    """Consecutive readable files of one folder whose names need no escapes; `sizes` is None if not requested."""

    prefix: str
    names: list[str]
    sizes: list[int | None] | None

    def part(self, bounds: slice) -> "FileRun":
        """Return the run of a slice of the files."""
        return FileRun(self.prefix, self.names[bounds], self.sizes and self.sizes[bounds])

    def entries(self) -> list[Entry]:
        """Return an entry for each file."""
        sizes = self.sizes or repeat(None)
        return [Entry(self.prefix + name, "file", size) for name, size in zip(self.names, sizes, strict=False)]

    def to_json(self) -> str:
        """Return `entries` as JSON objects. Creating an object per file takes longer than finding all files."""
        start = f'{{"path":"{self.prefix}'
        end = ',"denied":""}'
        if self.sizes is None:
            between = f'","type":"file","size":null{end}'
            return start + f"{between},{start}".join(self.names) + between
        sizes = ["null" if size is None else size for size in self.sizes]
        pairs = zip(self.names, sizes, strict=True)
        return ",".join([f'{start}{name}","type":"file","size":{size}{end}' for name, size in pairs])


ListingRow = Entry | FileRun


def is_json_safe(text: str) -> bool:
    """Return whether a text needs no escapes in JSON."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def count_entries(rows: Iterable[ListingRow]) -> int:
    """Return the number of entries in these rows."""
    return sum(len(row.names) if isinstance(row, FileRun) else 1 for row in rows)


def last_path(rows: Sequence[ListingRow]) -> str:
    """Return the path of the last entry."""
    row = rows[-1]
    return row.prefix + row.names[-1] if isinstance(row, FileRun) else row.path


def split_rows(rows: Sequence[ListingRow], count: int) -> tuple[list[ListingRow], list[ListingRow]]:
    """Split rows into those with the first `count` entries, and the rest."""
    for index, row in enumerate(rows):
        length = len(row.names) if isinstance(row, FileRun) else 1
        if length > count:
            before = list(rows[:index])
            after = list(rows[index:])
            if count and isinstance(row, FileRun):
                before.append(row.part(slice(count)))
                after[0] = row.part(slice(count, None))
            return before, after
        count -= length
    return list(rows), []


def expand_rows(rows: Iterable[ListingRow]) -> list[Entry]:
    """Return each entry by itself, with its path for display."""
    return [
        entry for row in rows for entry in (row.entries() if isinstance(row, FileRun) else [_with_display_path(row)])
    ]


def rows_to_json(rows: Iterable[ListingRow], before: str, after: str) -> str:
    """Return the same as a JSON list, between two texts."""
    parts = [row.to_json() for row in rows]
    if not parts:
        return f"{before}[]{after}"
    # The result is large, and is copied only once this way.
    parts[0] = f"{before}[{parts[0]}"
    parts[-1] = f"{parts[-1]}]{after}"
    return ",".join(parts)


def display_path(path: str) -> str:
    """Return the path as text. If it contains bytes that are not valid UTF-8, these and backslashes are escaped."""
    if path.isascii():
        return path
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def parse_display_path(text: str) -> str | None:
    """Return the path with undecodable bytes that is shown as `text`, None if there can be none."""
    if "\\x" not in text:
        return None
    raw = _ESCAPE.sub(lambda match: bytes.fromhex(match[1][1:].decode()) or b"\\", os.fsencode(text))
    path = os.fsdecode(raw)
    return path if display_path(path) == text != path else None


def _with_display_path(entry: Entry) -> Entry:
    return entry if entry.path.isascii() else msgspec.structs.replace(entry, path=display_path(entry.path))
