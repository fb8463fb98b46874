"""One writer per repository, and patience with the locks that git itself takes."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.spawn import Completed

# Git's words for a lock that another git holds, or that a killed one has left.
_LOCKED = re.compile(
    rb"(?:Unable to create '([^']+\.lock)': File exists|could not lock config file (\S+): File exists)"
)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
PATIENCE = 10.0
WRITE_SECONDS = 600.0


class RepositoryLocks:
    """Within this daemon; what other programs do to a repository meets git's own locks."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def writing(self, project_path: str | Path) -> AsyncGenerator[None]:
        async with self._locks.setdefault(str(project_path), asyncio.Lock()):
            yield


async def write_git(
    git: Git,
    folder: Path,
    *args: str,
    timeout: float = WRITE_SECONDS,
    patience: float | None = None,
    trusted: bool = False,
) -> Completed:
    """Run a git command that writes; one that meets a lock of git's is tried again for a while.

    A lock that stays is named, never removed: only the user knows what its owner was about.
    """
    patience = PATIENCE if patience is None else patience
    gives_up = SYSTEM_CLOCK.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        done = await git.run(folder, *args, timeout=timeout, write=True, trusted=trusted)
        found = _LOCKED.search(done.stderr) if done.returncode else None
        if found is None:
            return done
        if SYSTEM_CLOCK.monotonic() + pause > gives_up:
            held = (found[1] or found[2] + b".lock").decode("utf-8", "replace")
            raise RookeryError(
                "repository-busy",
                f"git {args[0]} found {held} locked for {patience:g} s",
                f"end the git that holds it; if there is none, a killed one left it: rm {held}",
            )
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
