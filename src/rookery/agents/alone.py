"""One at a time, among all processes of the user: the holder of a lock file works, the others wait for it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from rookery.system.lock import FileLock

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


@contextlib.asynccontextmanager
async def alone(path: Path, note: str, on_wait: Callable[[str], None] | None = None) -> AsyncGenerator[None]:
    """Hold the lock at `path`; `on_wait` hears once, with the holder's note, that somebody else has it.

    The kernel tells nobody when a lock becomes free who does not block for it, so it is asked again with pauses.
    """
    lock = FileLock(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pause = _FIRST_PAUSE
    while not await _acquired(lock, note):
        if on_wait is not None:
            on_wait(lock.holder())
            on_wait = None
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    try:
        yield
    finally:
        lock.release()


async def _acquired(lock: FileLock, note: str) -> bool:
    """Try once, off the loop; whoever is cancelled meanwhile does not keep a lock that comes too late."""
    trial = asyncio.get_running_loop().run_in_executor(None, lock.acquire, note)
    try:
        return await asyncio.shield(trial)
    except asyncio.CancelledError:
        trial.add_done_callback(lambda _: lock.release())
        raise
