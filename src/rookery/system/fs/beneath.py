"""Files beneath a folder that others may fill and rename in: opened part by part, from one descriptor of the folder.

There are two ways with the same verdicts: by openat2, where the kernel has it, and by a walk. Neither lets the kernel
follow a link. Links are followed here, by their text, so that the names that are answered are those that were opened.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rookery.system import openat2

# Where there is no O_PATH, a folder on the way must be readable.
PATH = getattr(os, "O_PATH", os.O_RDONLY)
_ON_THE_WAY = PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without waiting for the other end of a pipe, and without a terminal that takes us over.
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As many as the kernel follows.
_LINKS = 40


class Opened(NamedTuple):
    """A descriptor, and the names that lead to it from the folder, without links."""

    handle: int
    names: tuple[str, ...]


class _Link(OSError):
    """A part of the way is a link."""


@dataclass(frozen=True)
class Beneath:
    """`folder` is a descriptor, which stays its owner's to close. OSError (EXDEV) for all that leads out of it."""

    folder: int
    by_kernel: bool
    one_filesystem: bool = False

    def open(self, names: Sequence[str], flags: int) -> Opened:
        """Follow `names`, in which `..` and links may be, as long as they stay beneath the folder."""
        if ".." not in names:
            try:
                return Opened(self.open_linkless(names, flags), tuple(names))
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        return self._follow(names, flags)

    def open_linkless(self, names: Sequence[str], flags: int) -> int:
        """Open plain names one beneath the other; ELOOP if one of them is a link."""
        if self.by_kernel:
            path = os.fsencode("/".join(names)) or b"."
            return openat2.open_linkless(self.folder, path, flags, one_filesystem=self.one_filesystem)
        current = _Current(self)
        try:
            for name in names[:-1]:
                current.enter(name)
            return current.open(names[-1] if names else ".", flags)
        finally:
            current.close()

    def enter(self, folder: int, name: str) -> int:
        """Open a folder by its plain name in another one that was opened beneath; ELOOP or ENOTDIR if it is a link."""
        if not self.one_filesystem:
            return os.open(name, FOLDER, dir_fd=folder)
        return _child(folder, name, FOLDER, os.fstat(self.folder).st_dev)

    def _follow(self, names: Sequence[str], flags: int) -> Opened:
        ahead, done, links = list(reversed(names)), list[str](), 0
        current = _Current(self)
        try:
            while ahead:
                name = ahead.pop()
                if name == "..":
                    if not done:
                        raise OSError(errno.EXDEV, "it leads out of the folder")
                    done.pop()
                    # Never `..` itself: the folder may have been moved elsewhere by now.
                    current.move(self.open_linkless(done, _ON_THE_WAY))
                    continue
                try:
                    if not ahead:
                        return Opened(current.open(name, flags), (*done, name))
                    current.enter(name)
                    done.append(name)
                except _Link as link:
                    links += 1
                    if links > _LINKS:
                        raise OSError(errno.ELOOP, "too many symbolic links") from None
                    ahead += reversed(_parts(str(link.filename)))
            return Opened(current.open(".", flags), tuple(done))
        finally:
            current.close()


class _Current:
    """The folder that a walk has come to."""

    def __init__(self, beneath: Beneath) -> None:
        self._start = self._handle = beneath.folder
        self._device = os.fstat(beneath.folder).st_dev if beneath.one_filesystem else None

    def enter(self, name: str) -> None:
        self.move(self.open(name, _ON_THE_WAY))

    def open(self, name: str, flags: int) -> int:
        try:
            return _child(self._handle, name, flags, self._device)
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


def _child(folder: int, name: str, flags: int, device: int | None) -> int:
    handle = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    if device is not None and os.fstat(handle).st_dev != device:
        os.close(handle)
        raise OSError(errno.EXDEV, "it lies on another filesystem", name)
    return handle


def _parts(target: str) -> list[str]:
    """The text of a link as names; an absolute one leads out, wherever it points."""
    if target.startswith("/"):
        raise OSError(errno.EXDEV, "an absolute symbolic link leads out of the folder")
    return [part for part in target.split("/") if part not in ("", ".")]
