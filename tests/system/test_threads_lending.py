"""A resource that is lent to a thread is closed once, in any order of events."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rookery.system.threads import run_and_close

pytestmark = pytest.mark.anyio


async def test_it_is_closed_after_the_work_whether_that_answers_or_raises() -> None:
    told: list[str] = []

    def work() -> str:
        told.append("work")
        return "answer"

    assert await run_and_close(work, lambda: told.append("close")) == "answer"
    with pytest.raises(ZeroDivisionError):
        await run_and_close(lambda: 1 // 0, lambda: told.append("close"))
    assert told == ["work", "close", "close"]


async def test_work_that_nobody_waits_for_any_more_is_finished_before_it_is_closed() -> None:
    told: list[str] = []
    began, release, closed = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        release.wait(30)
        told.append("work")

    def close() -> None:
        told.append("close")
        closed.set()

    waiting = asyncio.ensure_future(run_and_close(work, close))
    assert await asyncio.to_thread(began.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert told == []
    release.set()
    assert await asyncio.to_thread(closed.wait, 30)
    assert told == ["work", "close"]


async def test_it_is_closed_at_once_if_its_thread_never_begins() -> None:
    told: list[str] = []
    release = threading.Event()
    with ThreadPoolExecutor(1) as only:
        asyncio.get_running_loop().set_default_executor(only)
        only.submit(release.wait, 30)
        waiting = asyncio.ensure_future(run_and_close(lambda: told.append("work"), lambda: told.append("close")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert told == ["close"]
        release.set()
    assert told == ["close"]
    with pytest.raises(RuntimeError):
        await run_and_close(lambda: told.append("work"), lambda: told.append("close"))
    assert told == ["close", "close"]
