"""Approvals: by content, persistent, and invalid after a change from outside."""

import asyncio
import logging
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.guard.approvals import Approvals
from rookery.guard.seal import Seal
from rookery.guard.subject import Key, Subject
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.requirements import requirement
from tests.support.store import Child

if TYPE_CHECKING:
    from rookery.guard.records import Approval

pytestmark = [pytest.mark.anyio, requirement("guard.approve.config")]

KEY = Key("mcp-server", "/src/app", "tools")


def subject(content: str = "one", *, name: str = "tools", place: str = "/src/app", problem: str = "") -> Subject:
    return Subject("mcp-server", place, name, content, {"run.sh": "00"}, "/src/app/.mcp.json:3", problem)


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[tuple[Approvals, Store]]:
    Seal.for_store(path).create()
    store = Store(path)
    await store.open()
    try:
        yield Approvals(store), store
    finally:
        await store.close()


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


async def approve(approvals: Approvals, *contents: str) -> None:
    for content in contents:
        await approvals.approve(subject(content), subject(content).digest)


async def test_an_approval_holds_for_one_content_in_one_place_and_survives_a_restart(path: Path) -> None:
    async with opened(path) as (approvals, _):
        assert await approvals.state(subject()) == "new"
        await approve(approvals, "one")
        assert await approvals.state(subject()) == "approved"
    async with opened(path) as (approvals, store):
        assert await approvals.state(subject()) == "approved"
        assert await approvals.state(subject("two")) == "changed"
        assert await approvals.state(subject(name="other")) == "new"
        assert await approvals.state(subject(place="/src/copy")) == "new"
        assert store.problems == []


async def test_several_contents_of_one_name_can_be_approved_and_are_revoked_together(path: Path) -> None:
    async with opened(path) as (approvals, _):
        await approve(approvals, "one", "two", "one")
        assert [one.content.splitlines()[0] for one in await approvals.list()] == ["two", "one"]
        last = await approvals.find_newest(KEY)
        assert last is not None and last.digest == subject().digest
        assert await approvals.revoke(KEY)
        assert not await approvals.revoke(KEY)
        assert await approvals.state(subject()) == "new"
    async with opened(path) as (approvals, _):
        assert await approvals.list() == []


async def test_c10_what_changed_since_it_was_shown_is_not_approved(path: Path) -> None:
    async with opened(path) as (approvals, _):
        with pytest.raises(RookeryError, match="has changed since it was shown") as caught:
            await approvals.approve(subject("two"), subject("one").digest)
        assert caught.value.code == "needs-approval"
        assert await approvals.list() == []


async def test_what_cannot_be_looked_at_is_never_approved(path: Path) -> None:
    broken = subject(problem="run.sh is too large to be checked")
    async with opened(path) as (approvals, _):
        with pytest.raises(RookeryError, match="too large"):
            await approvals.approve(broken, broken.digest)
        await approve(approvals, "one")
        assert await approvals.state(broken) == "changed"


def edit(path: Path) -> None:
    """Approve something by hand."""
    evil = subject("evil")
    with closing(sqlite3.connect(path)) as db:
        row = (*evil.key, evil.digest, evil.text, 1.0, "terminal")
        db.execute("INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.commit()


def remove_seal(path: Path) -> None:
    path.with_name("approvals.seal").unlink()


def link_seal(path: Path) -> None:
    seal = path.with_name("approvals.seal")
    seal.rename(path.with_name("other"))
    seal.symlink_to("other")


def open_seal(path: Path) -> None:
    path.with_name("approvals.seal").chmod(0o666)


def garble_seal(path: Path) -> None:
    path.with_name("approvals.seal").write_bytes(b"\xff\0")


def truncate(path: Path) -> None:
    os.truncate(path, 3 * 4096)


@pytest.mark.parametrize("tamper", [edit, remove_seal, link_seal, open_seal, garble_seal, truncate])
async def test_c08_approvals_changed_from_outside_are_ignored_and_reported(
    path: Path, tamper: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as (approvals, _):
        await approve(approvals, "one")
    tamper(path)
    async with opened(path) as (approvals, store):
        assert await approvals.state(subject("one")) == "new"
        assert await approvals.state(subject("evil")) == "new"
        assert any("lost or changed from outside" in problem for problem in store.problems)
        assert "lost or changed from outside" in caplog.text
        if tamper is not link_seal:
            # A person can mend it by approving again, and only what was approved now counts.
            await approve(approvals, "two")
    async with opened(path) as (approvals, _):
        found = [one.content.splitlines()[0] for one in await approvals.list()]
        assert found == ([] if tamper is link_seal else ["two"])


async def test_c08_an_old_copy_of_the_store_does_not_bring_back_what_was_revoked(path: Path) -> None:
    async with opened(path) as (approvals, _):
        await approve(approvals, "one")
    shutil.copy(path, path.with_name("old"))
    async with opened(path) as (approvals, _):
        await approvals.revoke(KEY)
    shutil.copy(path.with_name("old"), path)
    async with opened(path) as (approvals, store):
        assert await approvals.state(subject()) == "new"
        assert len(store.problems) == 1


async def test_c08_a_change_from_outside_while_running_is_found_by_the_next_approval(path: Path) -> None:
    async with opened(path) as (approvals, store):
        await approve(approvals, "one")
        edit(path)
        assert await approvals.state(subject("evil")) == "changed"
        await approve(approvals, "two")
        assert [one.content.splitlines()[0] for one in await approvals.list()] == ["two"]
        assert len(store.problems) == 1


async def test_c08_a_store_that_cannot_be_read_approves_nothing_until_it_can(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path) as (approvals, _):
        await approve(approvals, "one")
    store = Store(path)
    approvals = Approvals(store)
    assert await approvals.state(subject()) == "new"
    assert [record.levelno for record in caplog.records if record.name == "rookery.guard"][-1] == logging.ERROR
    await store.open()
    assert await approvals.state(subject()) == "approved"
    await store.close()


async def test_whoever_gives_up_waiting_leaves_the_approvals_as_the_store_has_them(path: Path) -> None:
    async with opened(path) as (approvals, _):
        known: list[Approval] = []
        await approve(approvals, "one")
        for number in range(20):
            task = asyncio.ensure_future(approvals.revoke(KEY) if number % 2 else approve(approvals, "one"))
            reading = asyncio.ensure_future(approvals.list())
            for _ in range(number // 3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, reading, return_exceptions=True)
            known = await approvals.list()
        assert await approvals.list() == known
    async with opened(path) as (approvals, store):
        assert await approvals.list() == known
        assert store.problems == []


# Approves and revokes for ever, and tells after each answer.
APPROVER = """
from rookery.guard.approvals import Approvals
from rookery.guard.seal import Seal
from rookery.guard.subject import Subject

async def main():
    Seal.for_store(path).create()
    store = Store(path)
    await store.open()
    approvals = Approvals(store)
    number = 0
    while True:
        one = Subject("mcp-server", "/src/app", "tools", str(number))
        await approvals.approve(one, one.digest)
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 7, 20])
async def test_c09_a_daemon_killed_while_approving_leaves_the_old_or_the_new_state(path: Path, after: int) -> None:
    with Child(APPROVER, path) as child:
        child.wait_for(after)
        child.process.send_signal(signal.SIGKILL)
        child.process.wait(30)
        told = [int(line) for line in child.told()]
    async with opened(path) as (approvals, store):
        found = sorted(int(one.content) for one in await approvals.list())
        assert store.problems == []
    assert found[: len(told)] == told
    assert len(found) <= len(told) + 1, "at most the one that was not answered any more"


# Ends in its second approval: when the seal has been written and nothing committed yet, or the other way round.
CRASHER = """
from rookery.guard.approvals import Approvals
from rookery.guard.seal import Seal
from rookery.guard.subject import Subject

write, calls = Seal.write, 0

def write_or_crash(self, *marks):
    global calls
    calls += 1
    if calls == 3 and sys.argv[2] == "before the commit":
        write(self, *marks)
    if calls == (3 if sys.argv[2] == "before the commit" else 4):
        tell(marks=len(self.read_marks()))
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, *marks)

async def main():
    Seal.for_store(path).create()
    Seal.write = write_or_crash
    store = Store(path)
    await store.open()
    approvals = Approvals(store)
    for content in ("one", "two"):
        one = Subject("mcp-server", "/src/app", "tools", content, {"run.sh": "00"})
        await approvals.approve(one, one.digest)

asyncio.run(main())
"""


@pytest.mark.parametrize(("at", "second"), [("before the commit", "changed"), ("after the commit", "approved")])
async def test_c09_a_crash_at_the_commit_itself_leaves_the_old_or_the_new_state(
    path: Path, at: str, second: str
) -> None:
    with Child(CRASHER, path, at) as child:
        assert child.facts() == {"marks": 2}
        assert child.process.wait(30) == -signal.SIGKILL
    seal = path.with_name("approvals.seal")
    assert len(seal.read_text().split()) == 2
    async with opened(path) as (approvals, store):
        assert await approvals.state(subject("one")) == "approved"
        assert await approvals.state(subject("two")) == second
        assert store.problems == []
    assert len(seal.read_text().split()) == 1


@requirement("guard.approve.history")
async def test_approvals_that_were_given_before_the_history_began_are_in_it(path: Path) -> None:
    records: list[tuple[str, str, float | None, Mapping[str, str]]] = []

    def record(event: str, verdict: str, **more: Any) -> None:
        records.append((event, verdict, more.get("time"), more["detail"]))

    async with opened(path) as (approvals, _):
        await approve(approvals, "one")
        given = (await approvals.list())[0]
    store = Store(path)
    await store.open()
    try:
        await Approvals(store, record=record).record_all()
    finally:
        await store.close()
    ((event, verdict, time, detail),) = records
    assert (event, verdict, time) == ("approval", "approved", given.at)
    assert (detail["name"], detail["digest"], detail["by"]) == ("tools", given.digest, "terminal")
