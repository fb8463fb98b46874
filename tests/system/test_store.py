"""Acknowledged writes are durable."""

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.requirements import requirement
from tests.support.store import LIMIT, add, examine, names_in, opened, refused, side

pytestmark = [pytest.mark.anyio, requirement("house.store.safe")]


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


# What is written stays


async def test_what_was_written_is_there_after_closing_and_opening(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a", "b")
    assert not side(path, "-wal").exists(), "closing folds the log into the file"
    async with opened(path) as store:
        assert await store.read(names_in) == ["a", "b"]
        assert store.problems == []


async def test_an_empty_file_becomes_a_store_and_is_told(path: Path) -> None:
    path.touch()
    async with opened(path) as store:
        await add(store, "a")
        assert len(store.problems) == 1 and "it is empty" in store.problems[0]
    assert examine(path) == ["a"]


async def test_what_a_function_raises_comes_out_unchanged_and_undoes_its_writes(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
        mistake = OSError("of the function")

        def fails(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO ports VALUES ('b', 1)")
            raise mistake

        with pytest.raises(OSError, match="of the function") as caught:
            await store.write(fails)
        assert caught.value is mistake
        with pytest.raises(sqlite3.IntegrityError):
            await add(store, "a")
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await store.read(lambda db: db.execute("SELECT * FROM nowhere"))
        await add(store, "c")
        assert await store.read(names_in) == ["a", "c"]


async def test_a_function_that_raises_stop_iteration_does_not_leave_its_caller_waiting(path: Path) -> None:
    async with opened(path) as store:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await store.read(lambda db: next(iter(names_in(db))))


async def test_a_read_cannot_change_anything(path: Path) -> None:
    async with opened(path) as store:
        with pytest.raises(RookeryError, match="readonly"):
            await store.read(lambda db: db.execute("INSERT INTO ports VALUES ('a', 1)"))
        await add(store, "b")
        assert await store.read(names_in) == ["b"]


async def test_a_durable_write_is_flushed_to_the_disk_before_the_answer(path: Path) -> None:
    def level(db: sqlite3.Connection) -> int:
        return db.execute("PRAGMA synchronous").fetchone()[0]

    async with opened(path) as store:
        assert [await store.write(level, durable=durable) for durable in (True, False, True)] == [2, 1, 2]
        assert await store.read(lambda db: db.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"
        assert await store.read(lambda db: db.execute("PRAGMA foreign_keys").fetchone()[0]) == 1


async def test_concurrent_writes_happen_one_after_the_other(path: Path) -> None:
    def count_up(db: sqlite3.Connection) -> int:
        (now,) = db.execute("SELECT port FROM ports WHERE name = 'a'").fetchone()
        db.execute("UPDATE ports SET port = ?", (now + 1,))
        return now

    async with opened(path) as store:
        await add(store, "a")
        seen = await asyncio.gather(*(store.write(count_up, durable=False) for _ in range(100)))
        assert sorted(seen) == list(range(1, 101))


async def test_cancelling_who_waits_for_a_write_leaves_the_store_usable(path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO ports VALUES ('slow', 1)")
        begun.set()
        assert go_on.wait(LIMIT)

    async with opened(path) as store:
        waiting = asyncio.create_task(store.write(slow))
        assert await asyncio.to_thread(begun.wait, LIMIT)
        queued = asyncio.create_task(add(store, "queued"))
        await asyncio.sleep(0)
        for task in (waiting, queued):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        go_on.set()
        await add(store, "next")
        assert await store.read(names_in) == ["slow", "next"]


async def test_closing_finishes_what_was_asked_for_without_holding_up_the_loop(path: Path) -> None:
    go_on = threading.Event()
    store = Store(path)
    async with asyncio.timeout(LIMIT):
        await store.open()
        written = asyncio.create_task(store.write(lambda _: go_on.wait(LIMIT)))
        last = asyncio.create_task(add(store, "last"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        assert await written
        await asyncio.gather(last, closing)
    assert examine(path) == ["last"]


async def test_a_closed_store_says_so_and_leaves_no_thread(path: Path) -> None:
    store = Store(path)
    await store.open()
    await store.close()
    await store.close()
    for thread in threading.enumerate():
        if thread.name.startswith("store"):
            thread.join(LIMIT)
            assert not thread.is_alive()
    with pytest.raises(RookeryError) as caught:
        await store.read(names_in)
    assert caught.value.code == "store-closed"


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277], ids=oct)
async def test_only_the_owner_may_read_the_files_whatever_the_umask(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        async with opened(path) as store:
            await add(store, "a")
            files = [path, side(path, "-wal"), side(path, "-shm")]
            assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    finally:
        os.umask(before)


async def test_a_file_that_others_may_read_is_closed_to_them(path: Path) -> None:
    path.touch(0o644)
    path.chmod(0o644)
    async with opened(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_path_that_cannot_be_a_store_is_told_and_left_alone(state: Path, path: Path) -> None:
    path.mkdir()
    nowhere = Store(state / "missing" / "rookery.db")
    for store in (Store(path), nowhere):
        error = await refused(store)
        assert error.code == "store-failed"
        assert str(store.path) in error.message
        assert error.remedy
    assert path.is_dir()
    nowhere.path.parent.mkdir()
    async with asyncio.timeout(LIMIT):
        await nowhere.open()
        await nowhere.close()
