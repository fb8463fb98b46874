"""Locks that allow one writer per repository, and retries for commands that meet a lock of git."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import CompletedCommand

# The error messages of git for a lock that another git process holds, or that a killed one has left behind.
_LOCKED = re.compile(
    rb"(?:Unable to create '([^']+\.lock)': File exists|could not lock config file (\S+): File exists)"
)
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
LOCK_WAIT_SECONDS = 10.0
WRITE_TIMEOUT_SECONDS = 600.0


class RepositoryLocks:
    """Locks for the writers of this daemon, one per repository. Other programs are kept out by git's own locks."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def write_lock(self, project_path: str | Path) -> AsyncGenerator[None]:
        """Hold the write lock of a repository."""
        async with self._locks.setdefault(str(project_path), asyncio.Lock()):
            yield


async def run_git_write(
    git: Git,
    folder: Path,
    *args: str,
    timeout: float = WRITE_TIMEOUT_SECONDS,
    lock_wait_seconds: float | None = None,
    trusted: bool = False,
) -> CompletedCommand:
    """Run a git command that writes, and retry for `lock_wait_seconds` seconds while it meets a lock of git.

    A lock that stays is reported, never removed: only the user knows what its owner was doing.
    """
    lock_wait_seconds = LOCK_WAIT_SECONDS if lock_wait_seconds is None else lock_wait_seconds
    deadline = SYSTEM_CLOCK.monotonic() + lock_wait_seconds
    pause = _FIRST_PAUSE
    while True:
        result = await git.run(folder, *args, timeout=timeout, write=True, trusted=trusted)
        match = _LOCKED.search(result.stderr) if result.returncode else None
        if match is None:
            return result
        if SYSTEM_CLOCK.monotonic() + pause > deadline:
            lock_file = (match[1] or match[2] + b".lock").decode("utf-8", "replace")
            raise RookeryError(
                "repository-busy",
                f"git {args[0]} waited {lock_wait_seconds:g} s for the lock {lock_file}",
                f"end the git process that holds it; if there is none, a killed process left the lock: rm {lock_file}",
            )
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
