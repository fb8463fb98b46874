"""The last lines of a log."""

import os
from pathlib import Path

LARGEST = 1_000_000


def last_lines(path: Path, count: int, largest: int = LARGEST) -> list[str]:
    """Up to `count` lines from the last `largest` bytes; none if there is no such file. A line is never cut."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - largest, 0))
            data = file.read(largest)
    except OSError:
        return []
    if size > largest:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace").splitlines()[-count:] if count else []
