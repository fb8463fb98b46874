"""Files that are whole or untouched: temporary file, fsync, rename, fsync of the folder."""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path, PurePath

from rookery.system.beneath import FILE, Beneath
from rookery.system.errors import RookeryError

_CHUNK = 65_536
# A pipe without a writer must not hold us up.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of `path`, keeping its mode, or giving it `mode`.

    A symlink stays, and its target is replaced: people keep their settings in linked folders.
    """
    target = path.resolve()
    if mode is None:
        try:
            mode = stat.S_IMODE(target.stat().st_mode)
        except FileNotFoundError:
            mode = 0o644
    _replace(target, data, mode)


def write_secret(path: Path, data: bytes) -> None:
    """Like `write_atomic`, for the owner's eyes only; refuses a symlink, which could lead the secret elsewhere."""
    if path.is_symlink():
        raise RookeryError(
            "unsafe-file", f"{path} is a symbolic link; a secret is not written through one", "remove it"
        )
    _replace(path, data, 0o600)


def read_secret(path: Path) -> bytes | None:
    """The content of a secret file, None if there is none; refuses links and what others may read or have written."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RookeryError(
            "unsafe-file", f"cannot read {path}: {error.strerror}", "remove it; a new one will be made"
        ) from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise RookeryError("unsafe-file", f"{path} is not a regular file of this user", "remove it")
        if found.st_mode & 0o077:
            raise RookeryError(
                "unsafe-file",
                f"{path} can be used by others (mode {stat.S_IMODE(found.st_mode):04o})",
                f"remove it, so that a new secret is made: rm {path}",
            )
        return file.read()


def read_plain(path: Path | str, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes; OSError for all else, a pipe or a device among it."""
    return _read_plain(os.open(path, _READING), path, limit)


def read_beneath(folder: Path, relative: PurePath, limit: int) -> bytes:
    """Like `read_plain`, for a file in a folder that others may have filled.

    No part of the way may be a link, and each is opened from the one before it: so what is read lies in `folder`,
    whoever renames what in the meantime.
    """
    if relative.is_absolute() or not relative.parts or ".." in relative.parts:
        raise OSError(errno.EACCES, "not in the folder", str(relative))
    start = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The walk and not the kernel, because it can say which part is a link.
        handle = Beneath(start, by_kernel=False).open_linkless(relative.parts, FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, error.strerror, str(folder / relative)) from None
        raise
    finally:
        os.close(start)
    return _read_plain(handle, folder / relative, limit)


def _read_plain(handle: int, path: Path | str, limit: int) -> bytes:
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode):
            # As much as there is and not as much as there may be, since room is made for all that is asked for.
            data = os.read(handle, min(found.st_size, limit) + 1)
            while len(data) <= limit and (more := os.read(handle, _CHUNK)):
                data += more
            if len(data) <= limit:
                return data
    finally:
        os.close(handle)
    raise OSError(errno.EINVAL, f"not a plain file of at most {limit} bytes", str(path))


def remove(path: Path) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def append_line(path: Path, text: str, largest: int = 1_000_000) -> None:
    """Put a line behind the others, for the owner's eyes only. A full file becomes the older one, `<name>.1`."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > largest:
            move_aside(path, path.with_name(f"{path.name}.1"))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(f"{text}\n".encode("utf-8", "backslashreplace"))


def move_aside(path: Path, to: Path) -> None:
    """Rename durably."""
    path.rename(to)
    _sync_folder(to.parent)


def _replace(path: Path, data: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
