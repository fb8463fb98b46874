"""The exclusive lock: one holder at a time, the others wait, and a cancelled waiter holds nothing."""

import asyncio
from pathlib import Path

import pytest

from rookery.agents.opencode.lock import exclusive_lock
from rookery.system.fs.lock import is_held

pytestmark = pytest.mark.anyio


async def test_the_second_waits_hears_for_whom_and_comes_next(tmp_path: Path) -> None:
    order: list[str] = []
    waits = asyncio.Event()

    def waiting(holder: str) -> None:
        order.append(f"waits for {holder}")
        waits.set()

    async def second() -> None:
        async with exclusive_lock(tmp_path / "new" / "lock", "the second", waiting):
            order.append("second")

    async with exclusive_lock(tmp_path / "new" / "lock", "the first"):
        task = asyncio.create_task(second())
        await asyncio.wait_for(waits.wait(), 30)
        order.append("first")
    await asyncio.wait_for(task, 30)
    assert order == ["waits for the first", "first", "second"]
    assert not is_held(tmp_path / "new" / "lock")


async def test_one_that_is_cancelled_while_it_waits_keeps_nothing(tmp_path: Path) -> None:
    waits = asyncio.Event()

    async def second() -> None:
        async with exclusive_lock(tmp_path / "lock", "the second", lambda _: waits.set()):
            raise AssertionError

    async with exclusive_lock(tmp_path / "lock", "the first"):
        task = asyncio.create_task(second())
        await asyncio.wait_for(waits.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(30), exclusive_lock(tmp_path / "lock", "the third"):
        assert is_held(tmp_path / "lock")
