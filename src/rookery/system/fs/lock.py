"""An advisory lock on a file, which the kernel releases when its holder dies."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import stat
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.fs.atomic import read_plain

_NOTE_BYTES = 120
_MAX_NOTE_BYTES = 4096
_TRY_SECONDS = 0.1


class FileLock:
    """A lock file. `acquire` never waits long; the text in the file names the holder, for people and error messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self, note: str = "") -> bool:
        """Take the lock and write `write_note` to the file; return False if another process (or object) holds it."""
        return self._handle is None and self._take(note)

    def is_intact(self) -> bool:
        """Return whether the lock is held and its file is still the one at the path."""
        return self._handle is not None and _identity(self.path) == _identity(self._handle)

    def is_lost(self) -> bool:
        """Return whether another process holds the lock at the path."""
        return not self.is_intact() and is_held(self.path)

    def reacquire(self, note: str = "") -> bool:
        """Take the lock again if its file was deleted or replaced; return False if another process holds it."""
        if self._handle is None or self.is_intact():
            return self._handle is not None
        old_handle = self._handle
        if not self._take(note):
            return False
        os.close(old_handle)
        return True

    def _take(self, note: str) -> bool:
        while True:
            # Rookery never unlinks it: a lock file that is removed and created again can be held twice.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(self.path, flags, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", str(self.path))
                if not _try_lock(handle):
                    os.close(handle)
                    return False
                # Another process may have replaced the file between opening and locking.
                if _identity(self.path) == _identity(handle):
                    self._write_note(handle, note)
                    self._handle = handle
                    return True
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def write_note(self, text: str) -> None:
        """Write who holds the lock, and what for."""
        if self._handle is not None:
            self._write_note(self._handle, text)

    def _write_note(self, handle: int, text: str) -> None:
        # One write of a fixed length, so that a reader sees the old note or the new one.
        try:
            os.pwrite(handle, text.encode().ljust(_NOTE_BYTES), 0)
        except OSError as error:
            error.filename = str(self.path)  # the error of a write contains no path
            raise

    def read_note(self) -> str:
        """Return the note of the last holder."""
        try:
            return read_plain(self.path, _MAX_NOTE_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _identity(file: Path | int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        file_stat = os.fstat(file) if isinstance(file, int) else os.stat(file, follow_symlinks=False)  # noqa: PTH116
        return file_stat.st_dev, file_stat.st_ino
    return None


def _try_lock(handle: int) -> bool:
    """Try to take the lock for 0.1 s, since `is_held` takes it for an instant."""
    deadline = SYSTEM_CLOCK.monotonic() + _TRY_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if SYSTEM_CLOCK.monotonic() > deadline:
                return False
            select.select([], [], [], 0.005)
        else:
            return True


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock at this moment."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def wait_until_free(path: Path, seconds: float) -> bool:
    """Wait until nobody holds the lock; return False on timeout. For the main thread of a command only."""

    def raise_timeout(number: int, frame: object) -> None:
        raise TimeoutError

    old_handler = signal.signal(signal.SIGALRM, raise_timeout)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)
    except TimeoutError:
        return False
    except OSError:
        return True  # there is no lock file, or none that can be held
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
    return True
