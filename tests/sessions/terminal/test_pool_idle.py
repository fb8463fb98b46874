"""An idle terminal that is requested again before it is stopped."""

import asyncio
from pathlib import Path

import pytest

from tests.sessions.terminal.test_pool import a_pool
from tests.support.daemon.process import alive

pytestmark = pytest.mark.anyio


async def test_one_that_is_used_while_its_end_waits_for_another_is_watched_further(tmp_path: Path) -> None:
    async with a_pool(tmp_path, idle_seconds=60.0) as pool:
        pid = await pool.pid("ses_1", at=0)
        async with pool.terminals._lock:
            pool.clock.now = 61.0
            watching = asyncio.ensure_future(pool.terminals._watch("ses_1", pool.terminals._terminals["ses_1"]))
            await asyncio.sleep(0)
            async with pool.terminals.use(pool.life, "ses_1"):
                pool.clock.now = 62.0
        # Turns are given in the order in which they are asked for: it has had its own.
        async with pool.terminals._lock:
            assert alive(pid) and not watching.done()
        watching.cancel()
        await asyncio.wait([watching])
