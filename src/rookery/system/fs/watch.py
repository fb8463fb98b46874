"""Watch single files, or any number of folders, for changes.

Both use inotify. Without it, files are polled every two seconds, and folders cannot be watched.
"""

import asyncio
import contextlib
import errno
import logging
import os
import struct
import sys
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Protocol

logger = logging.getLogger("rookery.files")

FilesChanged = Callable[[Set[Path]], None]

_MODIFY = 0x2
_ATTRIB = 0x4
_CLOSE_WRITE = 0x8
_MOVED = 0x40 | 0x80
_CREATE = 0x100
_DELETE = 0x200
_DELETE_SELF = 0x400
_MOVE_SELF = 0x800
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_ONLY_FOLDERS = 0x0100_0000
_NO_LINKS = 0x0200_0000
_OF_FOLDER = 0x4000_0000
_FILE_EVENTS = _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_HEAD = struct.Struct("iIII")
_FILE_READ_BYTES = 65_536
_TRIES = 20

_REMOVED = _DELETE_SELF | _MOVE_SELF | _IGNORED
# Not only on close: a file that is being written has changed already.
_TREE_EVENTS = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS | _NO_LINKS
_TREE_READ_BYTES = 262_144
# More than the kernel's queue holds by default; a process that writes without end must not block us.
_MAX_READS = 16


class FileWatch(Protocol):
    """Calls a function with the files that may have changed. Neither they nor their folders need to exist."""

    def watch(self, files: Set[Path]) -> None:
        """Watch these files and no others. Paths are absolute, and none of their folders is a link."""
        ...

    def close(self) -> None: ...


def watch_files(on_change: FilesChanged) -> FileWatch:
    """Return the best available watch. Requires a running loop, in whose thread it calls back."""
    if sys.platform == "linux":
        try:
            return InotifyFileWatch(on_change)
        except OSError as error:
            logger.warning("inotify is not available (%s): polling files every 2 seconds instead", error.strerror)
    return PollingFileWatch(on_change)


class InotifyFileWatch:
    """Watches files with one descriptor in the loop, without a thread.

    For a file that does not exist, the nearest existing folder above it is watched.
    """

    def __init__(self, on_change: FilesChanged) -> None:
        import ctypes

        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._on_change = on_change
        self._files_by_path: dict[Path, set[Path]] = {}
        self._watch_ids: dict[Path, int] = {}
        self._handle = self._check_result(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._handle, self._read)

    def watch(self, files: Set[Path]) -> None:
        self._files_by_path = {}
        for file in files:
            for path in (file, *file.parents):
                self._files_by_path.setdefault(path, set()).add(file)
        self._update_watches(files)

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def _check_result(self, result: int) -> int:
        if result < 0:
            raise OSError(self._errno(), os.strerror(self._errno()))
        return result

    def _update_watches(self, files: Set[Path]) -> None:
        """Update the watched folders. The check is repeated, since folders may appear meanwhile."""
        for _ in range(_TRIES):
            wanted = {_nearest_folder(folder) for folder in {file.parent for file in files}}
            if wanted == self._watch_ids.keys():
                return
            for folder in self._watch_ids.keys() - wanted:
                self._drop(folder)
            for folder in wanted - self._watch_ids.keys():
                self._add(folder)

    def _add(self, folder: Path) -> None:
        flags = _FILE_EVENTS | _ONLY_FOLDERS | _NO_LINKS
        try:
            number = self._check_result(self._libc.inotify_add_watch(self._handle, os.fsencode(folder), flags))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            logger.warning(
                "cannot watch %s for changes: %s (raise fs.inotify.max_user_watches)", folder, error.strerror
            )
            number = 0
        self._watch_ids[folder] = number

    def _drop(self, folder: Path) -> None:
        number = self._watch_ids.pop(folder)
        if number not in self._watch_ids.values():
            self._libc.inotify_rm_watch(self._handle, number)

    def _read(self) -> None:
        try:
            data = os.read(self._handle, _FILE_READ_BYTES)
        except BlockingIOError:
            return
        changed = set[Path]()
        offset = 0
        while offset < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size + length
            changed |= self._files_of_event(number, mask, data[offset - length : offset].rstrip(b"\0"))
        if changed:
            self._update_watches(set[Path]().union(*self._files_by_path.values()))
            self._on_change(changed)

    def _files_of_event(self, number: int, mask: int, name: bytes) -> set[Path]:
        """Return the files that an event concerns."""
        if mask & _OVERFLOW:
            return set[Path]().union(*self._files_by_path.values())
        folders = [folder for folder, folder_number in self._watch_ids.items() if folder_number == number]
        if mask & (_DELETE_SELF | _MOVE_SELF | _IGNORED):
            for folder in folders:
                self._drop(folder)
        return set[Path]().union(*(self._files_by_path.get(folder / os.fsdecode(name), ()) for folder in folders))


class PollingFileWatch:
    """Checks each file at an interval."""

    def __init__(self, on_change: FilesChanged, seconds: float = 2.0) -> None:
        self._on_change = on_change
        self._seconds = seconds
        self._signatures: dict[Path, object] = {}
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._poll)

    def watch(self, files: Set[Path]) -> None:
        self._signatures = {
            file: self._signatures[file] if file in self._signatures else file_signature(file) for file in files
        }

    def close(self) -> None:
        self._timer.cancel()

    def _poll(self) -> None:
        signatures = {file: file_signature(file) for file in self._signatures}
        changed = {file for file in signatures if signatures[file] != self._signatures[file]}
        self._signatures = signatures
        self._timer = self._loop.call_later(self._seconds, self._poll)
        if changed:
            self._on_change(changed)


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir() and not folder.is_symlink())


def file_signature(file: Path) -> object:
    """Return a value that changes when the file is written; for a link, that of the link itself."""
    try:
        file_stat = file.lstat()
    except OSError:
        return None
    return file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns, file_stat.st_mode


# Receives the owner, the name in the folder, and whether folders were created, moved or removed.
FolderChanged = Callable[[str, bytes, bool], None]


class WatchLimitReached(Exception):
    """The system allows this user no more watches."""


class TreeWatch:
    """Watches folders on behalf of owners. Create it in a running loop, in whose thread it calls back.

    `add` may be called in any thread. Raises OSError if there is no inotify.
    """

    def __init__(self, on_change: FolderChanged) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._libc: Any = libc
        self._errno = ctypes.get_errno
        self._on_change = on_change
        self._owners: dict[int, set[str]] = {}
        self._folders: dict[str, set[int]] = {}
        self._handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise OSError(self._errno(), os.strerror(self._errno()))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._handle, self.process_pending)

    def add(self, owner: str, folder: bytes) -> None:
        """Watch a folder without its subfolders. A folder that no longer exists is ignored."""
        number = self._libc.inotify_add_watch(self._handle, folder, _TREE_EVENTS)
        if number < 0:
            if self._errno() in (errno.ENOSPC, errno.ENOMEM):
                raise WatchLimitReached
            return
        self._folders.setdefault(owner, set()).add(number)
        self._owners.setdefault(number, set()).add(owner)

    def drop(self, owner: str) -> None:
        """Remove the watches of this owner."""
        for number in self._folders.pop(owner, ()):
            owners = self._owners.get(number, set())
            owners.discard(owner)
            if not owners:
                self._owners.pop(number, None)
                self._libc.inotify_rm_watch(self._handle, number)

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def process_pending(self) -> None:
        """Report all changes up to now, so that a caller need not wait for the loop's next iteration."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MAX_READS):
                self._dispatch(os.read(self._handle, _TREE_READ_BYTES))

    def _dispatch(self, data: bytes) -> None:
        changes = set[tuple[str, bytes, bool]]()
        offset = 0
        while offset < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size + length
            name = data[offset - length : offset].rstrip(b"\0")
            changes |= {
                (owner, name, bool(mask & (_OF_FOLDER | _REMOVED))) for owner in self._owners_of_event(number, mask)
            }
        for owner, name, folders in changes:
            self._on_change(owner, name, folders)

    def _owners_of_event(self, number: int, mask: int) -> set[str]:
        """Return the owners of the folder that an event concerns; all owners if events were lost."""
        if mask & _OVERFLOW:
            return set(self._folders)
        owners = set(self._owners.get(number, ()))
        if mask & _IGNORED:
            for owner in self._owners.pop(number, ()):
                self._folders.get(owner, set()).discard(number)
        return owners
