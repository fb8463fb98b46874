"""Tells when files come, go or change: by inotify where the system has it, else by looking every other second."""

import asyncio
import logging
import os
import struct
import sys
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any, Protocol

logger = logging.getLogger("rookery.files")

Told = Callable[[Set[Path]], None]

_ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x4, 0x8, 0x40 | 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_ONLY_FOLDERS, _NO_LINKS = 0x0100_0000, 0x0200_0000
_CHANGES = _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_HEAD = struct.Struct("iIII")
_READ = 65_536
_TRIES = 20


class FileWatch(Protocol):
    """Calls back with those of the files that may have changed. They need not exist, nor need their folders."""

    def watch(self, files: Set[Path]) -> None:
        """Watch these files from now on, and no others. Paths are absolute, and no folder on the way is a link."""
        ...

    def close(self) -> None: ...


def file_watch(told: Told) -> FileWatch:
    """The best watch that there is here; for use within a running loop, in whose thread it calls back."""
    if sys.platform == "linux":
        try:
            return Inotify(told)
        except OSError as error:
            logger.warning("no inotify (%s): files are looked at every other second instead", error.strerror)
    return Polling(told)


class Inotify:
    """One descriptor in the loop, no thread. A file that is not there is watched for in the nearest folder that is."""

    def __init__(self, told: Told) -> None:
        import ctypes

        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self._told = told
        self._concerned: dict[Path, set[Path]] = {}
        self._numbers: dict[Path, int] = {}
        self._handle = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._handle, self._read)

    def watch(self, files: Set[Path]) -> None:
        self._concerned = {}
        for file in files:
            for path in (file, *file.parents):
                self._concerned.setdefault(path, set()).add(file)
        self._settle(files)

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def _checked(self, answer: int) -> int:
        if answer < 0:
            raise OSError(self._errno(), os.strerror(self._errno()))
        return answer

    def _settle(self, files: Set[Path]) -> None:
        """Watch the folders that matter now. One that appears meanwhile is found by looking again."""
        for _ in range(_TRIES):
            wanted = {_nearest_folder(folder) for folder in {file.parent for file in files}}
            if wanted == self._numbers.keys():
                return
            for folder in self._numbers.keys() - wanted:
                self._drop(folder)
            for folder in wanted - self._numbers.keys():
                self._add(folder)

    def _add(self, folder: Path) -> None:
        flags = _CHANGES | _ONLY_FOLDERS | _NO_LINKS
        try:
            number = self._checked(self._libc.inotify_add_watch(self._handle, os.fsencode(folder), flags))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            logger.warning("changes in %s go unnoticed: %s (fs.inotify.max_user_watches)", folder, error.strerror)
            number = 0
        self._numbers[folder] = number

    def _drop(self, folder: Path) -> None:
        number = self._numbers.pop(folder)
        if number not in self._numbers.values():
            self._libc.inotify_rm_watch(self._handle, number)

    def _read(self) -> None:
        try:
            data = os.read(self._handle, _READ)
        except BlockingIOError:
            return
        changed, offset = set[Path](), 0
        while offset < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size + length
            changed |= self._about(number, mask, data[offset - length : offset].rstrip(b"\0"))
        if changed:
            self._settle(set[Path]().union(*self._concerned.values()))
            self._told(changed)

    def _about(self, number: int, mask: int, name: bytes) -> set[Path]:
        """The files that an event is about."""
        if mask & _OVERFLOW:
            return set[Path]().union(*self._concerned.values())
        folders = [folder for folder, its in self._numbers.items() if its == number]
        if mask & (_DELETE_SELF | _MOVE_SELF | _IGNORED):
            for folder in folders:
                self._drop(folder)
        return set[Path]().union(*(self._concerned.get(folder / os.fsdecode(name), ()) for folder in folders))


class Polling:
    """Looks at each file now and then."""

    def __init__(self, told: Told, seconds: float = 2.0) -> None:
        self._told, self._seconds = told, seconds
        self._seen: dict[Path, object] = {}
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._look)

    def watch(self, files: Set[Path]) -> None:
        self._seen = {file: self._seen[file] if file in self._seen else signature(file) for file in files}

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = {file: signature(file) for file in self._seen}
        changed = {file for file in now if now[file] != self._seen[file]}
        self._seen = now
        self._timer = self._loop.call_later(self._seconds, self._look)
        if changed:
            self._told(changed)


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir() and not folder.is_symlink())


def signature(file: Path) -> object:
    """Another one wherever something was written; of a link, its own."""
    try:
        found = file.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode
