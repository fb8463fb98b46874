"""How long a list waits for servers that are still starting: for all that are about as fast as the others."""

import asyncio
from collections.abc import Iterable

# How long a late one may take, measured by the slowest that has come so far; and never less than this.
_PATIENCE = 1.3
_LEAST_SECONDS = 0.5


async def wait_for_most(starting: Iterable[asyncio.Future[bool]], longest: float) -> None:
    """Return when all have ended, or when those that have not take much longer than those that came."""
    waiting = set(starting)
    loop = asyncio.get_running_loop()
    began = loop.time()
    limit = longest
    while waiting and (left := began + limit - loop.time()) > 0:
        ended, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        # One that failed at once, or was taken away, says nothing about how long the others need.
        if any(not one.cancelled() and one.result() for one in ended):
            limit = min(longest, max(_LEAST_SECONDS, (loop.time() - began) * _PATIENCE))
