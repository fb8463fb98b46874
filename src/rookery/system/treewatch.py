"""Tells in whose folders something changed: one inotify descriptor for any number of folders of any number of owners.

What is told is only that an owner's folders are no longer as they were, and by which name, since whoever keeps an
answer needs no more to know that it is old.
"""

import asyncio
import contextlib
import errno
import os
import struct
from collections.abc import Callable
from typing import Any

# The owner, the name within the folder, and whether folders came or went.
Told = Callable[[str, bytes, bool], None]

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x40 | 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_ONLY_FOLDERS, _NO_LINKS, _OF_FOLDER = 0x0100_0000, 0x0200_0000, 0x4000_0000
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
# Not only when a file is closed: one that is being written has changed already.
_WATCHED = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS | _NO_LINKS
_HEAD = struct.Struct("iIII")
_READ = 262_144
# More than the kernel's queue holds by default; whoever writes without end must not hold us up.
_READS = 16


class LimitReached(Exception):
    """The system watches no more folders for this user."""


class TreeWatch:
    """Made within a running loop, in whose thread it calls back; `add` may be called in any thread.

    Raises OSError where there is no inotify.
    """

    def __init__(self, told: Told) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._libc: Any = libc
        self._errno = ctypes.get_errno
        self._told = told
        self._owners: dict[int, set[str]] = {}
        self._folders: dict[str, set[int]] = {}
        self._handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise OSError(self._errno(), os.strerror(self._errno()))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._handle, self.catch_up)

    def add(self, owner: str, folder: bytes) -> None:
        """Watch a folder, without those in it. One that is no longer there needs no watch."""
        number = self._libc.inotify_add_watch(self._handle, folder, _WATCHED)
        if number < 0:
            if self._errno() in (errno.ENOSPC, errno.ENOMEM):
                raise LimitReached
            return
        self._folders.setdefault(owner, set()).add(number)
        self._owners.setdefault(number, set()).add(owner)

    def drop(self, owner: str) -> None:
        """Watch nothing more for this owner."""
        for number in self._folders.pop(owner, ()):
            owners = self._owners.get(number, set())
            owners.discard(owner)
            if not owners:
                self._owners.pop(number, None)
                self._libc.inotify_rm_watch(self._handle, number)

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def catch_up(self) -> None:
        """Tell now of all that has happened: whoever is about to answer need not wait for the loop's next turn."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_READS):
                self._tell(os.read(self._handle, _READ))

    def _tell(self, data: bytes) -> None:
        seen = set[tuple[str, bytes, bool]]()
        offset = 0
        while offset < len(data):
            number, mask, _, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size + length
            name = data[offset - length : offset].rstrip(b"\0")
            seen |= {(owner, name, bool(mask & (_OF_FOLDER | _GONE))) for owner in self._about(number, mask)}
        for owner, name, folders in seen:
            self._told(owner, name, folders)

    def _about(self, number: int, mask: int) -> set[str]:
        """Whose folder an event is about; everyone's, if events were lost."""
        if mask & _OVERFLOW:
            return set(self._folders)
        owners = set(self._owners.get(number, ()))
        if mask & _IGNORED:
            for owner in self._owners.pop(number, ()):
                self._folders.get(owner, set()).discard(number)
        return owners
