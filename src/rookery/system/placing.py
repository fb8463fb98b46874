"""Puts whole files into a folder that is open, whoever renames what around it meanwhile."""

import contextlib
import errno
import os
import secrets

# What a filesystem says that cannot give a file a second name.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def place(folder: int, name: str, data: bytes, *, over: bool) -> None:
    """The file is whole or not there. FileExistsError where one is there and this one is not to go over it."""
    temporary = f".rookery-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if over or not _linked(folder, temporary, name):
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.fsync(folder)


def _linked(folder: int, temporary: str, name: str) -> bool:
    """Give it its name only if nothing has that; False where the filesystem cannot, and nothing has."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        return False
    return True
