"""Copies of single files between two folders that others may have filled: no link is followed on either side."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path, PurePath

_CLONE = 0x40049409  # FICLONE of Linux: the copy shares its blocks with the original until one is written to
_BLOCK = 2**20


def copy_beneath(source: Path, target: Path, relative: PurePath) -> bool:
    """Copy `source/relative` to `target/relative`, making folders on the way; False where something is there already.

    A link is copied as a link if it stays within the folder. OSError for all else that is not a plain file.
    """
    with contextlib.ExitStack() as opened:
        there = _folder(opened, source, relative.parent, make=False)
        here = _folder(opened, target, relative.parent, make=True)
        found = os.stat(relative.name, dir_fd=there, follow_symlinks=False)
        try:
            if stat.S_ISLNK(found.st_mode):
                os.symlink(_kept_within(there, relative), relative.name, dir_fd=here)
                return True
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a plain file", str(source / relative))
            _copy(opened, there, here, relative.name)
        except FileExistsError:
            return False
    return True


def _folder(opened: contextlib.ExitStack, root: Path, relative: PurePath, *, make: bool) -> int:
    """A handle of a folder, every part of the way opened from the one before it."""
    if relative.is_absolute() or ".." in relative.parts:
        raise OSError(errno.EACCES, "not in the folder", str(relative))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(root, flags)
    opened.callback(os.close, handle)
    for part in relative.parts:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=handle)
        handle = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
        opened.callback(os.close, handle)
    return handle


def _kept_within(folder: int, relative: PurePath) -> str:
    """What a link says, if that leads to no place above the root."""
    says = os.readlink(relative.name, dir_fd=folder)
    depth = len(relative.parent.parts)
    for part in PurePath(says).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if depth < 0 or PurePath(says).is_absolute():
        raise OSError(errno.EACCES, f"a link that leads out, to {says}", str(relative))
    return says


def _copy(opened: contextlib.ExitStack, there: int, here: int, name: str) -> None:
    # A pipe that took the file's place must not hold us up.
    original = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=there)
    opened.callback(os.close, original)
    mode = stat.S_IMODE(os.fstat(original).st_mode) & 0o777
    # Under its name only once it is whole: whatever ends us, the next try finds nothing or all of it.
    part = f".{name[:100]}.{os.getpid():x}.part"
    copy = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=here)
    try:
        try:
            fcntl.ioctl(copy, _CLONE, original)
        except OSError:
            while block := os.read(original, _BLOCK):
                view = memoryview(block)
                while view:
                    view = view[os.write(copy, view) :]
        os.fchmod(copy, mode)
        os.link(part, name, src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
    finally:
        os.close(copy)
        os.unlink(part, dir_fd=here)
