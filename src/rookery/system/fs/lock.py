"""An advisory lock on a file, freed by the kernel when its holder dies."""

import fcntl
import os
import select
import signal
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK

_NOTE_BYTES = 120
_MOMENT = 0.1


class FileLock:
    """`acquire` never waits; the file's text says who holds it, for people and error messages only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self, note: str = "") -> bool:
        """Take the lock and leave `note` in the file; False if another process (or object) holds it."""
        if self._handle is not None:
            return False
        # Never unlinked: a lock file that is removed and made anew can be held twice.
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not _try_for_a_moment(handle):
                os.close(handle)
                return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        self.note(note)
        return True

    def note(self, text: str) -> None:
        """Say anew who holds the lock, and what for."""
        if self._handle is not None:
            # In one write and always as long, so that a reader sees the old note or the new one.
            os.pwrite(self._handle, text.encode().ljust(_NOTE_BYTES), 0)

    def holder(self) -> str:
        """The note of whoever took the lock last."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _try_for_a_moment(handle: int) -> bool:
    """Whoever only asks whether the lock is held holds it for an instant; that must not count."""
    ends = SYSTEM_CLOCK.monotonic() + _MOMENT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if SYSTEM_CLOCK.monotonic() > ends:
                return False
            select.select([], [], [], 0.005)
        else:
            return True


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock at this moment."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
    """Wait until nobody holds the lock; False when the time is up. For the main thread of a command only."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return True
    except TimeoutError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return True
