"""Move, remove and measure whole folders. A move leaves a complete folder at one path or the other."""

import contextlib
import errno
import filecmp
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import rename_durably

PARTIAL_SUFFIX = ".partial"


def move_folder(source: Path, to: Path, on_copying: Callable[[], None], *, copied: bool) -> None:
    """Move a folder with one rename, or to another file system with a copy that is verified before the removal.

    `on_copying` is called before a copy starts, so that the caller can record it; `copied` says that this or an earlier
    process recorded it. Calling this function again finishes an interrupted move. If source and target both exist
    although nothing was copied, the source is not what was moved, and is left alone.
    """
    if os.path.lexists(to):
        if copied and os.path.lexists(source):
            _finish_copy(source, to)
        return
    if not os.path.lexists(source):
        return
    if not copied:
        try:
            rename_durably(source, to)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise _move_failed(source, to, error) from error
            on_copying()
        else:
            return
    partial = to.with_name(to.name + PARTIAL_SUFFIX)
    try:
        _copy(source, partial)
        _compare(source, partial)
        os.sync()
        rename_durably(partial, to)
    except OSError as error:
        remove_folder(partial)
        raise _move_failed(source, to, error) from error
    _finish_copy(source, to)


def remove_folder(folder: Path) -> None:
    """Remove a folder, including protected files in it. The folder may be gone; of a link, only the link is removed."""
    if folder.is_symlink():
        folder.unlink()
        return
    if not os.path.lexists(folder):
        return
    try:
        shutil.rmtree(folder)
    except PermissionError:
        _make_accessible(folder)
        shutil.rmtree(folder)


def _make_accessible(folder: Path) -> None:
    """Make all folders in a folder accessible, each before it is read, because its mode may forbid reading."""
    pending = [folder]
    while pending:
        with contextlib.suppress(OSError):
            (current := pending.pop()).chmod(0o700)
            pending += [Path(entry.path) for entry in os.scandir(current) if entry.is_dir(follow_symlinks=False)]


def measure_folder(folder: Path) -> int:
    """Return the disk usage of all files in a folder, in bytes."""
    if folder.is_symlink() or not folder.is_dir():
        return 0
    return sum(status.st_blocks * 512 for _, status in _walk(folder, strict=False))


def _finish_copy(source: Path, to: Path) -> None:
    """Copy what was written into the source since, verify the copy and remove the source."""
    try:
        _copy(source, to)
        _compare(source, to)
        os.sync()
        remove_folder(source)
    except OSError as error:
        raise _move_failed(source, to, error) from error


def _copy(source: Path, to: Path) -> None:
    """Copy everything that is missing in the target or differs there."""
    to.mkdir(exist_ok=True)
    folders = [(source, to)]
    for path, status in _walk(source):
        target = to / path.relative_to(source)
        if stat.S_ISDIR(status.st_mode):
            target.mkdir(exist_ok=True)
            folders.append((path, target))
        elif not _is_same_file(path, target):
            target.unlink(missing_ok=True)
            if stat.S_ISLNK(status.st_mode):
                target.symlink_to(path.readlink())
                shutil.copystat(path, target, follow_symlinks=False)
            elif stat.S_ISREG(status.st_mode):
                shutil.copy2(path, target, follow_symlinks=False)
            elif stat.S_ISFIFO(status.st_mode):
                os.mkfifo(target, stat.S_IMODE(status.st_mode))
            # A socket is useless without the process that listens on it.
    # Last, because writing into a folder changes its time, and its mode may forbid writing.
    for path, target in reversed(folders):
        shutil.copystat(path, target)


def _compare(source: Path, to: Path) -> None:
    """Raise OSError if a copy is incomplete or differs."""
    for path, status in _walk(source):
        target = to / path.relative_to(source)
        if stat.S_ISREG(status.st_mode) and not filecmp.cmp(path, target, shallow=False):
            raise OSError(errno.EIO, "the copy differs", str(path))
        if not stat.S_ISSOCK(status.st_mode) and not os.path.lexists(target):
            raise OSError(errno.EIO, "the copy is not complete", str(path))


def _is_same_file(path: Path, target: Path) -> bool:
    try:
        source_status = path.lstat()
        target_status = target.lstat()
    except FileNotFoundError:
        return False
    return (source_status.st_mode, source_status.st_size, source_status.st_mtime_ns) == (
        target_status.st_mode,
        target_status.st_size,
        target_status.st_mtime_ns,
    )


def _walk(folder: Path, *, strict: bool = True) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield everything in a folder, folders before their content, without following links.

    Unless `strict` is set, entries that cannot be read or that disappear are left out.
    """
    pending = [folder]
    while pending:
        with contextlib.nullcontext() if strict else contextlib.suppress(OSError):
            for entry in os.scandir(pending.pop()):
                path = Path(entry.path)
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)


def _move_failed(source: Path, to: Path, error: OSError) -> RookeryError:
    cause = explain_os_error(error, to)
    if cause is not None:
        return RookeryError("move-failed", f"cannot move {source}: {cause.message}", cause.remedy)
    where = f" ({error.filename})" if error.filename else ""
    return RookeryError(
        "move-failed", f"cannot move {source}: {error.strerror or error}{where}", "fix the cause, and try again"
    )
