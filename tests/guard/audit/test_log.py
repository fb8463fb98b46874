"""The audit: records, their chain, their limits, and what a full disk or a crash leaves."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.audit import CallOrigin
from rookery.guard.audit.log import AuditLimits, AuditLog
from rookery.guard.audit.records import AuditFilter, AuditRecord
from rookery.system.clock import SYSTEM_CLOCK, Clock
from tests.support.clock import MachineClock
from tests.support.requirements import requirement
from tests.support.small_disk import make_small_disk

pytestmark = pytest.mark.anyio

LIMIT = 30
EVERYTHING = AuditFilter()


@asynccontextmanager
async def opened(state: Path, limits: AuditLimits | None = None, **more: Any) -> AsyncGenerator[AuditLog]:
    audit = AuditLog(state, limits, **more)
    await audit.start()
    try:
        yield audit
    finally:
        await audit.stop()


def add_call(
    audit: AuditLog,
    tool: str = "echo",
    arguments: bytes = b"{}",
    *,
    workspace: str = "/src/app",
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    origin = CallOrigin("owner", workspace, None, "one", tool)
    audit.record_answered(origin, clock.monotonic(), Raw(arguments), 10)


def tools(records: list[AuditRecord]) -> list[str | None]:
    return [record.tool for record in records]


async def find(audit: AuditLog, **wanted: Any) -> list[AuditRecord]:
    return list((await audit.find(AuditFilter(**wanted), 10_000)).records)


def edit(state: Path, *statements: str) -> None:
    """Change the file as another program would, which does not have the key."""
    with closing(sqlite3.connect(state / "audit.db")) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


async def fill(state: Path, count: int = 6) -> None:
    """Write this many blocks of calls, and as many decisions."""
    async with opened(state) as audit:
        for number in range(count):
            add_call(audit, f"tool-{number}")
            await audit.flush()
            audit.record("approval", "approved", detail={"name": f"server-{number}"})
            await audit.flush()


CHANGES = {
    "a field of a record": ("UPDATE blocks SET records = CAST(replace(records, 'tool-2', 'tool-9') AS BLOB)",),
    "the time of a block": ("UPDATE blocks SET until = until + 1 WHERE first = 3",),
    "a record in the middle is gone": ("DELETE FROM blocks WHERE first = 5",),
    "the oldest is gone": ("DELETE FROM blocks WHERE first = 1",),
    "the newest is gone": ("DELETE FROM blocks WHERE first = 11",),
    "all are gone": ("DELETE FROM blocks",),
    "a copy is inserted": (
        "INSERT INTO blocks SELECT 99, series, count, since, until, records, link FROM blocks WHERE first = 3",
    ),
    "two are exchanged": (
        "UPDATE blocks SET first = 100 WHERE first = 3",
        "UPDATE blocks SET first = 3 WHERE first = 5",
        "UPDATE blocks SET first = 5 WHERE first = 100",
    ),
    "the newest is gone, and the end agrees": (
        "DELETE FROM blocks WHERE first = 11",
        "UPDATE series SET total = 5, head = (SELECT link FROM blocks WHERE first = 9) WHERE name = 'calls'",
    ),
    "the oldest is gone, as if by the limits": (
        "UPDATE series SET removed = 1, start = (SELECT link FROM blocks WHERE first = 1) WHERE name = 'calls'",
        "DELETE FROM blocks WHERE first = 1",
    ),
    "an approval is gone": ("DELETE FROM blocks WHERE first = 4",),
}


@requirement("guard.audit.query")
@pytest.mark.parametrize("change", CHANGES)
async def test_the_chain_shows_whatever_was_changed_or_removed(state: Path, change: str) -> None:
    await fill(state)
    async with opened(state) as audit:
        assert (await audit.verify()).intact
    edit(state, *CHANGES[change])
    async with opened(state) as audit:
        checked = await audit.verify()
        assert not checked.intact and checked.faults
        # What is written afterwards does not hide it.
        add_call(audit, "later")
        await audit.flush()
        assert not (await audit.verify()).intact
    async with opened(state) as audit:
        assert not (await audit.verify()).intact


@requirement("guard.audit.query")
async def test_a_change_while_the_daemon_runs_is_reported_and_recorded(state: Path) -> None:
    await fill(state, 2)
    async with opened(state) as audit:
        add_call(audit)
        await audit.flush()
        assert audit.problems == []
        edit(state, "DELETE FROM blocks WHERE first = 5", "UPDATE series SET total = 2 WHERE name = 'calls'")
        add_call(audit, "next")
        await audit.flush()
        assert "another program changed the audit" in audit.problems[0]
        assert [record.verdict for record in await find(audit, events=frozenset({"audit"}))] == ["changed"]
        assert not (await audit.verify()).intact


@requirement("guard.audit.query")
async def test_calls_are_removed_by_age_and_decisions_stay(state: Path) -> None:
    clock = MachineClock()
    async with opened(state, AuditLimits(days=2.0), clock=clock) as audit:
        add_call(audit, "old", clock=clock)
        audit.record("approval", "approved", detail={"name": "github"})
        await audit.flush()
    clock.run(3 * 86_400)
    async with opened(state, AuditLimits(days=2.0), clock=clock) as audit:
        add_call(audit, "new", clock=clock)
        await audit.flush()
        assert tools(await find(audit)) == [None, "new"]
        checked = await audit.verify()
        assert (checked.intact, checked.records, checked.removed) == (True, 2, 1)


@requirement("guard.audit.query")
async def test_the_oldest_calls_are_removed_by_size_and_the_chain_holds(state: Path) -> None:
    async with opened(state, AuditLimits(max_bytes=4096)) as audit:
        audit.record("approval", "approved", detail={"name": "github"})
        for number in range(60):
            add_call(audit, f"tool-{number}")
            await audit.flush()
        records = await find(audit, events=frozenset({"call"}))
        assert 5 < len(records) < 40
        assert tools(records) == [f"tool-{number}" for number in range(60 - len(records), 60)]
        checked = await audit.verify()
        assert checked.intact and checked.records + checked.removed == 61
        assert [record.detail["name"] for record in await find(audit, events=frozenset({"approval"}))] == ["github"]
    with closing(sqlite3.connect(state / "audit.db")) as db:
        assert db.execute("SELECT SUM(length(records)) FROM blocks").fetchone()[0] < 4096 + 500


@requirement("guard.audit.query")
async def test_records_are_selected_by_each_filter_and_by_pages(state: Path) -> None:
    clock = MachineClock()
    async with opened(state, clock=clock) as audit:
        for number in range(10):
            add_call(audit, f"tool_{number}", workspace=f"/src/app-{number % 2}", clock=clock)
            clock.run(10)
            await audit.flush()
        denied = CallOrigin("owner", None, None, "two", "delete_all")
        audit.record_call("call", "denied", "rule-deny", denied, clock.monotonic(), Raw(b"{}"))
        everything = await find(audit)
        assert [record.id for record in everything] == list(range(1, 12))
        assert tools(await find(audit, server="one", tool="tool_[3]")) == []
        assert tools(await find(audit, tool="tool_3")) == tools(await find(audit, tool="one/*_3")) == ["tool_3"]
        assert len(await find(audit, workspace="app-1")) == len(await find(audit, workspace="/src/app-1")) == 5
        assert tools(await find(audit, verdict="denied")) == tools(await find(audit, verdict="rule-deny"))
        assert tools(await find(audit, server="tw?")) == ["delete_all"]
        since, until = everything[2].time, everything[4].time
        assert tools(await find(audit, since=since, until=until)) == ["tool_2", "tool_3", "tool_4"]
        newest = await audit.find(EVERYTHING, 3)
        assert ([record.id for record in newest.records], newest.more) == ([9, 10, 11], True)
        before = await audit.find(EVERYTHING, 3, before=9)
        assert [record.id for record in before.records] == [6, 7, 8]
        first = await audit.find(AuditFilter(workspace="app-0"), 3, after=0)
        assert [record.id for record in first.records] == [1, 3, 5]
        then = await audit.find(AuditFilter(workspace="app-0"), 3, after=first.last)
        assert ([record.id for record in then.records], then.more) == ([7, 9], False)


@requirement("guard.audit.query")
async def test_a_follower_gets_each_record_once_and_soon(state: Path) -> None:
    async with opened(state) as audit:
        add_call(audit, "before")
        seen: list[AuditRecord] = []
        wanted = AuditFilter(tool="wanted-*")

        async def follow() -> None:
            last = 0
            while len(seen) < 20:
                page = await audit.wait(wanted, 100, last, LIMIT)
                seen.extend(page.records)
                last = page.last

        following = asyncio.ensure_future(follow())
        for number in range(20):
            add_call(audit, "other")
            add_call(audit, f"wanted-{number}")
            await asyncio.sleep(0)
            if number % 3 == 0:
                await audit.flush()
        async with asyncio.timeout(LIMIT):
            await following
        assert tools(seen) == [f"wanted-{number}" for number in range(20)]
        assert (await audit.wait(wanted, 100, 10_000, 0.01)).records == []


@requirement("guard.audit.record")
async def test_neither_arguments_nor_results_are_stored_and_equal_ones_show(state: Path) -> None:
    secret = b'{"password":"correct horse battery staple"}'
    long = b'{"text":"%s"}' % (b"needle in a haystack " * 1000)
    async with opened(state) as audit:
        for arguments in (secret, secret, b"{}", long, long):
            add_call(audit, arguments=arguments)
        first, second, third, *longer = await find(audit)
        assert first.arguments_hash == second.arguments_hash != third.arguments_hash
        assert longer[0].arguments_hash == longer[1].arguments_hash
        assert [first.arguments_bytes, longer[0].arguments_bytes, first.result_bytes] == [len(secret), len(long), 10]
        key = (state / "audit.key").read_bytes()
    stored = b"".join(path.read_bytes() for path in state.glob("audit.db*"))
    assert b"horse" not in stored and b"needle" not in stored
    # The hash is keyed: nobody who lacks the key can try arguments out.
    assert (state / "audit.key").stat().st_mode & 0o077 == 0 and key not in stored


async def test_calls_can_be_left_out_and_decisions_cannot(state: Path) -> None:
    async with opened(state, AuditLimits(calls=False)) as audit:
        add_call(audit)
        audit.record("approval", "approved", detail={"name": "github"})
        assert [record.event for record in await find(audit)] == ["approval"]


async def test_changed_settings_are_recorded_even_if_changed_while_stopped(state: Path) -> None:
    first = {"auth": "token", "plugins": {"x": {"key": "sk-secret"}}, "trash.days": 14.0}
    async with opened(state) as audit:
        await audit.record_settings(first)
        await audit.record_settings(first)
        assert await find(audit) == []
    async with opened(state) as audit:
        await audit.record_settings({**first, "auth": "loopback", "plugins": {"x": {"key": "sk-other"}}})
        changed = {record.detail["key"]: record.detail["value"] for record in await find(audit)}
        assert changed == {"auth": '"loopback"', "plugins": "(a table)"}


async def test_a_removed_file_is_replaced_and_that_is_reported_and_recorded(state: Path) -> None:
    await fill(state, 1)
    for path in state.glob("audit.db*"):
        path.unlink()
    async with opened(state) as audit:
        assert any("a new one has begun" in problem for problem in audit.problems)
        assert [record.verdict for record in await find(audit)] == ["restarted"]
        assert (await audit.verify()).intact


async def test_a_damaged_file_is_set_aside_and_the_audit_goes_on(state: Path) -> None:
    await fill(state, 1)
    (state / "audit.db").write_bytes(b"not a database" * 1000)
    async with opened(state) as audit:
        add_call(audit)
        assert tools(await find(audit, events=frozenset({"call"}))) == ["echo"]
        assert any("was damaged" in problem for problem in audit.problems)


@pytest.mark.parametrize("obstacle", ["audit.db", "audit.key"])
async def test_an_audit_that_cannot_be_opened_stops_nothing_and_is_tried_again(state: Path, obstacle: str) -> None:
    (state / obstacle).mkdir()
    async with opened(state) as audit:
        add_call(audit)
        audit.record("approval", "approved")
        await audit.flush()
        assert "the audit cannot be written" in audit.problems[0] and "2 records wait" in audit.problems[0]
        (state / obstacle).rmdir()
        await audit.flush()
        assert audit.problems == []
        assert [record.event for record in await find(audit)] == ["call", "audit", "approval"]


# Prints what the audit does on a small disk that is full, and then not any more.
FULL = """
import asyncio, json
from msgspec import Raw
from rookery.gateway.audit import CallOrigin
from rookery.guard.audit import log
from rookery.guard.audit.log import AuditLog
from rookery.guard.audit.records import AuditFilter

log._MAX_WAITING = 500
origin = CallOrigin("owner", None, None, "one", "echo")

async def main():
    state = disk / "state"
    state.mkdir()
    audit = AuditLog(state)
    await audit.start()
    audit.record_answered(origin, 0.0, Raw(b"{}"), 1)
    await audit.flush()
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    for number in range(600):
        audit.record_answered(origin, 0.0, Raw(b'{"number": %d}' % number), 1)
        if number in (100, 599):
            await audit.flush()
    print(json.dumps(audit.problems))
    filler.unlink()
    audit.record_answered(origin, 0.0, Raw(b"{}"), 1)
    await audit.flush()
    page = await audit.find(AuditFilter(), 10_000)
    counts = {}
    for record in page.records:
        counts[record.event] = counts.get(record.event, 0) + 1
    gap = [record.detail for record in page.records if record.event == "audit"]
    print(json.dumps([audit.problems, counts, gap, (await audit.verify()).intact]))
    await audit.stop()

asyncio.run(main())
"""


@requirement("guard.audit.cost")
def test_e12_a_full_disk_stops_nothing_is_reported_and_what_was_lost_is_counted(tmp_path: Path) -> None:
    disk = make_small_disk(tmp_path / "disk")
    full, after = map(json.loads, disk.run(FULL))
    assert "the disk is full" in full[0] and "records wait in memory" in full[0] and "were dropped" in full[0]
    problems, counts, (gap,), intact = after
    assert problems == [] and intact
    lost = int(gap["records"])
    assert lost >= 100 and counts["call"] + lost == 602 and "the disk is full" in gap["why"]


# Writes records until it is killed, and prints the number of those that were surely written.
WRITER = """
import asyncio, sys
from pathlib import Path
from msgspec import Raw
from rookery.gateway.audit import CallOrigin
from rookery.guard.audit.log import AuditLog

async def main():
    audit = AuditLog(Path(sys.argv[1]))
    await audit.start()
    origin = CallOrigin("owner", None, None, "one", "echo")
    number = 0
    while True:
        for _ in range(50):
            number += 1
            audit.record_answered(origin, 0.0, Raw(b"{}"), number)
        await audit.flush()
        print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(state: Path) -> int:
    """Kill a program that writes records, and return how many it had surely written."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(state)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    written = 0
    while written < 500:
        written = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.communicate(timeout=LIMIT)[0].splitlines()
    return int(rest[-1]) if rest else written


async def test_d06_after_a_kill_what_was_written_is_there_and_the_chain_holds(state: Path) -> None:
    written = await asyncio.to_thread(write_until_killed, state)
    async with opened(state) as audit:
        assert len(await find(audit)) >= written
        assert (await audit.verify()).intact


async def test_the_stop_writes_what_waits(state: Path) -> None:
    async with opened(state) as audit:
        add_call(audit, "last")
    async with opened(state) as audit:
        assert tools(await find(audit)) == ["last"]


async def find_one(audit: AuditLog) -> None:
    await audit.find(EVERYTHING, 1)


@pytest.mark.parametrize("read", [AuditLog.verify, find_one])
async def test_a_reader_that_is_cancelled_leaves_no_write_half_done(
    state: Path, read: Callable[[AuditLog], Any]
) -> None:
    async with opened(state) as audit:
        for number in range(20):
            add_call(audit, f"tool-{number}")
            reading = asyncio.ensure_future(read(audit))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert len(await find(audit)) == 20
        assert (await audit.verify()).intact and audit.problems == []
