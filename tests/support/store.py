"""Helpers for tests of the store: programs in separate processes, and access from outside."""

import asyncio
import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.requirements import requirement

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
    """A Python program in a separate process that prints lines, and ends with the test."""

    def __init__(self, program: str, path: Path, *more: str, inside: tuple[str, ...] = ()) -> None:
        command = [*inside, sys.executable, "-c", PRELUDE + program, str(path), *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._told = b""

    def told(self) -> list[str]:
        """Return all complete lines so far."""
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
        """Return the content of the line of a program that prints one."""
        self.wait_for(1)
        return json.loads(self._told.splitlines()[0])

    def pause(self) -> None:
        """Stop it, and return when none of its threads runs any more."""
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
    """Return the names that another program finds in the file, which must be intact."""
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


# How to take each migration of the store back, newest first.
_TAKEN_BACK = (
    (14, "ALTER TABLE switches DROP COLUMN workspace"),
    (13, "ALTER TABLE stopped_agents DROP COLUMN until"),
    (12, "DROP TABLE scans"),
    (11, "DROP TABLE pins; DROP TABLE pinned_servers; DROP TABLE pin_losses"),
    (10, "DROP TABLE catalogs"),
    (9, "DROP TABLE registrations; DROP TABLE approval_losses; ALTER TABLE approvals DROP COLUMN by"),
)


def take_migrations_back(db: sqlite3.Connection, version: int) -> None:
    """Make a store one of an earlier schema."""
    steps = [script for number, script in _TAKEN_BACK if number > version]
    db.executescript(";".join([*steps, f"PRAGMA user_version = {version};"]))
