"""Open files and read folders beneath a folder in which others may create and rename files.

There are two ways with the same results: `openat2`, where the kernel has it, and a walk part by part. The kernel never
follows a link. Links are resolved here, by their text, so that the returned names are those that were opened.

`read_entries` reads a folder with one getdents64 call; CPython returns entries only one by one.
"""

import ctypes
import errno
import functools
import os
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# The number of the system call openat2, the same on all supported architectures.
_OPENAT2 = 437
_NO_XDEV = 1
_NO_MAGICLINKS = 2
_NO_SYMLINKS = 4
_RESOLVE_BENEATH = 8
# The kernel gives up on a concurrent rename; after so many in a row, assume an attack.
_TRIES = 64

# Without O_PATH, each folder of a path must be readable.
PATH = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER_FLAGS = PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Does not wait for the other end of a pipe, and makes no terminal our controlling one.
OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As many links as the kernel follows.
_MAX_LINKS = 40
# Large enough to read most folders with one call.
_BUFFER_BYTES = 32 * 2**10
# A record: inode and offset (skipped), length of the record, type; then the name up to a NUL.
_HEAD = struct.Struct("=16xHB")
# The types of entries, as the kernel numbers them.
ENTRY_UNKNOWN = 0
ENTRY_FOLDER = 4
ENTRY_FILE = 8
ENTRY_LINK = 10


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPEN_HOW_BYTES = ctypes.sizeof(_OpenHow)


@functools.cache
def _make_open_how(flags: int, resolve: int) -> "ctypes._CArgObject":  # pyright: ignore[reportPrivateUsage]
    """Return the argument for openat2. The kernel only reads it, so that all calls can share it."""
    return ctypes.byref(_OpenHow(flags, 0, resolve))


@functools.cache
def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def has_openat2() -> bool:
    """Return whether the kernel has openat2 and no filter of a container forbids it."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_without_links(folder, b".", os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def open_without_links(folder: int, path: bytes, flags: int, *, one_filesystem: bool = False) -> int:
    """Open `path` beneath the descriptor `folder`: EXDEV if it leads out, ELOOP if any part of it is a link."""
    if b"\0" in path:
        raise OSError(errno.EINVAL, "the path contains a NUL byte", path)
    resolve = _RESOLVE_BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS | (_NO_XDEV if one_filesystem else 0)
    # With NOFOLLOW, a link as the last part would not be reported.
    how = _make_open_how(flags & ~os.O_NOFOLLOW, resolve)
    number = errno.EAGAIN
    for _ in range(_TRIES):
        handle: int = _load_libc().syscall(_OPENAT2, folder, path, how, _OPEN_HOW_BYTES)
        if handle >= 0:
            return handle
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


class OpenedFile(NamedTuple):
    """A descriptor, and the names that lead to it from the folder, without links."""

    handle: int
    names: tuple[str, ...]


class _Link(OSError):
    """A part of the path is a link."""


@dataclass(frozen=True)
class Beneath:
    """Opens files beneath `folder`, a descriptor that its owner closes. OSError (EXDEV) for paths that lead out."""

    folder: int
    use_openat2: bool
    one_filesystem: bool = False

    def open(self, names: Sequence[str], flags: int) -> OpenedFile:
        """Open a path that may contain `..` and links, as long as it stays beneath the folder."""
        if ".." not in names:
            try:
                return OpenedFile(self.open_linkless(names, flags), tuple(names))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        return self._follow(names, flags)

    def open_linkless(self, names: Sequence[str], flags: int) -> int:
        """Open a path of plain names; raise ELOOP if one of them is a link."""
        if self.use_openat2:
            path = os.fsencode("/".join(names)) or b"."
            return open_without_links(self.folder, path, flags, one_filesystem=self.one_filesystem)
        current = _WalkPosition(self)
        try:
            for name in names[:-1]:
                current.enter(name)
            return current.open(names[-1] if names else ".", flags)
        finally:
            current.close()

    def enter(self, folder: int, name: str) -> int:
        """Open a folder by its plain name in another one that was opened beneath; ELOOP or ENOTDIR if it is a link."""
        if not self.one_filesystem:
            return os.open(name, OPEN_FOLDER, dir_fd=folder)
        return _open_child(folder, name, OPEN_FOLDER, os.fstat(self.folder).st_dev)

    def _follow(self, names: Sequence[str], flags: int) -> OpenedFile:
        remaining = list(reversed(names))
        resolved = list[str]()
        links = 0
        current = _WalkPosition(self)
        try:
            while remaining:
                name = remaining.pop()
                if name == "..":
                    if not resolved:
                        raise OSError(errno.EXDEV, "the path leads outside the folder")
                    resolved.pop()
                    # Never open `..` itself: the folder may have been moved elsewhere by now.
                    current.move(self.open_linkless(resolved, _FOLDER_FLAGS))
                    continue
                try:
                    if not remaining:
                        return OpenedFile(current.open(name, flags), (*resolved, name))
                    current.enter(name)
                    resolved.append(name)
                except _Link as link:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, "too many symbolic links") from None
                    remaining += reversed(_split_target(str(link.filename)))
            return OpenedFile(current.open(".", flags), tuple(resolved))
        finally:
            current.close()


class _WalkPosition:
    """The folder that a walk has reached."""

    def __init__(self, beneath: Beneath) -> None:
        self._start = self._handle = beneath.folder
        self._device = os.fstat(beneath.folder).st_dev if beneath.one_filesystem else None

    def enter(self, name: str) -> None:
        self.move(self.open(name, _FOLDER_FLAGS))

    def open(self, name: str, flags: int) -> int:
        try:
            return _open_child(self._handle, name, flags, self._device)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
                self._raise_if_link(name)
            raise

    def _raise_if_link(self, name: str) -> None:
        try:
            target = os.readlink(name, dir_fd=self._handle)
        except OSError:
            return
        raise _Link(errno.ELOOP, f"{name} is a symbolic link", target)

    def move(self, handle: int) -> None:
        self.close()
        self._handle = handle

    def close(self) -> None:
        if self._handle != self._start:
            os.close(self._handle)
        self._handle = self._start


def _open_child(folder: int, name: str, flags: int, device: int | None) -> int:
    """Open an entry of a folder without following a link; raise EXDEV if it is on another device."""
    handle = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    if device is not None and os.fstat(handle).st_dev != device:
        os.close(handle)
        raise OSError(errno.EXDEV, "it is on another file system", name)
    return handle


def _split_target(target: str) -> list[str]:
    """Return the target of a link as names; raise EXDEV for an absolute one, which counts as outside."""
    if target.startswith("/"):
        raise OSError(errno.EXDEV, "an absolute symbolic link leads outside the folder")
    return [part for part in target.split("/") if part not in ("", ".")]


@functools.cache
def _load_getdents() -> Callable[..., int] | None:
    """Return getdents64 of the C library, since the call number varies by architecture; None if there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "getdents64", None)
    if function is not None:
        function.restype = ctypes.c_ssize_t
        function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    return function


def read_entries(folder: int) -> bytes | None:
    """Return all records of a folder; None if one call does not return them all, or there is no such call."""
    call = _load_getdents()
    if call is None:
        return None
    # A new buffer each time: the kernel does not write the padding, and equal folders must give equal bytes.
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    length = call(folder, buffer, _BUFFER_BYTES)
    records = ctypes.string_at(buffer, max(length, 0))
    if length >= 0 and (length == 0 or call(folder, buffer, _BUFFER_BYTES) == 0):
        return records
    os.lseek(folder, 0, os.SEEK_SET)
    return None


def parse_entries(records: bytes) -> tuple[list[str], bytes]:
    """Return the names, and the type of each."""
    names = list[bytes]()
    types = bytearray()
    offset = 0
    end = len(records)
    while offset < end:
        length, kind = _HEAD.unpack_from(records, offset)
        names.append(records[offset + _HEAD.size : offset + length].rstrip(b"\0"))
        types.append(kind)
        offset += length
    return os.fsdecode(b"\0".join(names)).split("\0") if names else [], bytes(types)
