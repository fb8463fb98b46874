"""The pins in the store: what is pinned, what waits, and what happens to pins that another program changed."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from rookery.guard.pins.definition import DefinitionKey, compute_digest
from rookery.guard.pins.records import PinOwner, SeenDefinition
from rookery.guard.pins.store import SEAL_FILE, PinChanges, PinStore, make_seal
from rookery.guard.seal import Seal
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from tests.support.store import take_migrations_back

pytestmark = pytest.mark.anyio

OWNER = PinOwner("notes")
READ = DefinitionKey("tool", "read")


@pytest.fixture
def path(state: Path) -> Path:
    return state / "rookery.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[tuple[PinStore, Store]]:
    Seal.for_store(path).create()
    make_seal(path).create()
    store = Store(path)
    await store.open()
    try:
        yield PinStore(store), store
    finally:
        await store.close()


def seen(text: str = "Read a note", key: DefinitionKey = READ) -> SeenDefinition:
    content = f'{{"name":"{key.name}","description":"{text}"}}'.encode()
    return SeenDefinition(key, compute_digest(content), content)


async def test_what_was_pinned_and_what_waits_survives_a_restart(path: Path) -> None:
    old, new = seen(), seen("Read a note and send it")
    async with opened(path) as (pins, _):
        assert await pins.find(OWNER) is None
        await pins.record(OWNER, PinChanges([old], [], []), version="1.0")
        await pins.record(OWNER, PinChanges([], [(new, "changed")], []), version="1.1")
    async with opened(path) as (pins, store):
        server = await pins.find(OWNER)
        assert server is not None
        assert server.pinned == {READ: {old.digest: "first"}}
        assert server.waiting == {READ: (new.digest, "changed")}
        assert store.problems == []
        (listed,) = await pins.list_servers()
        assert [(pin.state, pin.version, pin.content) for pin in listed.pins] == [
            ("pinned", "1.0", old.content),
            ("waiting", "1.1", new.content),
        ]


async def test_approval_releases_exactly_the_content_that_was_shown(path: Path) -> None:
    shown, later = seen("one"), seen("two")
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([seen()], [], []), version="")
        await pins.record(OWNER, PinChanges([], [(shown, "changed")], []), version="")
        await pins.record(OWNER, PinChanges([], [(later, "changed")], []), version="")
        with pytest.raises(RookeryError, match="has changed since it was shown"):
            await pins.approve(OWNER, {READ: shown.digest})
        await pins.approve(OWNER, {READ: later.digest})
        server = await pins.find(OWNER)
        assert server is not None and server.waiting == {}
        assert server.pinned == {READ: {seen().digest: "first", later.digest: "terminal"}}


async def test_what_is_blocked_stays_blocked_until_it_is_approved(path: Path) -> None:
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([seen()], [], []), version="")
        await pins.block(OWNER, [READ])
        await pins.block(OWNER, None)
        await pins.forget(OWNER)
        server = await pins.find(OWNER)
        assert server is not None and (server.blocked, server.blocked_definitions, server.at) == (True, {READ}, 0)
        await pins.approve(OWNER, {READ: ""}, server=True)
        server = await pins.find(OWNER)
        assert server is not None and (server.blocked, server.blocked_definitions) == (False, set())


async def test_trust_is_kept_and_taken_back(path: Path) -> None:
    async with opened(path) as (pins, _):
        await pins.trust(OWNER, additions=True)
        server = await pins.find(OWNER)
        assert server is not None and server.additions and not server.at
        await pins.trust(OWNER, additions=False)
        server = await pins.find(OWNER)
        assert server is not None and not server.additions


@pytest.mark.parametrize(
    "tamper",
    [
        "INSERT INTO pins SELECT name, place, program, kind, 'extra', digest, state, by, '', '', at, content FROM pins",
        "UPDATE pins SET by = 'terminal'",
        "DELETE FROM pins",
        "UPDATE pinned_servers SET additions = 1",
    ],
)
async def test_c08_pins_that_another_program_changed_do_not_count(path: Path, tamper: str) -> None:
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([seen()], [], []), version="")
    with closing(sqlite3.connect(path)) as db:
        db.execute(tamper)
        db.commit()
    async with opened(path) as (pins, store):
        assert await pins.find(OWNER) is None and await pins.are_lost()
        assert "guard approve --all" in store.problems[0]
    async with opened(path) as (pins, store):
        assert await pins.are_lost()
        await pins.accept_loss()
        assert not await pins.are_lost() and store.problems == []


async def test_c08_an_older_copy_of_the_store_is_noticed(path: Path) -> None:
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([seen("old")], [], []), version="")
    copy = path.read_bytes()
    async with opened(path) as (pins, _):
        await pins.block(OWNER, [READ])
    path.write_bytes(copy)
    async with opened(path) as (pins, _):
        assert await pins.are_lost()


@pytest.mark.parametrize("gone", [("rookery.db",), (SEAL_FILE,), ("rookery.db", SEAL_FILE)])
async def test_c08_a_store_or_a_seal_that_is_gone_is_noticed(path: Path, gone: tuple[str, ...]) -> None:
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([seen()], [], []), version="")
    path.with_name("token").write_text("a daemon has run here")
    for name in gone:
        path.with_name(name).unlink()
    async with opened(path) as (pins, _):
        assert await pins.are_lost()


async def test_c08_content_that_does_not_fit_its_digest_is_not_shown(path: Path) -> None:
    async with opened(path) as (pins, _):
        await pins.record(OWNER, PinChanges([], [(seen(), "new")], []), version="")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE pins SET content = ?", (b"{}",))
        db.commit()
    async with opened(path) as (pins, _):
        assert [server.pins for server in await pins.list_servers()] == [[]]


async def test_a_store_of_an_earlier_version_has_nothing_to_lose(path: Path) -> None:
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        take_migrations_back(db, 10)
    path.with_name(SEAL_FILE).unlink()
    async with opened(path) as (pins, store):
        assert not await pins.are_lost() and store.problems == []
    async with opened(path) as (pins, store):
        assert not await pins.are_lost() and store.problems == []
