"""Write files atomically, and read and copy files without following links.

A file is complete or untouched: temporary file, fsync, rename, fsync of the folder.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path, PurePath
from typing import TypeVar

from rookery.system.errors import RookeryError

# The command line reads files before anything else: modules that take long to import are imported where they are used.
T = TypeVar("T")

_CHUNK = 65_536
_MAX_JSON_BYTES = 2**20
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Opening a named pipe without a writer must not block.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

# The errors of a file system without hard links.
_NO_LINK_ERRNOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_FICLONE = 0x40049409  # FICLONE of Linux: the copy shares its blocks with the original until either is written to
_BLOCK = 2**20


def write_atomic(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of `path`, and set its mode to `mode` or keep it.

    A symlink is kept and its target replaced: people keep their settings in linked folders.
    """
    target = path.resolve()
    if mode is None:
        try:
            mode = stat.S_IMODE(target.stat().st_mode)
        except FileNotFoundError:
            mode = 0o644
    _replace(target, data, mode)


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only the owner can read; refuse a symlink, which could lead the secret elsewhere."""
    if path.is_symlink():
        raise RookeryError(
            "unsafe-file", f"{path} is a symbolic link; secrets are not written through links", "remove the link"
        )
    _replace(path, data, 0o600)


def read_secret(path: Path) -> bytes | None:
    """Return the content of a secret file, or None; refuse links and files that others own or can access."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RookeryError(
            "unsafe-file", f"cannot read {path}: {error.strerror}", "remove it; a new one will be created"
        ) from error
    file_stat = os.fstat(handle)
    if not stat.S_ISREG(file_stat.st_mode) or file_stat.st_uid != os.getuid():
        os.close(handle)
        raise RookeryError("unsafe-file", f"{path} is not a regular file owned by this user", "remove it")
    with os.fdopen(handle, "rb") as file:
        if file_stat.st_mode & 0o077:
            raise RookeryError(
                "unsafe-file",
                f"{path} is accessible to other users (mode {stat.S_IMODE(file_stat.st_mode):04o})",
                f"remove it, and a new secret will be created: rm {path}",
            )
        return file.read()


def read_plain(path: Path | str, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; raise OSError for all else, such as a pipe."""
    return _read_plain(os.open(path, _READ_FLAGS), path, limit)


class UnreadableFile(Exception):
    """A file of Rookery with unexpected content. The text gives the reason, without the path."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def read_json(path: Path | str, type_: type[T], limit: int = _MAX_JSON_BYTES) -> T:
    """Return the content of a JSON file; raise FileNotFoundError if it is missing, UnreadableFile if it is unusable.

    Never blocks, whatever is at the path, and neither size nor nesting can exhaust the process.
    """
    import msgspec

    try:
        return msgspec.json.decode(read_plain(path, limit), type=type_)
    except FileNotFoundError as error:
        if Path(path).is_symlink():
            raise UnreadableFile(path, "it is a broken link") from error
        raise
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except RecursionError as error:
        raise UnreadableFile(path, "it is nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableFile(path, f"its content is invalid: {error}") from error


def read_beneath(folder: Path, relative: PurePath, limit: int) -> bytes:
    """Read a regular file, as `read_plain` does, in a folder in which others may create files.

    No part of the path may be a link, and each part is opened relative to the one before it: so the file is in
    `folder`, even if others rename files meanwhile.
    """
    from rookery.system.fs.beneath import OPEN_FILE, Beneath

    if relative.is_absolute() or not relative.parts or ".." in relative.parts:
        raise OSError(errno.EACCES, "not in the folder", str(relative))
    start = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Not by the kernel: only a walk can report which part is a link.
        handle = Beneath(start, use_openat2=False).open_linkless(relative.parts, OPEN_FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, error.strerror, str(folder / relative)) from None
        raise
    finally:
        os.close(start)
    return _read_plain(handle, folder / relative, limit)


def _read_plain(handle: int, path: Path | str, limit: int) -> bytes:
    try:
        file_stat = os.fstat(handle)
        if stat.S_ISREG(file_stat.st_mode):
            # Request the size of the file and not the limit, since a buffer of the requested size is allocated.
            data = os.read(handle, min(file_stat.st_size, limit) + 1)
            while len(data) <= limit and (more := os.read(handle, _CHUNK)):
                data += more
            if len(data) <= limit:
                return data
    finally:
        os.close(handle)
    raise OSError(errno.EINVAL, f"not a regular file of at most {limit} bytes", str(path))


def remove_file(path: Path) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def append_line(path: Path, text: str, max_bytes: int = 1_000_000) -> None:
    """Append a line to a file that only the owner can read. A full file is first renamed to `<name>.1`."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > max_bytes:
            rename_durably(path, path.with_name(f"{path.name}.1"))
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "ab") as file:
        file.write(f"{text}\n".encode("utf-8", "backslashreplace"))


def rename_durably(path: Path, target: Path) -> None:
    """Rename a file and sync the folder, so that the new name survives a power cut."""
    path.rename(target)
    _sync_folder(target.parent)


def set_aside(path: Path, reason: str) -> str:
    """Rename a damaged file, so that a new one can be created; return a message about it."""
    aside = path.with_name(f"{path.name}.set-aside")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.set-aside-{number}")
    try:
        rename_durably(path, aside)
    except OSError as error:
        error.filename2 = None  # the obstacle is the file, and not the new name
        raise
    return f"{path} was damaged ({reason}); it was renamed to {aside}, and a new one will be created"


def set_aside_unusable(path: Path, *, folder: bool = False) -> str | None:
    """Rename whatever is at the path of a file, or of a `folder`, and cannot be used as one: a pipe, a device, a link.

    Returns a message about it; None if nothing is wrong.
    """
    try:
        file_stat = path.stat()
    except FileNotFoundError:
        return set_aside(path, "it is a broken link") if path.is_symlink() else None
    except OSError as error:
        return set_aside(path, error.strerror or str(error)) if os.path.lexists(path) else None
    if (stat.S_ISDIR if folder else stat.S_ISREG)(file_stat.st_mode):
        usable = os.access(path, os.R_OK | os.W_OK | (os.X_OK if folder else 0))
        return None if usable else set_aside(path, f"its mode is {stat.S_IMODE(file_stat.st_mode):04o}")
    return set_aside(path, f"it is {_KINDS.get(stat.S_IFMT(file_stat.st_mode), 'something else')}")


def _replace(path: Path, data: bytes, mode: int) -> None:
    import secrets

    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            # The error of a write to a full disk contains no path.
            error.filename = str(path)
            error.filename2 = None
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_beneath(folder: int, name: str, data: bytes, *, replace: bool) -> None:
    """Write a complete file or none. Raise FileExistsError if one exists, unless `replace` allows to replace it."""
    temporary = f".rookery-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace or not _link_exclusively(folder, temporary, name):
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    with contextlib.suppress(OSError):
        os.fsync(folder)


def _link_exclusively(folder: int, temporary: str, name: str) -> bool:
    """Link the file to its name if that is free; return False if the file system has no links and it is free."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        return False
    return True


def copy_beneath(source: Path, target: Path, relative: PurePath) -> bool:
    """Copy `source/relative` to `target/relative` and create the folders; return False if the target exists already.

    A link is copied as a link if it stays within the folder. Raises OSError for anything else but a regular file.
    """
    with contextlib.ExitStack() as opened:
        source_folder = _open_folder(opened, source, relative.parent, make=False)
        target_folder = _open_folder(opened, target, relative.parent, make=True)
        file_stat = os.stat(relative.name, dir_fd=source_folder, follow_symlinks=False)
        try:
            if stat.S_ISLNK(file_stat.st_mode):
                os.symlink(_read_inner_link(source_folder, relative), relative.name, dir_fd=target_folder)
                return True
            if not stat.S_ISREG(file_stat.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(source / relative))
            _copy_file(opened, source_folder, target_folder, relative.name)
        except FileExistsError:
            return False
    return True


def _open_folder(stack: contextlib.ExitStack, root: Path, relative: PurePath, *, make: bool) -> int:
    """Open a folder, each part of the path relative to the one before it, and return its descriptor."""
    if relative.is_absolute() or ".." in relative.parts:
        raise OSError(errno.EACCES, "not in the folder", str(relative))
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(root, flags)
    stack.callback(os.close, handle)
    for part in relative.parts:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=handle)
        handle = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
        stack.callback(os.close, handle)
    return handle


def _read_inner_link(folder: int, relative: PurePath) -> str:
    """Return the target of a link; raise if it leads out of the root."""
    link_target = os.readlink(relative.name, dir_fd=folder)
    depth = len(relative.parent.parts)
    for part in PurePath(link_target).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            break
    if depth < 0 or PurePath(link_target).is_absolute():
        raise OSError(errno.EACCES, f"a link that leads outside, to {link_target}", str(relative))
    return link_target


def _copy_file(stack: contextlib.ExitStack, source_folder: int, target_folder: int, name: str) -> None:
    # A pipe that took the file's place must not block us.
    original = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source_folder)
    stack.callback(os.close, original)
    mode = stat.S_IMODE(os.fstat(original).st_mode) & 0o777
    # The copy gets its name once it is complete: after a crash, the next try finds nothing or the whole file.
    part = f".{name[:100]}.{os.getpid():x}.part"
    copy = os.open(
        part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=target_folder
    )
    try:
        try:
            fcntl.ioctl(copy, _FICLONE, original)
        except OSError:
            while block := os.read(original, _BLOCK):
                view = memoryview(block)
                while view:
                    view = view[os.write(copy, view) :]
        os.fchmod(copy, mode)
        os.link(part, name, src_dir_fd=target_folder, dst_dir_fd=target_folder, follow_symlinks=False)
    finally:
        os.close(copy)
        os.unlink(part, dir_fd=target_folder)
