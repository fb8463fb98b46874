"""Whether a repository's index is still the one that it was."""

import os
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.git_config import git_folder

# A file that was written just now may be written again without a trace in its time.
SETTLED_SECONDS = 2.0

Mark = tuple[str, int, int, int, int]


def mark_of_index(folder: Path) -> Mark | None:
    """The same as long as the index is; None if it cannot be told, or has changed a moment ago."""
    own = git_folder(folder)
    try:
        found = os.stat(f"{own}/index", follow_symlinks=False) if own else None  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if found is None or SYSTEM_CLOCK.wall() - max(found.st_mtime, found.st_ctime) < SETTLED_SECONDS:
        return None
    return (str(own), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
