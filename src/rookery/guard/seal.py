"""A file beside the store with a hash of the approvals in it, so that changes by other programs are detected."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs import atomic

# Files that a daemon leaves in its state folder, apart from the lock, the socket and what can be installed beforehand.
# If one of them exists without a seal, the seal was deleted.
_DAEMON_FILES = (
    "daemon.json",
    "instances.json",
    "logs/agents",
    "logs/daemon.jsonl",
    "plugins",
    "projects",
    "rookery.db*",
    "sign-in",
    "token",
    "trash",
)


def compute_mark(rows: Iterable[tuple[Any, ...]]) -> str:
    """Return the hash of a table, independent of the order of its rows."""
    return hashlib.sha256(json.dumps(sorted(rows), separators=(",", ":")).encode()).hexdigest()


class Seal:
    """Holds the mark (hash) of the table; during a change, the marks before and after it.

    So the table matches after a crash, whether or not the change was made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def for_store(cls, store: Path) -> "Seal":
        """Return the seal of the store at this path."""
        return cls(store.with_name("approvals.seal"))

    def create(self) -> None:
        """Seal an empty table in an unused state folder. Call this before any other file is created there."""
        if not self.path.is_symlink() and not self.path.exists() and not self.list_daemon_files():
            self.write(compute_mark(()))

    def list_daemon_files(self) -> list[str]:
        """Return the files that an earlier daemon left in the folder of the seal."""
        folder = self.path.parent
        return sorted(str(path.relative_to(folder)) for trace in _DAEMON_FILES for path in folder.glob(trace))

    def read_marks(self) -> list[str] | None:
        """Return the valid marks of the table; None if there is no seal. An unreadable seal has no valid mark."""
        try:
            data = atomic.read_secret(self.path)
        except RookeryError:
            return []
        return None if data is None else data.decode("ascii", "replace").split()

    def write(self, *marks: str) -> None:
        """Write the marks; raise `store-failed` if that fails."""
        try:
            atomic.write_secret(self.path, "".join(f"{mark}\n" for mark in marks).encode())
        except OSError as error:
            cause = explain_os_error(error, self.path)
            why, remedy = (cause.message, cause.remedy) if cause is not None else (error, "check the disk")
            raise RookeryError("store-failed", f"cannot write {self.path}: {why}", remedy) from error
