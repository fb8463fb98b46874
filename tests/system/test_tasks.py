"""Tasks are named and referenced, and their crashes are reported."""

import asyncio
import gc
import logging
import threading

import pytest

from rookery.system.log import REDACTOR
from rookery.system.tasks import CRASHES, CrashLog, TaskSet, record_stray_crashes
from tests.support.requirements import requirement

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


@requirement("ws.notify.fires")
async def test_work_that_is_kept_running_is_started_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr("rookery.system.tasks.asyncio.sleep", sleep)
    monkeypatch.setattr("rookery.system.tasks.CRASH_LOG", log := CrashLog())
    tasks = TaskSet("part")
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs <= 14:
            raise ValueError(f"run {runs}")

    async with asyncio.timeout(5):
        await tasks.keep_running(work, "service")
    assert runs == 15
    assert pauses[0] < pauses[1] < pauses[2] and pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] == 60.0, "the pauses are bounded"
    entry = log.entries()[0]
    assert (entry.task, entry.count, entry.error, entry.restarted) == ("part:service", 14, "ValueError: run 14", True)


async def test_work_that_is_kept_running_ends_with_its_owner() -> None:
    tasks = TaskSet("part")
    begun, never = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await never.wait()

    task = tasks.keep_running(work, "service")
    async with asyncio.timeout(5):
        await begun.wait()
        await tasks.close()
    assert task.cancelled() and len(tasks) == 0


async def test_the_log_of_crashes_is_bounded_and_holds_no_secret() -> None:
    log = CrashLog()
    secret = "a-secret-of-the-crash-log"
    REDACTOR.add(secret)
    try:
        for number in range(200):
            log.record(f"task {number}", ValueError(secret + "x" * 2000), restarted=False)
    finally:
        REDACTOR.remove(secret)
    entries = log.entries()
    assert len(entries) == 100 and entries[-1].task == "task 199"
    assert all(secret not in one.error and len(one.error) <= 500 for one in entries)


async def test_crashes_of_callbacks_and_threads_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.system.tasks.CRASH_LOG", log := CrashLog())
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    record_stray_crashes(loop)
    try:
        loop.call_soon(int, "no number")
        thread = threading.Thread(target=int, args=("neither",), name="aside")
        thread.start()
        await asyncio.to_thread(thread.join, 5)
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
    assert sorted(one.task for one in log.entries()) == ["callback", "thread aside"]
