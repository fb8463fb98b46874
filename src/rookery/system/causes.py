"""Explain failures by a full disk, a read-only file system or a missing permission, and name the path.

Standard library only: the command line uses this module before anything else is imported.
"""

import errno
import os
import re
import signal
from collections.abc import Sequence

from rookery.system.errors import RookeryError

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM)
# Patterns for the output of programs: messages of the system, of node and of git.
_OUTPUT_PATTERNS = (
    ("disk-full", re.compile(r"(?i)No space left on device|\bENOSPC\b|disk quota exceeded|\bEDQUOT\b|disk is full")),
    ("read-only", re.compile(r"(?i)read-only file system|\bEROFS\b")),
    ("permission-denied", re.compile(r"(?i)permission denied|\bEACCES\b|operation not permitted|\bEPERM\b")),
)
_REFUSED = re.compile(r"\b(EACCES|EPERM)\b|[Pp]ermission denied|[Oo]peration not permitted|PermissionError")
_PATH = re.compile(r"'(/[^'\n]+)'|\"(/[^\"\n]+)\"|(?:^|\s)(/[^\s:'\"]+)")
# A disk with less free space than this counts as full: no file system or program can work with so little.
_MIN_FREE_BYTES = 64 * 1024


def is_refusal(text: str) -> bool:
    """Return whether the output of a program looks as if it was refused an access."""
    return _REFUSED.search(text) is not None


def explain_os_error(error: OSError, path: object = None) -> RookeryError | None:
    """Return an error for a full disk, a read-only file system or a missing permission; None for any other."""
    location = str(error.filename2 or error.filename or path or "")
    if error.errno in _FULL_ERRNOS:
        return cause_error("disk-full", location)
    if error.errno == errno.EROFS:
        return cause_error("read-only", location)
    if error.errno in _DENIED_ERRNOS and location:
        return cause_error("permission-denied", location)
    return None


def cause_error(code: str, path: str) -> RookeryError:
    """Return the error for a cause: `disk-full`, `read-only`, or else a missing permission."""
    suffix = f": {path}" if path else ""
    if code == "disk-full":
        return RookeryError(code, f"the disk is full{suffix}", "free some space there, then try again")
    if code == "read-only":
        return RookeryError(code, f"the file system is read-only{suffix}", "remount it writable, or use another folder")
    return RookeryError(code, f"Permission denied{suffix}", "check the permissions with ls -ld, or use another folder")


def describe_error(error: Exception) -> str:
    """Return the text of an error. For an `OSError` this leaves out its number and its path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def describe_end(code: int) -> str:
    """Return how a process ended, as text: `ended with 3`, or `was killed by SIGBUS`."""
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return "was killed by a signal"


def explain_end(code: int, output: str, folders: Sequence[object]) -> str:
    """Return how a process ended, with the disk or permission problem that caused it, if there was one."""
    cause = find_cause(code, output, folders)
    return f"{describe_end(code)}: {cause.message}" if cause is not None else describe_end(code)


def find_cause(code: int, output: str, folders: Sequence[object]) -> RookeryError | None:
    """Return the disk or permission problem that made a program fail, from its output or from the state of the disk.

    `folders` are the folders that the program writes to. They are checked if it failed without output or was ended by
    a signal: on a full disk its output may be lost, and a program that maps a file there gets SIGBUS.
    """
    for cause, words in _OUTPUT_PATTERNS:
        lines = [line for line in output.splitlines() if words.search(line)]
        if lines:
            match = next(filter(None, map(_PATH.search, lines)), None)
            location = next(filter(None, match.groups()), "") if match else ""
            return cause_error(cause, location or _first_affected(cause, folders))
    return find_write_problem(folders) if code < 0 or (code > 0 and not output.strip()) else None


def find_write_problem(folders: Sequence[object]) -> RookeryError | None:
    """Return the error for the first of these folders that this user cannot write to; None if there is none."""
    for folder in folders:
        if (cause := _find_write_problem_code(folder)) is not None:
            return cause_error(cause, str(folder))
    return None


def _first_affected(cause: str, folders: Sequence[object]) -> str:
    """Return the first folder that has this problem, else the first folder."""
    affected = [folder for folder in folders if _find_write_problem_code(folder) == cause]
    return str(next(iter([*affected, *folders]), ""))


def _find_write_problem_code(folder: object) -> str | None:
    """Return the code of the problem that keeps this user from writing to a folder; None if there is none."""
    path = str(folder)
    while not os.path.exists(path) and os.path.dirname(path) != path:  # noqa: PTH110, PTH120 - pathlib takes long to import
        path = os.path.dirname(path)  # noqa: PTH120
    try:
        file_system = os.statvfs(path)
    except OSError:
        return None
    if file_system.f_flag & os.ST_RDONLY:
        return "read-only"
    if file_system.f_blocks and (
        file_system.f_bavail * file_system.f_frsize < _MIN_FREE_BYTES
        or (file_system.f_files and not file_system.f_favail)
    ):
        return "disk-full"
    return None if os.access(path, os.W_OK) else "permission-denied"
