"""Saves a file of ours in a workspace: through the root's descriptor, and over nothing that is somebody else's."""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rookery.files.paths import parse, shown
from rookery.files.sandbox import Handle, Root
from rookery.system.beneath import FILE, FOLDER
from rookery.system.errors import RookeryError
from rookery.system.lending import lend
from rookery.system.placing import place

# So much of a file tells whether it is ours.
_HEAD = 1024


def save(root: Root, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> Path:
    """Where it was saved. Folders on the way are made; a file that is there is replaced only if `is_ours`.

    Nothing is written where it is refused: outside of the root, where secrets are kept, in `.git`, in another
    workspace.
    """
    names = require_place(root, path)
    folder, missing = _deepest(root, names[:-1])
    with folder:
        found = (*folder.names, *missing, names[-1])
        _deny(root, path, found)
        try:
            inner = _made(folder.fd, missing)
            try:
                place(inner, names[-1], data, over=_replaceable(inner, names[-1], path, is_ours))
            finally:
                os.close(inner)
        except OSError as error:
            raise _failed(path, error) from error
    return root.path.joinpath(*found)


async def save_aside(root: Root, path: str, data: bytes, is_ours: Callable[[bytes], bool]) -> Path:
    """Save it in a thread, which is done with it although the root is closed meanwhile."""
    twin = root.twin()
    return await lend(partial(save, twin, path, data, is_ours), twin.close)


def require_place(root: Root, path: str) -> Sequence[str]:
    """The names of a file that might be saved there: what is wrong with a path can be told before there is anything."""
    names = parse(path, root.path)
    if not names or path.endswith("/") or ".." in names:
        raise RookeryError("invalid-input", f"{shown(path)} names no file", "name one, without `..`, as in a/b.png")
    _deny(root, path, names)
    return names


def _deny(root: Root, path: str, names: Sequence[str]) -> None:
    if why := root.denied.file(names):
        raise RookeryError("path-denied", f"nothing is saved at {shown(path)}: {why}", "choose another place")


def _deepest(root: Root, names: Sequence[str]) -> tuple[Handle, Sequence[str]]:
    """The deepest folder on the way that is there, and the names of those that are not."""
    for end in range(len(names), 0, -1):
        try:
            return root.open_folder("/".join(names[:end])), names[end:]
        except RookeryError as error:
            if error.code != "file-not-found":
                raise
    return root.open_folder("."), names


def _made(folder: int, names: Sequence[str]) -> int:
    """The innermost of these folders, open, each made in the one before it."""
    handle = os.dup(folder)
    for name in names:
        try:
            os.mkdir(name, dir_fd=handle)
            inner = os.open(name, FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _replaceable(folder: int, name: str, path: str, is_ours: Callable[[bytes], bool]) -> bool:
    """Whether a file of ours is there; raises where it is anything else."""
    try:
        handle = os.open(name, FILE, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and is_ours(os.read(handle, _HEAD)):
            return True
    finally:
        os.close(handle)
    raise _taken(path)


def _taken(path: str) -> RookeryError:
    return RookeryError(
        "invalid-input", f"{shown(path)} is there already, and was not saved from here", "choose another name"
    )


def _failed(path: str, error: OSError) -> RookeryError:
    if error.errno in (errno.EEXIST, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR):
        return _taken(path)
    return RookeryError("file-unwritable", f"{shown(path)} cannot be written: {error.strerror}", "choose another place")
