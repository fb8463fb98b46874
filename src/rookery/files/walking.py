"""The entries of a folder and of its folders, in a stable order: a bounded piece at a time, from any place on."""

import errno
import os
from collections.abc import Mapping, Set

import msgspec

from rookery.files.entries import Entry, Files, Row, Type, is_plain, last_path
from rookery.files.ignoring import Tracked
from rookery.files.scanning import Folders, sizes_of
from rookery.files.secrets import Denied
from rookery.system.beneath import FOLDER, Beneath

Names = tuple[str, ...]

# What may become of a folder between two looks at it. Its entries are left out then.
_PASSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.EACCES, errno.EPERM)


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

    def __init__(
        self, scope: Scope, folders: Folders, denied: Denied, after: Names, most: int, tracked: Tracked
    ) -> None:
        self._scope, self._folders, self._denied, self._tracked = scope, folders, denied, tracked
        self._after, self._most = after, most
        self.rows: list[Row] = []
        self.unknown: list[str] = []
        self._waiting: set[str] = set()
        # Whether there may be more, which then comes after `last`.
        self.cut = False
        self._passed = ""
        self._left = most

    @property
    def last(self) -> Names:
        return tuple(self._passed.split("/"))[len(self._scope.start) :] if self._passed else self._after

    def begin(self, beneath: Beneath) -> None:
        self._enter(beneath, None, "/".join(self._scope.start), self._after)
        self.cut = self._left <= 0
        self._passed = last_path(self.rows) if self.rows else ""

    def sift(self, ignored: Set[str], beneath: Beneath) -> None:
        """Leave out what is ignored, and enter the folders that waited for it."""
        found, waiting = self.rows, self._waiting
        self.rows, self.unknown, self._waiting, self._left = [], [], set(), self._most
        for row in found:
            self._passed = last_path([row])
            if self._passed in ignored and isinstance(row, Entry):
                continue
            self._add(row)
            if self._passed in waiting:
                self._enter(beneath, None, self._passed, ())
                self._passed = last_path(self.rows)
            if self._left <= 0:
                self.cut = True
                break

    def _enter(self, beneath: Beneath, above: int | None, path: str, after: Names) -> None:
        """Take in what a folder holds. `above` is the folder that it lies in, if that is open."""
        try:
            if above is None:
                folder = beneath.open_linkless(path.split("/") if path else (), FOLDER)
            else:
                folder = beneath.enter(above, path.rpartition("/")[2])
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            return
        try:
            self._take_in(beneath, folder, path, after)
        finally:
            os.close(folder)

    def _take_in(self, beneath: Beneath, folder: int, path: str, after: Names) -> None:
        prefix = f"{path}/" if path else ""
        level = prefix.count("/") - len(self._scope.start)
        least = after[0] if after else ""
        # One more than are wanted, because the first may have been told before.
        names, types, whole = self._folders.scan(
            folder, least, self._most + 1, hidden=self._scope.hidden, inside=level > 0
        )
        denied = self._denied.among(path, names, types)
        deeper = level + 1 < self._scope.depth
        if after and names[:1] == [after[0]]:
            # It was told before. What it holds was not, or not all of it.
            told = names.pop(0)
            if deeper and types.get(told) == "folder" and told not in denied:
                self._enter(beneath, folder, prefix + told, after[1:])
        if types or denied:
            names = self._take_each(beneath, folder, prefix, names, types, denied, deeper)
        self._add_files(folder, prefix, names)
        if not whole:
            self._left = 0

    def _take_each(
        self,
        beneath: Beneath,
        folder: int,
        prefix: str,
        names: list[str],
        types: Mapping[str, Type],
        denied: Mapping[str, str],
        deeper: bool,
    ) -> list[str]:
        """The files that are left, after the last of those that have to be looked at."""
        run: list[str] = []
        for name in names:
            if name not in types and name not in denied:
                run.append(name)
                continue
            if run:
                self._add_files(folder, prefix, run)
                run = []
            if self._left <= 0:
                break
            entry = Entry(prefix + name, types.get(name, "file"), None, denied.get(name, ""))
            if self._add_other(entry, deeper=deeper):
                self._enter(beneath, folder, entry.path, ())
        return run

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._left -= len(row.names) if isinstance(row, Files) else 1

    def _add_files(self, folder: int, prefix: str, names: list[str]) -> None:
        if not names or self._left <= 0:
            return
        files = Files(prefix, names, sizes_of(folder, names) if self._scope.sizes else None)
        if self._tracked.has_all(prefix, names) and (self._tracked.is_plain or is_plain(prefix + "/".join(names))):
            self._add(files)
            return
        self.unknown += [prefix + name for name in names if not self._tracked.has_file(prefix + name)]
        for entry in files.entries():
            self._add(entry)

    def _add_other(self, entry: Entry, *, deeper: bool) -> bool:
        """What is no file, or denied. Whether it is a folder to be entered now."""
        self._add(entry)
        if entry.denied:
            return False
        enters = deeper and entry.type == "folder"
        if (entry.type == "folder" and self._tracked.has_folder(entry.path)) or self._tracked.has_file(entry.path):
            return enters
        self.unknown.append(entry.path)
        if enters:
            self._waiting.add(entry.path)
        return False
