"""Lock files, so that only one process at a time installs OpenCode or sets up its database.

Two OpenCodes that create the same database at once break each other, so the first one on a data folder starts alone.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from rookery.system.fs.lock import FileLock

_FIRST_PAUSE = 0.05
_MAX_PAUSE = 0.5


@contextlib.asynccontextmanager
async def exclusive_lock(path: Path, note: str, on_wait: Callable[[str], None] | None = None) -> AsyncGenerator[None]:
    """Hold the lock at `path` for the block. If it is taken, call `on_wait` once, with the note of its holder.

    The kernel sends no notification when a lock becomes free unless the caller blocks, so the lock is polled.
    """
    lock = FileLock(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pause = _FIRST_PAUSE
    while not await _try_acquire(lock, note):
        if on_wait is not None:
            on_wait(lock.read_note())
            on_wait = None
        await asyncio.sleep(pause)
        pause = min(pause * 2, _MAX_PAUSE)
    try:
        yield
    finally:
        lock.release()


async def _try_acquire(lock: FileLock, note: str) -> bool:
    """Try once, in a thread. If the caller is cancelled meanwhile, release the lock when it is acquired."""
    attempt = asyncio.get_running_loop().run_in_executor(None, lock.acquire, note)
    try:
        return await asyncio.shield(attempt)
    except asyncio.CancelledError:
        attempt.add_done_callback(lambda _: lock.release())
        raise


@contextlib.asynccontextmanager
async def first_start_lock(state: Path, data: Path, version: str) -> AsyncGenerator[None]:
    """Delay other starts on `data`, OpenCode's database, until this version has set it up.

    The lock file is beside the database, since Rookerys with other state folders may use the same database.
    """
    key = hashlib.sha256(f"{data}\n{version}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    mark = state / "opencode" / "listened" / key

    def is_set_up() -> bool:
        return mark.exists() and data.exists()

    if is_set_up():
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            exclusive_lock(data.with_name(".rookery-first-start.lock"), f"OpenCode {version}")
        )
        if is_set_up():
            await stack.aclose()
        yield
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
