"""The system call openat2 of Linux, which CPython does not wrap: the kernel itself keeps a path beneath a folder."""

import ctypes
import errno
import functools
import os
import sys

# The same number on every architecture that Python is built for here.
_NUMBER = 437
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 1, 2, 4, 8
# The kernel gives up if a rename came in between; after so many in a row, somebody means it.
_TRIES = 64


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES = ctypes.sizeof(_How)


@functools.cache
def _how(flags: int, resolve: int) -> "ctypes._CArgObject":  # pyright: ignore[reportPrivateUsage]
    """The kernel only reads it, so that all calls can share one."""
    return ctypes.byref(_How(flags, 0, resolve))


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def available() -> bool:
    """Whether the kernel has the call, and no filter of a container forbids it."""
    if sys.platform != "linux":
        return False
    folder = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_linkless(folder, b".", os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def open_linkless(folder: int, path: bytes, flags: int, *, one_filesystem: bool = False) -> int:
    """Open `path` beneath the descriptor `folder`: EXDEV if it leads out, ELOOP if any part of it is a link."""
    if b"\0" in path:
        raise OSError(errno.EINVAL, "a path ends at a NUL byte", path)
    resolve = _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS | (_NO_XDEV if one_filesystem else 0)
    # With NOFOLLOW a link at the end would not count as one that was met.
    how = _how(flags & ~os.O_NOFOLLOW, resolve)
    number = errno.EAGAIN
    for _ in range(_TRIES):
        handle: int = _library().syscall(_NUMBER, folder, path, how, _HOW_BYTES)
        if handle >= 0:
            return handle
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)
