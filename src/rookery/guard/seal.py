"""A file beside the store that says how the approvals in it were left, so that a store that is not ours is noticed."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rookery.system import files
from rookery.system.errors import RookeryError


def mark_of(rows: Iterable[tuple[Any, ...]]) -> str:
    """The hash of a table, whatever the order of its rows."""
    return hashlib.sha256(json.dumps(sorted(rows), separators=(",", ":")).encode()).hexdigest()


_NOTHING = mark_of(())


class Seal:
    """Holds the mark of the table; while it is being changed, the marks before and after.

    So a crash leaves a table that fits, whether or not the change came through.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def marks(self) -> list[str]:
        """What the table may be. Before the first approval there is no file, and nothing is approved."""
        try:
            data = files.read_secret(self.path)
        except RookeryError:
            return []
        return [_NOTHING] if data is None else data.decode("ascii", "replace").split()

    def write(self, *marks: str) -> None:
        try:
            files.write_secret(self.path, "".join(f"{mark}\n" for mark in marks).encode())
        except OSError as error:
            raise RookeryError(
                "store-failed", f"cannot write {self.path}: {error}", "see that the disk is healthy and has space"
            ) from error
