"""Save a file in a workspace, through the root's descriptor, without replacing files of others."""

import errno
import os
import re
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rookery.files.sandbox import Handle, SandboxRoot, format_path, parse_path
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_beneath
from rookery.system.fs.beneath import OPEN_FILE, OPEN_FOLDER
from rookery.system.threads import run_and_close

# How much of a file is read to check whether it is ours.
_HEAD_BYTES = 1024
# Such a name is rather a mistake, and Windows could not check it out.
_WINDOWS_NAME = re.compile(r"[\\:]|[. ]$")


def save_file(root: SandboxRoot, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> Path:
    """Save a file and return its path. Missing folders are created; an existing file is replaced only if `is_ours`.

    Nothing is written if the path is refused: outside of the root, a folder for secrets, in `.git`, in another
    workspace.
    """
    names = require_savable(root, path)
    folder, missing = _open_deepest(root, names[:-1])
    with folder:
        location = (*folder.names, *missing, names[-1])
        _require_allowed(root, path, location)
        try:
            inner = _make_folders(folder.fd, missing)
            try:
                write_beneath(inner, names[-1], data, replace=_is_replaceable(inner, names[-1], path, is_ours))
            finally:
                os.close(inner)
        except OSError as error:
            raise _write_error(path, error) from error
    return root.path.joinpath(*location)


async def save_file_in_thread(root: SandboxRoot, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> Path:
    """Save a file in a thread, which finishes even if the root is closed meanwhile."""
    root_copy = root.duplicate()
    return await run_and_close(partial(save_file, root_copy, path, data, is_ours), root_copy.close)


def require_savable(root: SandboxRoot, path: str) -> Sequence[str]:
    """Return the names of a path at which a file may be saved; raise early, before there is any data."""
    names = parse_path(path, root.path)
    if not names or path.endswith("/") or ".." in names:
        raise RookeryError(
            "invalid-input",
            f"{format_path(path)} is not the path of a file",
            "use a path without `..`, such as a/b.png",
        )
    if any(_WINDOWS_NAME.search(name) for name in names):
        message = f"{format_path(path)} contains a backslash or a colon, or a name ends with a dot or a space"
        raise RookeryError("invalid-input", message, "use a name that works on every system")
    _require_allowed(root, path, names)
    return names


def _require_allowed(root: SandboxRoot, path: str, names: Sequence[str]) -> None:
    if reason := root.deny_rules.file_denial(names):
        raise RookeryError(
            "path-denied", f"saving at {format_path(path)} is not allowed: {reason}", "choose another path"
        )


def _open_deepest(root: SandboxRoot, names: Sequence[str]) -> tuple[Handle, Sequence[str]]:
    """Open the deepest existing folder of a path; return it and the names of the missing ones."""
    for end in range(len(names), 0, -1):
        try:
            return root.open_folder("/".join(names[:end])), names[end:]
        except RookeryError as error:
            if error.code != "file-not-found":
                raise
    return root.open_folder("."), names


def _make_folders(folder: int, names: Sequence[str]) -> int:
    """Create these folders, each in the one before it, and return a descriptor of the innermost."""
    handle = os.dup(folder)
    for name in names:
        try:
            os.mkdir(name, dir_fd=handle)
            inner = os.open(name, OPEN_FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _is_replaceable(folder: int, name: str, path: str, is_ours: Callable[[bytes], bool]) -> bool:
    """Return whether a file of ours exists; raise if anything else does."""
    try:
        handle = os.open(name, OPEN_FILE, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and is_ours(os.read(handle, _HEAD_BYTES)):
            return True
    finally:
        os.close(handle)
    raise _taken_error(path)


def _taken_error(path: str) -> RookeryError:
    return RookeryError(
        "invalid-input", f"{format_path(path)} already exists, and was not saved by Rookery", "choose another name"
    )


def _write_error(path: str, error: OSError) -> RookeryError:
    if error.errno in (errno.EEXIST, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR):
        return _taken_error(path)
    return RookeryError(
        "file-unwritable", f"{format_path(path)} cannot be written: {error.strerror}", "choose another path"
    )
