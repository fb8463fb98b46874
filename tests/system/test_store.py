"""The store keeps what it acknowledged, whatever the disk, a crash or another process does to it."""

import asyncio
import contextlib
import json
import logging
import os
import random
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from rookery.system import store as module
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk

pytestmark = [pytest.mark.anyio, requirement("house.store.safe")]

LIMIT = 30

PRELUDE = """
import asyncio, json, os, resource, signal, sqlite3, subprocess, sys
from pathlib import Path
from rookery.system.errors import RookeryError
from rookery.system.store import Store

signal.alarm(60)  # ends also if the test that started it is gone
path = Path(sys.argv[1])

def tell(**facts):
    print(json.dumps(facts), flush=True)

def add(name):
    return lambda db: db.execute("INSERT INTO ports VALUES (?, 1)", (str(name),))

def names(db):
    return [name for (name,) in db.execute("SELECT name FROM ports ORDER BY rowid")]

def names_on_disk():
    db = sqlite3.connect(path)
    try:
        return names(db)
    finally:
        db.close()

async def failure(work):
    try:
        await work
    except RookeryError as error:
        return error.as_dict()
"""

WRITER = """
async def main():
    store = Store(path)
    await store.open()
    number = 0
    while True:
        await store.write(add(number), durable=sys.argv[2] == "durable")
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""

FULL_DISK = """
async def main():
    store = Store(path)
    await store.open()
    await store.write(add("first"))
    ballast = path.with_name("ballast")
    ballast.write_bytes(bytes(400_000))
    acknowledged, failed = 0, None
    while failed is None and acknowledged < 1000:
        row = (str(acknowledged), str(acknowledged), "x" * 20_000)
        failed = await failure(store.write(lambda db: db.execute("INSERT INTO projects VALUES (?, ?, ?, 0)", row)))
        acknowledged += failed is None
    again = await failure(store.write(lambda db: db.execute("UPDATE projects SET name = name || 'y'")))
    count = lambda db: db.execute("SELECT count(*), sum(length(name)) FROM projects").fetchone()
    seen = await store.read(count)
    other = Store(path.with_name("other.db"))
    opened = await failure(other.open())
    ballast.unlink()
    await store.write(add("after"))
    await other.open()
    await other.close()
    await store.close()
    db = sqlite3.connect(path)
    tell(acknowledged=acknowledged, failed=failed, again=again, seen=seen, opened=opened,
         kept=count(db), names=names(db), integrity=db.execute("PRAGMA integrity_check").fetchone()[0])
    db.close()

asyncio.run(main())
"""

READ_ONLY_DISK = """
def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", path.parent], check=True)

async def main():
    store = Store(path)
    await store.open()
    await store.write(add("before"))
    await store.close()
    remount("ro")
    failed = await failure(store.open())
    remount("rw")
    await store.open()
    await store.write(add("after"))
    await store.close()
    tell(failed=failed, names=names_on_disk(), problems=store.problems)

asyncio.run(main())
"""

FAILING_FSYNC = """
async def main():
    store = Store(path)
    await store.open()
    failed = await failure(store.write(add("failed")))
    seen = await store.read(names)
    await store.write(add("after"))
    tell(failed=failed, seen=seen, names=names_on_disk())
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

FAILING_WRITE = """
async def main():
    store = Store(path)
    await store.open()
    await store.write(add("before"))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size, unlimited[1]))
    failed = await failure(store.write(add("failed")))
    seen, kept = await store.read(names), names_on_disk()
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    await store.write(add("after"))
    await store.close()
    tell(failed=failed, seen=seen, kept=kept, names=names_on_disk())

asyncio.run(main())
"""

LOCK_HOLDER = """
db = sqlite3.connect(path, isolation_level=None)
if sys.argv[2] == "wholly":
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO ports VALUES ('stranger', 1)")
tell(held=True)
signal.pause()
"""

CRASH_IN_ROLLBACK_MODE = """
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA cache_size=1")
db.execute("BEGIN")
db.execute("CREATE TABLE ports (half TEXT)")
db.executemany("INSERT INTO ports VALUES (?)", [("x" * 2000,)] * 100)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Child:
    """A Python program in a process of its own; it tells lines on its output, and ends with the test."""

    def __init__(self, program: str, path: Path, *more: str, inside: tuple[str, ...] = ()) -> None:
        command = [*inside, sys.executable, "-c", PRELUDE + program, str(path), *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._told = b""

    def told(self) -> list[str]:
        """All whole lines told so far."""
        while self._readable(0) and (data := os.read(self._output, 65_536)):
            self._told += data
        return self._told.decode().splitlines()[: self._told.count(b"\n")]

    def wait_for(self, lines: int) -> None:
        while self._told.count(b"\n") < lines:
            assert self._readable(LIMIT), "the program says nothing"
            data = os.read(self._output, 65_536)
            assert data, "the program ended too early"
            self._told += data

    def facts(self) -> dict[str, Any]:
        """What a program that tells one line told."""
        self.wait_for(1)
        return json.loads(self._told.splitlines()[0])

    def pause(self) -> None:
        """Stop it, and return once no thread of it runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._output], [], [], seconds)[0])


@contextlib.asynccontextmanager
async def opened(path: Path, *, busy_seconds: float = 5.0) -> AsyncGenerator[Store]:
    store = Store(path, busy_seconds=busy_seconds)
    async with asyncio.timeout(LIMIT):
        await store.open()
        try:
            yield store
        finally:
            await store.close()


async def add(store: Store, *names: str) -> None:
    for name in names:
        await store.write(lambda db, name=name: db.execute("INSERT INTO ports VALUES (?, 1)", (name,)))


def names_in(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM ports ORDER BY rowid")]


def examine(path: Path) -> list[str]:
    """The names that another program finds in the file, which must be whole."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return names_in(db)


def side(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA user_version").fetchone()[0]


async def refused(store: Store) -> RookeryError:
    async with asyncio.timeout(LIMIT):
        with pytest.raises(RookeryError) as caught:
            await store.open()
    return caught.value


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


@pytest.fixture
def first_fsync_fails() -> tuple[str, ...]:
    """Words before a command, in which the first fsync of every thread fails."""
    words = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync")
    words += ("-e", "inject=fsync,fdatasync:error=EIO:when=1")
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=LIMIT)
    except FileNotFoundError as error:
        pytest.skip(f"cannot make fsync fail: {error}")
    if tried.returncode != 0:
        pytest.skip(f"cannot make fsync fail: {tried.stderr.strip()}")
    return words


# What is written stays


async def test_what_was_written_is_there_after_closing_and_opening(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a", "b")
    assert not side(path, "-wal").exists(), "closing folds the log into the file"
    async with opened(path) as store:
        assert await store.read(names_in) == ["a", "b"]
        assert store.problems == []


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    async with opened(path) as store:
        await add(store, "a")
        assert store.problems == []
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


# E12 and E13: the disk


def test_e12_a_full_disk_fails_the_write_keeps_every_acknowledged_row_and_heals(
    small_disk: SmallDisk,
) -> None:
    path, inside = small_disk.folder / "rookery.db", small_disk.words
    with Child(FULL_DISK, path, inside=inside) as child:
        facts = child.facts()
    acknowledged = facts["acknowledged"]
    assert 10 < acknowledged < 1000
    assert [facts[which]["code"] for which in ("failed", "again", "opened")] == ["store-failed"] * 3
    assert "full" in facts["failed"]["message"]
    assert facts["failed"]["remedy"]
    assert facts["seen"] == facts["kept"] == [acknowledged, acknowledged * 20_000]
    assert facts["names"] == ["first", "after"]
    assert facts["integrity"] == "ok"


def test_e13_a_read_only_disk_is_told_and_opening_works_once_it_can_be_written(
    small_disk: SmallDisk,
) -> None:
    path, inside = small_disk.folder / "rookery.db", small_disk.words
    with Child(READ_ONLY_DISK, path, inside=inside) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["names"] == ["before", "after"]
    assert facts["problems"] == []


async def test_e13_a_failing_fsync_fails_the_write_and_memory_is_not_ahead_of_the_disk(
    path: Path, first_fsync_fails: tuple[str, ...]
) -> None:
    async with opened(path) as store:
        await add(store, "before")
    with Child(FAILING_FSYNC, path, inside=first_fsync_fails) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["seen"] == ["before"]
    assert facts["names"] == ["before", "after"]
    assert examine(path) == ["before", "after"]


def test_e13_a_failing_write_call_fails_the_write_and_memory_is_not_ahead_of_the_disk(path: Path) -> None:
    with Child(FAILING_WRITE, path) as child:
        facts = child.facts()
    assert facts["failed"]["code"] == "store-failed"
    assert facts["seen"] == facts["kept"] == ["before"]
    assert facts["names"] == ["before", "after"]


# E14: crashes and power cuts


def test_e14_copies_taken_while_writing_are_whole_and_hold_every_acknowledged_row(path: Path, state: Path) -> None:
    with Child(WRITER, path, "durable") as child:
        for turn in range(12):
            child.wait_for(len(child.told()) + random.randint(1, 150))
            child.pause()
            acknowledged = child.told()
            copy = state / f"copy-{turn}" / "rookery.db"
            copy.parent.mkdir()
            for suffix in ("", "-wal"):
                shutil.copyfile(side(path, suffix), side(copy, suffix))
            child.resume()
            kept = examine(copy)
            assert kept[: len(acknowledged)] == acknowledged
            assert len(kept) <= len(acknowledged) + 1


@pytest.mark.parametrize("how", ["durable", "not durable"])
async def test_e14_a_killed_writer_loses_no_acknowledged_row(path: Path, how: str) -> None:
    with Child(WRITER, path, how) as child:
        child.wait_for(random.randint(1, 300))
        child.kill()
        acknowledged = child.told()
    async with opened(path) as store:
        kept = await store.read(names_in)
        assert kept[: len(acknowledged)] == acknowledged
        assert len(kept) <= len(acknowledged) + 1
        assert store.problems == []
        await add(store, "after")


async def test_e14_a_crash_while_the_file_was_being_made_is_rolled_back(path: Path) -> None:
    with Child(CRASH_IN_ROLLBACK_MODE, path) as child:
        child.process.wait(LIMIT)
    assert side(path, "-journal").stat().st_size
    async with opened(path) as store:
        await add(store, "a")
        assert store.problems == []


# E15: other processes


async def test_e15_a_file_locked_by_another_process_is_busy_and_works_once_it_is_free(path: Path) -> None:
    async with opened(path, busy_seconds=0.1) as store:
        await add(store, "a")
        with Child(LOCK_HOLDER, path, "for writing") as holder:
            holder.wait_for(1)
            with pytest.raises(RookeryError) as caught:
                await add(store, "b")
            assert caught.value.code == "store-busy"
            assert str(path) in caught.value.message
            assert caught.value.remedy
            assert await store.read(names_in) == ["a"]
        await add(store, "c")
        assert await store.read(names_in) == ["a", "c"]
        assert store.problems == []


async def test_e15_opening_a_locked_file_is_busy_and_never_takes_it_for_damaged(path: Path, state: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
    store = Store(path, busy_seconds=0.1)
    with Child(LOCK_HOLDER, path, "wholly") as holder:
        holder.wait_for(1)
        assert (await refused(store)).code == "store-busy"
    async with asyncio.timeout(LIMIT):
        await store.open()
        assert await store.read(names_in) == ["a"]
        await store.close()
    assert store.problems == []
    assert sorted(file.name for file in state.iterdir()) == ["rookery.db"]


@pytest.mark.parametrize("gone", [("",), ("", "-wal", "-shm"), ("-wal",), ("-wal", "-shm")], ids="+".join)
async def test_e15_what_was_deleted_while_open_is_written_anew_with_every_row(
    path: Path, state: Path, gone: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await add(store, "a", "b")
        for suffix in gone:
            side(path, suffix).unlink()
        await add(store, "c")
        assert examine(path) == ["a", "b", "c"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await add(store, "d")
        assert len(store.problems) == 1
        assert str(path) in store.problems[0]
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]
    assert examine(path) == ["a", "b", "c", "d"]
    assert [file.name for file in state.iterdir()] == ["rookery.db"]


async def test_e15_what_was_deleted_before_closing_is_written_anew(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
        path.unlink()
    assert examine(path) == ["a"]


@pytest.mark.parametrize("parts", [("",), ("", "-wal")], ids=["alone", "with its log"])
async def test_e15_a_file_put_in_the_place_of_the_open_one_is_kept_beside_it(
    path: Path, state: Path, parts: tuple[str, ...]
) -> None:
    other = state / "other.db"
    async with opened(other) as store:
        await add(store, "in the file")
    async with opened(path) as store, opened(other) as stranger:
        await add(store, "a")
        await add(stranger, "in the log")
        for suffix in parts:
            shutil.copyfile(side(other, suffix), state / "copy")
            (state / "copy").replace(side(path, suffix))
        await add(store, "b")
        (problem,) = store.problems
    assert examine(path) == ["a", "b"]
    (replaced,) = (file for file in state.glob("rookery.db.replaced-*") if not file.name.endswith("-wal"))
    assert str(replaced) in problem
    assert examine(replaced) == ["in the file", "in the log"][: len(parts)]


async def test_e15_without_its_folder_writes_fail_and_nothing_is_lost_once_it_is_back(path: Path, state: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
        shutil.rmtree(state)
        with pytest.raises(RookeryError) as caught:
            await add(store, "b")
        assert caught.value.code == "store-failed"
        assert await store.read(names_in) == ["a"]
        state.mkdir()
        await add(store, "c")
    assert examine(path) == ["a", "c"]


async def test_a_store_whose_folder_is_gone_can_be_closed(
    path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path):
        shutil.rmtree(state)
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]


# E15: damage


@pytest.mark.parametrize("damage", ["header", "text", "short", "page"])
async def test_e15_a_damaged_file_is_set_aside_loudly_and_a_new_store_is_begun(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    whole = path.read_bytes()
    broken = {
        "header": b"\xff" * 16 + whole[16:],
        "text": b"not a database\n" * 100,
        "short": whole[:50],
        "page": whole[: 4096 * 6] + b"\xa5" * 4096 + whole[4096 * 7 :],
    }[damage]
    path.write_bytes(broken)
    async with opened(path) as store:
        assert await store.read(names_in) == []
        await add(store, "new")
        (problem,) = store.problems
    (aside,) = (file for file in path.parent.glob("rookery.db.corrupt-*") if not file.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == broken
    assert str(path) in problem
    assert str(aside) in problem
    assert [record.levelno for record in caplog.records if record.name == "rookery.store"] == [logging.ERROR]
    assert examine(path) == ["new"]


async def test_e15_damage_that_shows_while_open_is_told_and_set_aside_by_the_next_start(path: Path) -> None:
    async with opened(path) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    async with opened(path) as store:
        with path.open("r+b") as file:
            file.seek(4096 * 6)
            file.write(b"\xa5" * 4096 * 4)
        with pytest.raises(RookeryError) as caught:
            await store.read(names_in)
        assert caught.value.code == "store-failed"
        assert "anew" in caught.value.remedy
    async with opened(path) as store:
        assert len(store.problems) == 1


async def test_e15_the_log_of_a_damaged_file_goes_with_it_unchanged(path: Path) -> None:
    path.write_bytes(b"nonsense" * 100)
    side(path, "-wal").write_bytes(b"log")
    side(path, "-shm").write_bytes(b"index")
    async with opened(path) as store:
        assert len(store.problems) == 1
    found = {file.name.partition("Z")[2]: file.read_bytes() for file in path.parent.glob("rookery.db.corrupt-*")}
    assert found == {"": b"nonsense" * 100, "-wal": b"log", "-shm": b"index"}


async def test_e15_a_log_that_does_not_fit_its_file_is_set_aside_with_it_and_both_stay_as_they_were(
    path: Path, state: Path
) -> None:
    async with opened(path) as store:
        await add(store, "a")
    whole = path.read_bytes()
    other = state / "other.db"
    async with opened(other) as store:
        await add(store, *(f"{number:0100}" for number in range(200)))
    async with opened(other) as store:
        await add(store, *(f"{number:0100}" for number in range(200, 240)))
        shutil.copyfile(side(other, "-wal"), side(path, "-wal"))
    log = side(path, "-wal").read_bytes()
    async with opened(path) as store:
        assert len(store.problems) == 1
    (aside,) = (file for file in state.glob("rookery.db.corrupt-*") if not file.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == whole
    assert side(aside, "-wal").read_bytes() == log


@pytest.mark.parametrize("left", ["missing", "empty"])
async def test_e15_a_log_without_its_file_is_set_aside_and_not_thrown_away(path: Path, left: str) -> None:
    side(path, "-wal").write_bytes(b"rows that somebody may want back")
    if left == "empty":
        path.touch()
    async with opened(path) as store:
        assert len(store.problems) == 1
    (log,) = path.parent.glob("rookery.db.corrupt-*-wal")
    assert log.read_bytes() == b"rows that somebody may want back"


async def test_files_set_aside_at_the_same_moment_do_not_overwrite_each_other(path: Path) -> None:
    class Stopped:
        def monotonic(self) -> float:
            return 0.0

        def wall(self) -> float:
            return 0.0

    for text in ("one", "two"):
        path.write_text(text)
        store = Store(path, clock=Stopped())
        await store.open()
        await store.close()
    assert {file.read_text() for file in path.parent.glob("rookery.db.corrupt-1970*")} == {"one", "two"}


async def test_e15_any_wrong_byte_in_the_header_ends_in_a_working_store_or_in_a_told_error(path: Path) -> None:
    async with opened(path) as store:
        await add(store, "a")
    whole = path.read_bytes()
    outcomes: set[str] = set()
    for place in range(100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            async with opened(path) as store:
                await store.write(lambda db: db.execute("INSERT OR REPLACE INTO ports VALUES ('b', 1)"))
                outcomes.add("set aside" if store.problems else "unharmed")
        except RookeryError as error:
            outcomes.add(error.code)
            assert path.exists(), "a file that is refused stays"
    assert (
        {"unharmed", "set aside", "store-too-new"}
        <= outcomes
        <= {
            "unharmed",
            "set aside",
            "store-too-new",
            "store-failed",
        }
    )


async def test_a_big_file_is_opened_without_reading_all_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(path) as store:
        await add(store, "a")
    monkeypatch.setattr(module, "CHECKED_BYTES", 4096)
    monkeypatch.setattr(module, "QUICK_CHECK", "SELECT 'read it all'")
    async with opened(path) as store:
        assert await store.read(names_in) == ["a"]
        assert store.problems == []


# E15: schemas


async def test_e15_a_newer_schema_is_refused_and_its_file_stays_as_it_was(path: Path, state: Path) -> None:
    async with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    error = await refused(Store(path))
    assert error.code == "store-too-new"
    assert all(word in error.message for word in (str(path), "99"))
    assert error.remedy
    assert path.read_bytes() == before
    assert [file.name for file in state.iterdir()] == ["rookery.db"]


async def test_e15_a_newer_schema_that_is_still_in_the_log_is_refused_and_stays_as_it_was(path: Path) -> None:
    source = path.with_name("source.db")
    async with opened(source) as store:
        await store.write(lambda db: db.execute("PRAGMA user_version=99"))
        for suffix in ("", "-wal"):
            shutil.copyfile(side(source, suffix), side(path, suffix))
    before = path.read_bytes(), side(path, "-wal").read_bytes()
    assert (await refused(Store(path))).code == "store-too-new"
    assert (path.read_bytes(), side(path, "-wal").read_bytes()) == before


async def test_e15_an_older_schema_is_migrated_with_its_rows(
    path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await add(store, "a")
    monkeypatch.setattr(module, "SCHEMA", shutil.copytree(module.SCHEMA, state / "schema"))
    newest = max(int(file.name[:4]) for file in module.SCHEMA.iterdir())
    (module.SCHEMA / f"{newest + 1:04}_more.sql").write_text("ALTER TABLE ports ADD COLUMN note TEXT")
    (module.SCHEMA / f"{newest + 2:04}_most.sql").write_text("UPDATE ports SET note = 'migrated';")
    async with opened(path) as store:
        assert await store.read(lambda db: db.execute("SELECT * FROM ports").fetchall()) == [("a", 1, "migrated")]
    assert version_of(path) == newest + 2


async def test_e15_a_migration_that_fails_changes_nothing(
    path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as store:
        await add(store, "a")
    before = version_of(path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "SCHEMA", shutil.copytree(module.SCHEMA, state / "schema"))
        (module.SCHEMA / "9999_bad.sql").write_text(
            "DELETE FROM ports; CREATE TABLE half (n TEXT); INSERT INTO nowhere"
        )
        assert (await refused(Store(path))).code == "store-failed"
    assert version_of(path) == before
    async with opened(path) as store:
        assert await store.read(names_in) == ["a"]
        assert store.problems == []


async def test_migrations_are_numbered_without_gaps_and_begin_with_the_house(path: Path) -> None:
    numbers = [int(file.name[:4]) for file in sorted(module.SCHEMA.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))
    async with opened(path) as store:
        tables = await store.read(lambda db: db.execute("SELECT name, strict FROM pragma_table_list").fetchall())
    assert {("projects", 1), ("ports", 1)} <= set(tables)
    assert version_of(path) == numbers[-1]
