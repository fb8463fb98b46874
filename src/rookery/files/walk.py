"""Walk the entries of a folder and its subfolders in a stable order, in bounded pieces.

A piece can start after any entry. The names in a folder are cached by the records that the kernel returns for it.
"""

import errno
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import islice

import msgspec

from rookery.files.entries import Entry, EntryType, FileRun, ListingRow, is_json_safe, last_path
from rookery.files.gitignore import TrackedFiles
from rookery.files.secrets import DenyRules
from rookery.system.fs.beneath import (
    ENTRY_FILE,
    ENTRY_FOLDER,
    ENTRY_LINK,
    ENTRY_UNKNOWN,
    OPEN_FOLDER,
    Beneath,
    parse_entries,
    read_entries,
)

_BATCH = 4096
_DOT_NAMES = (".", "..")
# The limit of cached records: about a hundred thousand names.
_MAX_CACHED_BYTES = 4 * 2**20
_ENTRY_TYPES: Mapping[int, EntryType] = defaultdict(lambda: "other", {ENTRY_FOLDER: "folder", ENTRY_LINK: "link"})

FolderNames = tuple[list[str], dict[str, EntryType]]

# Errors of a folder that changed between two reads, or may not be read. Its entries are left out.
_TRANSIENT_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EPERM)


class FolderScanner:
    """Reads folders, and caches the parsed records: an unchanged folder gives equal bytes."""

    def __init__(self) -> None:
        self._cache: dict[bytes, FolderNames] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of cached folders."""
        return len(self._cache)

    def scan(
        self, folder: int, start: str, limit: int, *, hidden: bool, is_nested: bool
    ) -> tuple[list[str], Mapping[str, EntryType], bool]:
        """Return the first names from `start` on, the types of those that are not files, and whether there are no more.

        A repository `is_nested` another one gives no names: it has rules of its own.
        """
        content = self._read_cached(folder)
        if content is None:
            return scan_folder(folder, start, limit, hidden=hidden, is_nested=is_nested)
        names = content[0].copy()
        types = content[1]
        if is_nested and ".git" in names:
            return [], {}, True
        return names, types, _limit(names, start, limit, hidden)

    def _read_cached(self, folder: int) -> FolderNames | None:
        """Return the content of a folder; None if it must be read entry by entry."""
        records = read_entries(folder)
        if records is None:
            return None
        content = self._cache.get(records)
        if content is None:
            names, kinds = parse_entries(records)
            if ENTRY_UNKNOWN in kinds:
                os.lseek(folder, 0, os.SEEK_SET)
                return None
            # `.` and `..` are among the names, and are no entries.
            others = [pair for pair in zip(names, kinds, strict=True) if pair[1] != ENTRY_FILE]
            types: dict[str, EntryType] = {name: _ENTRY_TYPES[kind] for name, kind in others if name not in _DOT_NAMES}
            content = sorted(set(names).difference(_DOT_NAMES)), types
            self._add_to_cache(records, content)
        return content

    def _add_to_cache(self, records: bytes, content: FolderNames) -> None:
        if self._bytes > _MAX_CACHED_BYTES:
            self._cache.clear()
            self._bytes = 0
        self._cache[records] = content
        self._bytes += len(records)


def scan_folder(
    folder: int, start: str, limit: int, *, hidden: bool, is_nested: bool
) -> tuple[list[str], dict[str, EntryType], bool]:
    """Return the same, read entry by entry, for folders of any size and on any system."""
    names = list[str]()
    types = dict[str, EntryType]()
    is_complete = True
    with os.scandir(folder) as entries:
        while True:
            batch = list(islice(entries, _BATCH))
            batch_names = [entry.name for entry in batch]
            if is_nested and ".git" in batch_names:
                return [], {}, True
            names += batch_names
            for entry in [entry for entry in batch if not entry.is_file(follow_symlinks=False)]:
                types[entry.name] = _entry_type(entry)
            if len(batch) < _BATCH:
                return names, types, _sort_and_limit(names, start, limit, hidden) and is_complete
            if len(names) > 4 * limit + _BATCH:
                is_complete = _sort_and_limit(names, start, limit, hidden) and is_complete
                types = dict[str, EntryType]((name, types[name]) for name in names if name in types)


def read_sizes(folder: int, names: Sequence[str]) -> list[int | None]:
    """Return the size of each file; None for files that no longer exist."""
    return [_read_size(folder, name) for name in names]


def _sort_and_limit(names: list[str], start: str, limit: int, hidden: bool) -> bool:
    names.sort()
    return _limit(names, start, limit, hidden)


def _limit(names: list[str], start: str, limit: int, hidden: bool) -> bool:
    """Keep the first `limit` of the wanted names, which are sorted; return whether these are all."""
    if not hidden:
        del names[bisect_left(names, ".") : bisect_left(names, "/")]
    if start:
        del names[: bisect_left(names, start)]
    is_complete = len(names) <= limit
    del names[limit:]
    return is_complete


def _entry_type(entry: os.DirEntry[str]) -> EntryType:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "other"


def _read_size(folder: int, name: str) -> int | None:
    """Return the size of a file; None if it no longer exists."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except OSError:
        return None


PathNames = tuple[str, ...]


class WalkScope(msgspec.Struct, frozen=True):
    """What to list: a folder, by its names from the root, the depth, and whether with hidden names and with sizes."""

    start: PathNames
    depth: int
    hidden: bool
    sizes: bool


class Walk:
    """One piece of a listing: about `limit` entries after the names `after`, from the folder of the scope on.

    Paths that are not tracked are `unknown` until `remove_ignored` receives git's answer which of them are ignored.
    Folders among them are entered only then: an ignored one may be larger than everything else.
    """

    def __init__(
        self,
        scope: WalkScope,
        folders: FolderScanner,
        denied: DenyRules,
        after: PathNames,
        limit: int,
        tracked: TrackedFiles,
    ) -> None:
        self._scope = scope
        self._folders = folders
        self._denied = denied
        self._tracked = tracked
        self._after = after
        self._limit = limit
        self.rows: list[ListingRow] = []
        self.unknown: list[str] = []
        self._waiting_folders: set[str] = set()
        # Whether there may be more entries, after `last`.
        self.has_more = False
        self._last_path = ""
        self._remaining = limit

    @property
    def last(self) -> PathNames:
        """The names of the last entry of this piece; the next piece starts after it."""
        return tuple(self._last_path.split("/"))[len(self._scope.start) :] if self._last_path else self._after

    def start(self, beneath: Beneath) -> None:
        """Collect the entries of the piece, without the content of folders that are not tracked."""
        self._enter(beneath, None, "/".join(self._scope.start), self._after)
        self.has_more = self._remaining <= 0
        self._last_path = last_path(self.rows) if self.rows else ""

    def remove_ignored(self, ignored: Set[str], beneath: Beneath) -> None:
        """Remove ignored entries, and enter the folders that waited for that."""
        rows = self.rows
        waiting = self._waiting_folders
        self.rows = []
        self.unknown = []
        self._waiting_folders = set()
        self._remaining = self._limit
        for row in rows:
            self._last_path = last_path([row])
            if self._last_path in ignored and isinstance(row, Entry):
                continue
            self._add(row)
            if self._last_path in waiting:
                self._enter(beneath, None, self._last_path, ())
                self._last_path = last_path(self.rows)
            if self._remaining <= 0:
                self.has_more = True
                break

    def _enter(self, beneath: Beneath, parent: int | None, path: str, after: PathNames) -> None:
        """Add the content of a folder. `parent` is a descriptor of its parent, if that is open."""
        try:
            if parent is None:
                folder = beneath.open_linkless(path.split("/") if path else (), OPEN_FOLDER)
            else:
                folder = beneath.enter(parent, path.rpartition("/")[2])
        except OSError as error:
            if error.errno not in _TRANSIENT_ERRORS:
                raise
            return
        try:
            self._add_folder(beneath, folder, path, after)
        finally:
            os.close(folder)

    def _add_folder(self, beneath: Beneath, folder: int, path: str, after: PathNames) -> None:
        prefix = f"{path}/" if path else ""
        level = prefix.count("/") - len(self._scope.start)
        least = after[0] if after else ""
        # One more than wanted, because the first may have been listed before.
        names, types, is_complete = self._folders.scan(
            folder, least, self._limit + 1, hidden=self._scope.hidden, is_nested=level > 0
        )
        denied = self._denied.find_denied(path, names, types)
        deeper = level + 1 < self._scope.depth
        if after and names[:1] == [after[0]]:
            # This entry was listed before. Its content was not, or not completely.
            name = names.pop(0)
            if deeper and types.get(name) == "folder" and name not in denied:
                self._enter(beneath, folder, prefix + name, after[1:])
        if types or denied:
            names = self._add_mixed(beneath, folder, prefix, names, types, denied, deeper)
        self._add_files(folder, prefix, names)
        if not is_complete:
            self._remaining = 0

    def _add_mixed(
        self,
        beneath: Beneath,
        folder: int,
        prefix: str,
        names: list[str],
        types: Mapping[str, EntryType],
        denied: Mapping[str, str],
        deeper: bool,
    ) -> list[str]:
        """Add entries that need treatment one by one, and the files between them; return the files after the last."""
        run: list[str] = []
        for name in names:
            if name not in types and name not in denied:
                run.append(name)
                continue
            if run:
                self._add_files(folder, prefix, run)
                run = []
            if self._remaining <= 0:
                break
            entry = Entry(prefix + name, types.get(name, "file"), None, denied.get(name, ""))
            if self._add_other(entry, deeper=deeper):
                self._enter(beneath, folder, entry.path, ())
        return run

    def _add(self, row: ListingRow) -> None:
        self.rows.append(row)
        self._remaining -= len(row.names) if isinstance(row, FileRun) else 1

    def _add_files(self, folder: int, prefix: str, names: list[str]) -> None:
        if not names or self._remaining <= 0:
            return
        files = FileRun(prefix, names, read_sizes(folder, names) if self._scope.sizes else None)
        if self._tracked.has_all(prefix, names) and (self._tracked.is_plain or is_json_safe(prefix + "/".join(names))):
            self._add(files)
            return
        self.unknown += [prefix + name for name in names if not self._tracked.has_file(prefix + name)]
        for entry in files.entries():
            self._add(entry)

    def _add_other(self, entry: Entry, *, deeper: bool) -> bool:
        """Add an entry that is not a file, or is denied; return whether it is a folder to enter now."""
        self._add(entry)
        if entry.denied:
            return False
        can_enter = deeper and entry.type == "folder"
        if (entry.type == "folder" and self._tracked.has_folder(entry.path)) or self._tracked.has_file(entry.path):
            return can_enter
        self.unknown.append(entry.path)
        if can_enter:
            self._waiting_folders.add(entry.path)
        return False
