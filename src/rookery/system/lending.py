"""Work in a thread with something that must be closed, also if the thread never begins."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def lend(work: Callable[[], T], close: Callable[[], object]) -> T:
    """What `work` answers in a thread, which calls `close` after it. Whoever stops waiting leaves it running."""
    # The first to take it closes: the thread that began, or we, if none did before nobody waited any more.
    taken = threading.Lock()

    def run() -> T:
        if not taken.acquire(blocking=False):
            raise RuntimeError("nobody waits for it any more")
        try:
            return work()
        finally:
            close()

    try:
        return await asyncio.to_thread(run)
    finally:
        if taken.acquire(blocking=False):
            close()
