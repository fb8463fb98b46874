"""Moves whole folders so that at every moment all of it is at one place or the other."""

import contextlib
import errno
import filecmp
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.system.files import move_aside

PARTIAL = ".partial"


def move_folder(source: Path, to: Path, copying: Callable[[], None], *, copied: bool) -> None:
    """Move by one rename; to another file system by a copy that is compared before the source is removed.

    `copying` is called before a copy is begun, for the caller to write down; `copied` says that it was, by this one or
    an earlier process. So calling this again finishes what was cut off. A source that is there together with its
    target, although nothing was copied, is not what was moved, and is left alone.
    """
    if os.path.lexists(to):
        if copied and os.path.lexists(source):
            _finish_copy(source, to)
        return
    if not os.path.lexists(source):
        return
    if not copied:
        try:
            move_aside(source, to)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise _cannot(source, error) from error
            copying()
        else:
            return
    partial = to.with_name(to.name + PARTIAL)
    try:
        _copy(source, partial)
        _compare(source, partial)
        os.sync()
        move_aside(partial, to)
    except OSError as error:
        remove_folder(partial)
        raise _cannot(source, error) from error
    _finish_copy(source, to)


def remove_folder(folder: Path) -> None:
    """Remove a folder that may be gone already, also what is protected in it; of a link, nothing but the link."""
    if folder.is_symlink():
        folder.unlink()
        return
    if not os.path.lexists(folder):
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        _open_up(folder)
        shutil.rmtree(folder)


def _open_up(folder: Path) -> None:
    """Each folder before it is looked into, which its mode may forbid."""
    waiting = [folder]
    while waiting:
        with contextlib.suppress(OSError):
            (place := waiting.pop()).chmod(0o700)
            waiting += [Path(entry.path) for entry in os.scandir(place) if entry.is_dir(follow_symlinks=False)]


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder, as the disk has them."""
    if folder.is_symlink() or not folder.is_dir():
        return 0
    return sum(found.st_blocks * 512 for _, found in _walk(folder, all_of_it=False))


def _finish_copy(source: Path, to: Path) -> None:
    # What was written into the source since counts too.
    try:
        _copy(source, to)
        _compare(source, to)
        os.sync()
        remove_folder(source)
    except OSError as error:
        raise _cannot(source, error) from error


def _copy(source: Path, to: Path) -> None:
    """Copy what is not there yet, or is there differently."""
    to.mkdir(exist_ok=True)
    folders = [(source, to)]
    for path, found in _walk(source):
        target = to / path.relative_to(source)
        if stat.S_ISDIR(found.st_mode):
            target.mkdir(exist_ok=True)
            folders.append((path, target))
        elif not _same(path, target):
            target.unlink(missing_ok=True)
            if stat.S_ISLNK(found.st_mode):
                target.symlink_to(path.readlink())
                shutil.copystat(path, target, follow_symlinks=False)
            elif stat.S_ISREG(found.st_mode):
                shutil.copy2(path, target, follow_symlinks=False)
            elif stat.S_ISFIFO(found.st_mode):
                os.mkfifo(target, stat.S_IMODE(found.st_mode))
            # A socket is nothing without the process that listens on it.
    # Last, as filling a folder changes its time, and a mode may forbid it.
    for path, target in reversed(folders):
        shutil.copystat(path, target)


def _compare(source: Path, to: Path) -> None:
    for path, found in _walk(source):
        target = to / path.relative_to(source)
        if stat.S_ISREG(found.st_mode) and not filecmp.cmp(path, target, shallow=False):
            raise OSError(errno.EIO, "the copy differs", str(path))
        if not stat.S_ISSOCK(found.st_mode) and not os.path.lexists(target):
            raise OSError(errno.EIO, "the copy is not complete", str(path))


def _same(path: Path, target: Path) -> bool:
    try:
        one, other = path.lstat(), target.lstat()
    except FileNotFoundError:
        return False
    return (one.st_mode, one.st_size, one.st_mtime_ns) == (other.st_mode, other.st_size, other.st_mtime_ns)


def _walk(folder: Path, *, all_of_it: bool = True) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything in a folder, folders before what is in them; links are not followed.

    Unless it must be `all_of_it`, what cannot be read, or goes meanwhile, is left out.
    """
    waiting = [folder]
    while waiting:
        with contextlib.nullcontext() if all_of_it else contextlib.suppress(OSError):
            for entry in os.scandir(waiting.pop()):
                path = Path(entry.path)
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)


def _cannot(source: Path, error: OSError) -> RookeryError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return RookeryError(
        "move-failed",
        f"cannot move {source}: {error.strerror or error}" + (f" ({error.filename})" if error.filename else ""),
        "make room on the disk of the state folder, and try again" if full else "mend that, and try again",
    )
