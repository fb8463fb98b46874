"""The sandbox: everything in a workspace is opened through one descriptor of its root, or not at all.

There is no check of a path before an open that could come to lie: what was opened is judged, and only its descriptor
is used from then on.
"""

import copy
import dataclasses
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rookery.files.ignoring import TrackedOnce
from rookery.files.paging import Paging
from rookery.files.paths import outside, parse, shown
from rookery.files.scanning import Folders
from rookery.files.secrets import Denied
from rookery.system import openat2
from rookery.system.beneath import FILE, FOLDER, PATH, Beneath
from rookery.system.errors import RookeryError

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


class Handle(NamedTuple):
    """Something that is open: its descriptor, where it lies without links, and what `fstat` says of it."""

    fd: int
    names: tuple[str, ...]
    found: os.stat_result

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self.fd)


class Root:
    """The root of a workspace. The descriptor is held until `close`; a folder put in its place later is not the root.

    `by_kernel` chooses how paths are followed; without it, openat2 is used where the kernel has it.
    """

    def __init__(
        self,
        path: Path,
        denied: Denied | None = None,
        *,
        by_kernel: bool | None = None,
        one_filesystem: bool = False,
    ) -> None:
        self.path = path
        self._place = str(path)
        self.denied = denied or Denied()
        self.paging = Paging()
        self.tracked = TrackedOnce()
        self.folders = Folders()
        _check_root(path)
        try:
            self._fd = os.open(path, PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _gone(path, "is not a folder that can be opened") from error
        held = os.fstat(self._fd)
        self._mark = (held.st_dev, held.st_ino)
        self._beneath = Beneath(self._fd, openat2.available() if by_kernel is None else by_kernel, one_filesystem)

    def close(self) -> None:
        self.paging.clear()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> "Root":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def open_file(self, path: str) -> Handle:
        """A plain file, to be read and closed; an error for all else. A pipe or a device does not hold us up."""
        handle = self._open(path, FILE, self.denied.file)
        if stat.S_ISREG(handle.found.st_mode) and not path.endswith("/"):
            return handle
        with handle:
            raise _no_file(path, handle.found.st_mode)

    def open_folder(self, path: str) -> Handle:
        """A folder, to be listed and closed."""
        return self._open(path, FOLDER, self.denied.folder)

    def held(self) -> Beneath:
        """The way into this root for a thread, with a descriptor of its own, which is the caller's to close."""
        if self._fd < 0:
            raise _gone(self.path, "is closed")
        return dataclasses.replace(self._beneath, folder=os.dup(self._fd))

    def twin(self) -> "Root":
        """The same root for a thread: it stays open when this one is closed, until it is closed itself."""
        made = copy.copy(self)
        made._beneath, made.paging = self.held(), Paging()
        made._fd = made._beneath.folder
        return made

    def _open(self, path: str, flags: int, why: Callable[[Sequence[str]], str]) -> Handle:
        self._check_place()
        names = parse(path, self.path)
        # What is denied by the names alone is not even looked at: whether it is there is no one's business.
        _deny(path, why(names))
        try:
            opened = self._beneath.open(names, flags)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            if opened.names != names:
                _deny(path, why(opened.names))
            return Handle(opened.handle, opened.names, os.fstat(opened.handle))
        except BaseException:
            os.close(opened.handle)
            raise

    def _check_place(self) -> None:
        """A workspace that was removed lives on in the trash, and another may have taken its place."""
        try:
            # Not through the path itself, which takes five times as long.
            there = os.stat(self._place, follow_symlinks=False)  # noqa: PTH116
        except OSError as error:
            raise _gone(self.path, "is gone") from error
        if self._fd < 0:
            raise _gone(self.path, "is closed")
        if (there.st_dev, there.st_ino) != self._mark:
            raise _gone(self.path, "is another folder than it was")


def _no_file(path: str, mode: int) -> RookeryError:
    if stat.S_ISREG(mode):
        return _unusable(path, OSError(errno.ENOTDIR, ""))
    kind = next((kind for test, kind in _KINDS if test(mode)), "a device")
    remedy = "use list_directory for folders" if kind == "a folder" else "only plain files can be read"
    return RookeryError("invalid-input", f"{shown(path)} is {kind}, not a file", remedy)


def _check_root(path: Path) -> None:
    home = Path.home()
    if path in (home, *home.parents) or not path.is_absolute() or ".." in path.parts:
        raise RookeryError(
            "invalid-input", f"{path} cannot be the root of a workspace", "use a folder that holds nothing else"
        )


def _gone(path: Path, why: str) -> RookeryError:
    return RookeryError("workspace-not-found", f"{path} {why}", "open the workspace again, or choose another one")


def _deny(path: str, why: str) -> None:
    if why:
        raise RookeryError("path-denied", f"{shown(path)} is not shown: {why}", "go on without it, or ask the user")


def _unusable(path: str, error: OSError) -> RookeryError:
    """What the system's answer means to whoever gave the path."""
    name = shown(path)
    match error.errno:
        case errno.EXDEV:
            return outside(path)
        case errno.ENOENT:
            return RookeryError("file-not-found", f"{name} does not exist", "list_directory tells what there is")
        case errno.ENOTDIR:
            return RookeryError("invalid-input", f"{name}, or a name on the way to it, is not a folder")
        case errno.ELOOP:
            return RookeryError("invalid-input", f"{name} is a symbolic link that leads round in a circle")
        case errno.ENAMETOOLONG:
            return RookeryError("invalid-input", f"{name} is too long for a path")
        case errno.ENXIO | errno.ENODEV:
            return RookeryError("invalid-input", f"{name} is a socket or a device, not a file")
        case errno.EMFILE | errno.ENFILE:
            return RookeryError("file-unreadable", f"{name}: too many files are open", "try again in a moment")
        case _:
            return RookeryError("file-unreadable", f"{name} cannot be opened: {error.strerror}")
