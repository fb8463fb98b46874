"""Tasks are named, held, and their crashes told."""

import asyncio
import gc
import logging

import pytest

from rookery.system.tasks import CRASHES, TaskSet

pytestmark = pytest.mark.anyio


async def test_a_crash_is_logged_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    tasks = TaskSet("part", on_crash=lambda name, error: told.append(f"{name}: {error}"))
    before = CRASHES.value()

    async def crash() -> None:
        raise ValueError("oh no")

    with caplog.at_level(logging.ERROR):
        await asyncio.wait({tasks.start(crash(), "work")})
    assert told == ["part:work: oh no"]
    assert CRASHES.value() == before + 1
    assert "task part:work crashed" in caplog.text
    assert "oh no" in caplog.text
    assert len(tasks) == 0


async def test_whoever_awaits_a_task_gets_its_result_or_its_error() -> None:
    tasks = TaskSet("part")

    async def work() -> int:
        return 7

    assert await tasks.start(work(), "work") == 7


async def test_a_task_is_held_until_it_ends() -> None:
    tasks = TaskSet("part")
    go = asyncio.Event()
    done = asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    tasks.start(work(), "work")
    await asyncio.sleep(0)
    gc.collect()
    assert len(tasks) == 1
    go.set()
    async with asyncio.timeout(5):
        await done.wait()


async def test_closing_ends_all_even_those_that_start_others_or_linger() -> None:
    tasks = TaskSet("part")
    ended: list[str] = []
    never = asyncio.Event()

    async def linger(name: str) -> None:
        try:
            await never.wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)
            if name == "first":
                tasks.start(linger("second"), "second")

    tasks.start(linger("first"), "first")
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await tasks.close()
    assert ended == ["first", "second"]
    assert len(tasks) == 0
