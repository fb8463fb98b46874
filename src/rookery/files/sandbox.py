"""Open files of a workspace beneath one descriptor of its root, and nothing outside it.

A path is parsed to plain names and taken literally. No path is checked before it is opened, since it could change in
between: the opened file is checked, and only its descriptor is used from then on.
"""

import copy
import dataclasses
import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from rookery.files.entries import parse_display_path
from rookery.files.gitignore import TrackedCache
from rookery.files.paging import ListingCache
from rookery.files.secrets import DenyRules
from rookery.files.walk import FolderScanner
from rookery.system.errors import RookeryError
from rookery.system.fs import beneath
from rookery.system.fs.beneath import OPEN_FILE, OPEN_FOLDER, PATH, Beneath
from rookery.system.text import escape_invisible

# The limits of the kernel, without the NUL that ends a path.
_MAX_PATH_BYTES = 4095
_MAX_NAME_BYTES = 255
_MAX_SHOWN = 200
# A folder may be called `a:`, but no listing has a path with two slashes.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_FILE_TYPES = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


# Cached, because the same files are read repeatedly.
@functools.lru_cache(maxsize=512)
def parse_path(path: str, root: Path) -> tuple[str, ...]:
    """Return the names of `path`, `..` included; none for the root itself.

    An absolute path is accepted if it begins with the root's own. Nothing is expanded, decoded or normalised: forms of
    Windows, such as a backslash or a drive letter, are parts of names.
    """
    _check_path(path)
    if path.startswith("/"):
        try:
            path = str(PurePosixPath(path).relative_to(root))
        except ValueError:
            raise outside_root_error(path) from None
    names = tuple([name for name in path.split("/") if name and name != "."])
    for name in names:
        if name != "..":
            _check_name(name, path)
    if ".." in names and _leads_out(names):
        raise outside_root_error(path)
    return names


def outside_root_error(path: str) -> RookeryError:
    """Return the error for a path outside of the root."""
    return RookeryError(
        "path-outside-root",
        f"Path outside project root: {format_path(path)}",
        "use a path relative to the root of this workspace; links are followed only if they are relative "
        "and stay inside",
    )


def format_path(path: str) -> str:
    """Return a path for use in a message: escaped, and cut after 200 characters."""
    return escape_invisible(path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}…")


def _leads_out(names: tuple[str, ...]) -> bool:
    """Return whether the names alone lead out of the root, whatever links there are: then nothing is opened."""
    depth = 0
    for name in names:
        depth += -1 if name == ".." else 1
        if depth < 0:
            return True
    return False


def _check_path(path: str) -> None:
    if not path:
        raise _invalid_path_error(path, "the path is empty", "use . for the root")
    if "\0" in path:
        raise _invalid_path_error(path, "the path contains a NUL character")
    try:
        length = len(path) if path.isascii() else len(os.fsencode(path))
    except UnicodeEncodeError:
        raise _invalid_path_error(path, "the path cannot be encoded for the file system") from None
    if length > _MAX_PATH_BYTES:
        raise _invalid_path_error(path, f"the path is longer than {_MAX_PATH_BYTES} bytes")
    if _SCHEME.match(path):
        raise _invalid_path_error(path, "expected a path, not a URL")


def _check_name(name: str, path: str) -> None:
    if len(name) * 4 > _MAX_NAME_BYTES and len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise _invalid_path_error(path, f"a name in the path is longer than {_MAX_NAME_BYTES} bytes")


def _invalid_path_error(
    path: str, reason: str, remedy: str = "use a path relative to the root, such as a/b"
) -> RookeryError:
    return RookeryError("invalid-input", f"{reason}: {format_path(path)}" if path else reason, remedy)


class Handle(NamedTuple):
    """An open file or folder: its descriptor, its location without links, and the result of `fstat`."""

    fd: int
    names: tuple[str, ...]
    stat_result: os.stat_result

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self.fd)


class SandboxRoot:
    """The root of a workspace. Keeps its descriptor until `close`; a folder that replaces it later is not the root.

    `use_openat2` selects how paths are resolved; by default openat2 is used where the kernel has it.
    """

    def __init__(
        self,
        path: Path,
        denied: DenyRules | None = None,
        *,
        use_openat2: bool | None = None,
        one_filesystem: bool = False,
    ) -> None:
        self.path = path
        self._path_text = str(path)
        self.deny_rules = denied or DenyRules()
        self.paging = ListingCache()
        self.tracked = TrackedCache()
        self.folders = FolderScanner()
        _check_root(path)
        try:
            self._fd = os.open(path, PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _workspace_gone_error(path, "cannot be opened as a folder") from error
        root_stat = os.fstat(self._fd)
        self._identity = (root_stat.st_dev, root_stat.st_ino)
        self._beneath = Beneath(self._fd, beneath.has_openat2() if use_openat2 is None else use_openat2, one_filesystem)

    def close(self) -> None:
        self.paging.clear()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> "SandboxRoot":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def open_file(self, path: str) -> Handle:
        """Open a regular file for reading; raise for anything else. Pipes and devices do not block."""
        handle = self._open(path, OPEN_FILE, self.deny_rules.file_denial)
        if stat.S_ISREG(handle.stat_result.st_mode) and not path.endswith("/"):
            return handle
        with handle:
            raise _not_a_file_error(path, handle.stat_result.st_mode)

    def open_folder(self, path: str) -> Handle:
        """Open a folder for listing; the caller closes the handle."""
        return self._open(path, OPEN_FOLDER, self.deny_rules.folder_denial)

    def open_beneath(self) -> Beneath:
        """Return access to this root for a thread, with a descriptor of its own that the caller closes."""
        if self._fd < 0:
            raise _workspace_gone_error(self.path, "is closed")
        return dataclasses.replace(self._beneath, folder=os.dup(self._fd))

    def duplicate(self) -> "SandboxRoot":
        """Return a copy of this root for a thread: it stays open when this one is closed, until it is closed itself."""
        root = copy.copy(self)
        root._beneath = self.open_beneath()
        root.paging = ListingCache()
        root._fd = root._beneath.folder
        return root

    def _open(self, path: str, flags: int, deny_reason: Callable[[Sequence[str]], str]) -> Handle:
        self._check_unchanged()
        try:
            return self._open_literally(path, flags, deny_reason)
        except RookeryError as error:
            raw_path = parse_display_path(path) if error.code == "file-not-found" else None
            if raw_path is None:
                raise
            return self._open_literally(raw_path, flags, deny_reason)

    def _open_literally(self, path: str, flags: int, deny_reason: Callable[[Sequence[str]], str]) -> Handle:
        names = parse_path(path, self.path)
        # A path that is denied by name is not opened at all, so that nobody learns whether it exists.
        _require_allowed(path, deny_reason(names))
        try:
            opened = self._beneath.open(names, flags)
        except OSError as error:
            raise _open_error(path, error) from error
        try:
            if opened.names != names:
                _require_allowed(path, deny_reason(opened.names))
            return Handle(opened.handle, opened.names, os.fstat(opened.handle))
        except BaseException:
            os.close(opened.handle)
            raise

    def _check_unchanged(self) -> None:
        """Raise if the root was removed or replaced: a removed workspace still exists in the trash."""
        try:
            # Not `Path.stat`, which takes five times as long.
            current = os.stat(self._path_text, follow_symlinks=False)  # noqa: PTH116
        except OSError as error:
            raise _workspace_gone_error(self.path, "no longer exists") from error
        if self._fd < 0:
            raise _workspace_gone_error(self.path, "is closed")
        if (current.st_dev, current.st_ino) != self._identity:
            raise _workspace_gone_error(self.path, "was replaced by another folder")


def _not_a_file_error(path: str, mode: int) -> RookeryError:
    if stat.S_ISREG(mode):
        return _open_error(path, OSError(errno.ENOTDIR, ""))
    kind = next((kind for test, kind in _FILE_TYPES if test(mode)), "a device")
    remedy = "use list_directory for folders" if kind == "a folder" else "only regular files can be read"
    return RookeryError("invalid-input", f"{format_path(path)} is {kind}, not a file", remedy)


def _check_root(path: Path) -> None:
    home = Path.home()
    if path in (home, *home.parents) or not path.is_absolute() or ".." in path.parts:
        raise RookeryError(
            "invalid-input", f"{path} cannot be the root of a workspace", "use a folder that contains only the project"
        )


def _workspace_gone_error(path: Path, reason: str) -> RookeryError:
    return RookeryError("workspace-not-found", f"{path} {reason}", "open the workspace again, or choose another one")


def _require_allowed(path: str, reason: str) -> None:
    if reason:
        raise RookeryError(
            "path-denied", f"{format_path(path)} is not accessible: {reason}", "continue without it, or ask the user"
        )


def _open_error(path: str, error: OSError) -> RookeryError:
    """Return the error for a path that the system could not open."""
    name = format_path(path)
    match error.errno:
        case errno.EXDEV:
            return outside_root_error(path)
        case errno.ENOENT:
            remedy = "separate names with /" if "\\" in path else "use list_directory to see what exists"
            return RookeryError("file-not-found", f"{name} does not exist", remedy)
        case errno.ENOTDIR:
            return RookeryError("invalid-input", f"{name}, or a parent of it, is not a folder")
        case errno.ELOOP:
            return RookeryError("invalid-input", f"{name} is part of a loop of symbolic links")
        case errno.ENAMETOOLONG:
            return RookeryError("invalid-input", f"{name} is too long for a path")
        case errno.ENXIO | errno.ENODEV:
            return RookeryError("invalid-input", f"{name} is a socket or a device, not a file")
        case errno.EMFILE | errno.ENFILE:
            return RookeryError("file-unreadable", f"{name}: too many files are open", "try again in a moment")
        case _:
            return RookeryError("file-unreadable", f"{name} cannot be opened: {error.strerror}")
