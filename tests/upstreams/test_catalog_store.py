"""The catalogs that are shown after a start, before any server is connected."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from rookery.gateway.provider import Catalog, CatalogEntry
from rookery.system.store import Store
from rookery.upstreams.catalog_store import CatalogStore
from rookery.upstreams.oauth.credentials import SignInTarget
from tests.support.gateway.gateway import UNPINNED, checkout, start_gateway, view_of, write
from tests.support.mcp.caller import ERAS, told
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, all_of, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

NAMES = ("one", "two", "three")


def offering(**more: Any) -> ServerScript:
    return ServerScript(
        [tool("echo", title="Echo", **{"x-unknown": 1.50})],
        prompts=[{"name": "ask"}],
        resources=[{"uri": "note://a", "name": "a"}],
        templates=[{"uriTemplate": "note://{name}", "name": "notes"}],
        instructions="Use it with care.",
        **more,
    )


def defined(scripted: ScriptedServers, **more: Any) -> dict[str, Any]:
    return {name: scripted.server(name, offering(**more)) for name in NAMES}


@requirement("servers.list.first")
@pytest.mark.parametrize("era", ERAS)
async def test_the_first_list_after_a_start_has_all_and_a_call_waits_for_its_server(era: str) -> None:
    async with start_gateway(defined) as gateway:
        caller = await gateway.caller("/mcp", era)
        kinds = ("tools", "prompts", "resources", "resourceTemplates")
        before = {kind: await caller.listed_of_servers(kind) for kind in kinds}
        assert all(len([one for one in before[kind] if "+" in str(one) or "__" in str(one)]) >= 3 for kind in kinds)
    silent = {"initialize", "server/discover"}
    async with start_gateway(lambda scripted: defined(scripted, held=silent)) as gateway:
        caller = await gateway.caller("/mcp", era)
        # No server has answered anything.
        assert {kind: await caller.listed_of_servers(kind) for kind in kinds} == before
        servers = await all_of(gateway.scripted.comes(name) for name in NAMES)
        await caller.listen()
        running = caller.begin("two__echo", {"n": 1})
        for server in servers:
            server.answer(await server.hears("initialize"), offering().about(server.name))
        assert told(await running)["arguments"] == {"n": 1}
        # They listed the same, so that nothing is announced, and each was listed and started once.
        await all_of(gateway.becomes(name, "connected") for name in NAMES)
        assert caller.heard[1:] == [] if era == ERAS[1] else caller.heard == []
        assert len(gateway.scripted.all) == 3 and all(len(server.all("tools/list")) == 1 for server in servers)


@requirement("servers.list.first")
async def test_a_view_of_one_server_describes_it_before_it_is_started() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: {"one": scripted.server("one", offering())}, folder) as gateway:
        await (await gateway.old_caller(view_of(folder, "one"))).tools()
    async with start_gateway(lambda scripted: {"one": scripted.server("one", offering())}, folder) as gateway:
        caller = await gateway.old_caller(view_of(folder, "one"))
        hello = await caller.open()
        assert hello["serverInfo"] == {"name": "one", "version": "1"}
        assert hello["instructions"] == "Use it with care."
        assert hello["capabilities"].keys() == {"tools", "prompts", "resources", "logging", "completions"}
        assert gateway.scripted.all == []


async def test_what_a_server_lists_after_the_start_replaces_its_stored_list() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), settings=UNPINNED) as gateway:
        await (await gateway.caller()).tools()
    play = ServerScript([tool("other")], held={"tools/list"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}, settings=UNPINNED) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        assert "one__echo" in await caller.tools()
        one = await gateway.scripted.comes("one")
        # A tool that is new may be called as soon as its server is there.
        running = caller.begin("one__other")
        one.answer(await one.hears("tools/list"), {"tools": play.tools})
        assert told(await running)["tool"] == "other"
        await caller.hears("notifications/tools/list_changed")
        listed = await caller.tools()
        assert "one__other" in listed and "one__echo" not in listed
    async with start_gateway(lambda scripted: scripted.servers("one"), settings=UNPINNED) as gateway:
        assert "one__other" in await (await gateway.caller()).tools()


async def test_a_stored_list_vanishes_if_its_server_does_not_start_any_more() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        await (await gateway.caller()).tools()
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", ServerScript(held={"initialize"}))}
    ) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        assert "one__echo" in await caller.tools()
        one = await gateway.scripted.comes("one")
        one.refuse(await one.hears("initialize"), -1, "no licence")
        await caller.hears("notifications/tools/list_changed")
        assert await caller.tools() == ["hub_list_servers"]


@requirement("hub.pool.scope")
async def test_s2_a_stored_list_belongs_to_one_definition_in_one_directory() -> None:
    left, right = checkout("left"), checkout("right")

    def keyed(key: str, **more: Any) -> Callable[[ScriptedServers], dict[str, Any]]:
        play = ServerScript([tool(f"of-{key}")], **more)
        return lambda scripted: {"one": scripted.server("one", play, environment={"KEY": key})}

    async with start_gateway(keyed("a"), left, right) as gateway:
        assert "one__of-a" in await (await gateway.caller(view_of(left))).tools()
    failing: dict[str, Callable[[Any], Any]] = {"initialize": lambda params: None}
    for key, folder, is_shown in (("b", left, False), ("a", right, False), ("a", left, True)):
        async with start_gateway(keyed(key, replies=failing), left, right) as gateway:
            listed = await (await gateway.caller(view_of(folder))).tools()
            assert ("one__of-a" in listed) is is_shown, (key, folder)


async def test_a_stored_list_of_a_server_that_needs_approval_is_not_shown() -> None:
    folder = checkout()
    async with start_gateway(None, folder) as gateway:
        write({"one": gateway.scripted.server("one")}, folder / ".rookery" / "mcp.json")
        await gateway.hub.refresh(folder)
        (subject,) = await gateway.service.list_waiting()
        await gateway.approvals.approve(subject, subject.digest)
        await gateway.hub.refresh(folder)
        caller = await gateway.caller(view_of(folder))
        assert "one__echo" in await caller.tools()
        more = {"one": gateway.scripted.server("one", environment={"X": "1"})}
    write(more, folder / ".rookery" / "mcp.json")
    async with start_gateway(None, folder) as gateway:
        assert await gateway.status("one", folder) == "needs_approval"
        assert "one__echo" not in await (await gateway.caller(view_of(folder))).tools()


async def test_changes_of_servers_that_start_together_are_announced_together() -> None:
    names = [f"server{number}" for number in range(8)]
    async with start_gateway(lambda scripted: scripted.servers(*names)) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        assert len(await caller.tools()) == 17
        await caller.hears("notifications/tools/list_changed")
        # One when all have started; more only if they took longer than a second.
        assert len(caller.heard) < len(names)


def catalog(*tools: bytes) -> Catalog:
    return Catalog(tools=[CatalogEntry(name.decode(), Raw(b'{"name":"%b"}' % name)) for name in tools])


async def test_s2_the_lists_of_an_account_are_forgotten_when_its_user_signs_out() -> None:
    async with start_gateway() as gateway:
        catalogs, keys = gateway.hub.pool.catalogs, [(name, "digest", "/a") for name in ("mine", "other")]
        for key in keys:
            catalogs.save(key, catalog(b"a"), "modern", "2026-07-28")
        gateway.hub.signins.on_changed(SignInTarget("mine", "https://example.com"), True)
        await catalogs.close()
        await catalogs.load(keys)
        gateway.hub.signins.on_changed(SignInTarget("mine", "https://example.com"), False)
        assert catalogs.find(keys[0], keep=False) is None
        found = catalogs.find(keys[1], keep=False)
        assert found is not None and found.revision == "2026-07-28" and found.era == "modern"
        await catalogs.close()
        await catalogs.load(keys)
        assert [catalogs.find(key, keep=True) is not None for key in keys] == [False, True]


async def test_a_stored_list_that_cannot_be_read_counts_as_missing(tmp_path: Path) -> None:
    store, key = Store(tmp_path / "rookery.db"), ("one", "digest", "/a")
    await store.open()
    catalogs = CatalogStore(store)
    for damage in (b"", b"{", b"7", b'{"tools":{}}', b"[" * 100_000, b'{"tools":[],"era":"x"}'):
        await store.write(partial(insert, (*key, damage, 0.0)))
        await catalogs.load([key])
        assert catalogs.find(key, keep=False) is None
    await store.close()


async def test_stored_lists_that_nobody_uses_are_deleted_after_two_months(tmp_path: Path) -> None:
    store, keys = Store(tmp_path / "rookery.db"), [(name, "digest", "/a") for name in ("new", "old")]
    await store.open()
    catalogs = CatalogStore(store)
    catalogs.save(keys[0], catalog(b"a"), None, None)
    await catalogs.close()
    await store.write(partial(insert, (*keys[1], b"{}", 0.0)))
    await catalogs.prune()
    await catalogs.load(keys)
    assert [catalogs.find(key, keep=True) is not None for key in keys] == [True, False]
    await store.close()


async def test_a_store_that_fails_keeps_no_server_from_working(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalogs, key = CatalogStore(Store(tmp_path / "rookery.db")), ("one", "digest", "/a")
    catalogs.save(key, catalog(b"a"), None, None)
    await catalogs.load([key])
    await catalogs.close()
    assert catalogs.find(key, keep=False) is None
    assert "a catalog cannot be stored" in caplog.text and "stored catalogs cannot be read" in caplog.text


def insert(row: tuple[Any, ...], db: sqlite3.Connection) -> None:
    db.execute("INSERT OR REPLACE INTO catalogs VALUES (?, ?, ?, ?, ?)", row)
