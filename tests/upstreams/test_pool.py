"""Servers start on demand, run once for all who may share them, and stop when idle."""

import asyncio
from typing import Any

import pytest

from rookery.upstreams.pool import ServerPool
from tests.support.daemon.process import alive
from tests.support.gateway.gateway import UNPINNED, Gateway, checkout, start_gateway, view_of, worktree, write
from tests.support.mcp.caller import MODERN, told
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer
from tests.support.mcp.remote_server import Remote
from tests.support.mcp.scripted_server import ScriptedServer, ServerScript, all_of, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


async def pid_of(gateway: Gateway, path: str, name: str = "one") -> int:
    caller = await gateway.caller(path)
    return told(await caller.call(f"{name}__echo"))["pid"]


@requirement("hub.pool.lazy", "hub.pool.reuse")
async def test_nothing_runs_before_its_first_use_and_simultaneous_first_uses_start_it_once() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        callers = await all_of(gateway.caller() for _ in range(5))
        callers += await all_of(gateway.old_caller() for _ in range(5))
        assert (await gateway.rest("GET", "/api/mcp"))[1]["one"]["status"] == "pending"
        assert gateway.scripted.all == []
        for listed in await all_of(caller.tools() for caller in callers):
            assert sorted(listed) == ["hub_list_servers", "one__echo", "one__hold", "two__echo", "two__hold"]
        await all_of(caller.call("one__echo") for caller in callers)
        await all_of(caller.tools() for caller in callers)
        assert len(gateway.scripted.of("two")) == 1
        (one,) = gateway.scripted.of("one")
        assert len(one.all("initialize")) == len(one.all("tools/list")) == 1


@requirement("hub.pool.lazy", "hub.filter.disconnected")
async def test_an_idle_server_stops_stays_listed_and_starts_again_on_the_next_call() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", idle=0.2)}) as gateway:
        caller = await gateway.caller()
        first = told(await caller.call("one__echo"))["pid"]
        await gateway.scripted.of("one")[0].has_ended()
        await gateway.becomes("one", "stopped")
        assert not alive(first)
        listed = await caller.tools()
        assert "one__echo" in listed
        second = told(await caller.call("one__echo"))["pid"]
        assert second != first


@requirement("hub.pool.lazy")
async def test_a_server_is_not_stopped_during_a_call_longer_than_its_idle_time() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", idle=0.1)}) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        other = await gateway.caller()
        # A second server is used and stopped for idleness meanwhile, so that the time has surely passed.
        write(gateway.scripted.servers("one", idle=0.1) | {"two": gateway.scripted.server("two", idle=0.2)})
        await gateway.hub.config_watcher.read_again()
        await other.call("two__echo")
        await gateway.becomes("two", "stopped")
        one.answer(request, {"content": []})
        assert (await running)["result"] == {"content": []} | (await running)["result"]
        assert len(gateway.scripted.of("one")) == 1


@requirement("hub.pool.lazy")
async def test_what_a_server_offers_after_its_rest_is_announced_if_it_is_something_else() -> None:
    script = ServerScript()
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", script, idle=0.1)}, settings=UNPINNED
    ) as gateway:
        caller = await gateway.old_caller()
        await caller.tools()
        await caller.listen()
        await gateway.becomes("one", "stopped")
        gateway.scripted.plays["one"].tools = [tool("other")]
        # The start that follows the first list is announced too.
        assert "one__echo" in await caller.tools()
        await caller.hears("notifications/tools/list_changed", 2)
        listed = await caller.tools()
        assert "one__other" in listed and "one__echo" not in listed


@requirement("hub.pool.scope", "hub.status.directory")
async def test_one_definition_in_two_directories_runs_two_processes_with_own_status() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(lambda scripted: scripted.servers("one"), left, right) as gateway:
        pids = {await pid_of(gateway, view_of(folder)) for folder in (left, right)} | {await pid_of(gateway, "/mcp")}
        assert len(pids) == 3
        assert {one.cwd for one in gateway.scripted.all} == {left.resolve(), right.resolve(), left.parents[1].resolve()}
        await gateway.crash("one", directory=left)
        assert await gateway.status("one", right) == "connected"
        listed = {path: (await gateway.rest("GET", f"/api/mcp?workspace={path}"))[1] for path in (left, right)}
        assert listed[left]["one"]["status"] == "failed" and listed[right]["one"]["status"] == "connected"


@requirement("hub.pool.scope")
async def test_a_server_with_the_scope_app_is_one_process_for_all_directories() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(lambda scripted: scripted.servers("one", scope="app"), left, right) as gateway:
        pids = {await pid_of(gateway, path) for path in ("/mcp", view_of(left), view_of(right))}
        assert len(pids) == 1
        assert {one["workspace"] for one in (await gateway.rest("GET", "/api/status"))[1]["servers"]} == {None}


@requirement("hub.pool.scope")
async def test_a_server_with_the_scope_project_is_one_process_for_its_workspaces() -> None:
    left, right = checkout("left"), checkout("right")
    worktree(left, "beside")
    async with start_gateway(lambda scripted: scripted.servers("one", scope="project"), left, right) as gateway:
        views = (view_of(left), view_of(left, workspace="beside"), view_of(right))
        main, beside, other = [await pid_of(gateway, path) for path in views]
        assert main == beside != other
        assert [one.cwd for one in gateway.scripted.all] == [left.resolve(), right.resolve()]


@requirement("hub.pool.scope")
async def test_two_definitions_of_one_name_never_share_a_process() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(None, left, right) as gateway:
        for folder, word in ((left, "a"), (right, "b")):
            # Both app-wide: only what they say keeps them apart.
            body = {"name": "one", "config": gateway.scripted.server("one", None, word, scope="app")}
            status, _ = await gateway.rest("POST", "/api/mcp", body | {"workspace": str(folder)})
            assert status == 201
        pids = [await pid_of(gateway, view_of(folder)) for folder in (left, right)]
        assert len(set(pids)) == 2
        assert sorted(one.words for one in gateway.scripted.all) == [["a"], ["b"]]


@requirement("hub.pool.scope", "hub.catalog.cached", "hub.api.add")
async def test_two_credentials_never_share_a_connection_nor_a_list_that_is_private() -> None:
    folders = [checkout(name) for name in ("left", "right", "third")]
    remote = Remote(MODERN)

    async def lists(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what != "tools/list":
            await remote(asked, out)
            return
        own = {"tools": [tool(asked.headers["authorization"])], "ttlMs": 60_000, "cacheScope": "private"}
        await out.json(asked.result(own))

    async with ScriptedHttpServer(lists) as server, start_gateway(None, *folders) as gateway:
        for folder, key in zip(folders, ("a", "b", "a"), strict=True):
            # One name, app-wide: only the credentials keep them apart.
            local = gateway.scripted.server("same", environment={"KEY": key}, scope="app")
            far = {"type": "remote", "url": server.url, "headers": {"Authorization": key}, "scope": "app"}
            for name, config in (("same", {"type": "local", **local}), ("far", far)):
                body = {"name": name, "config": config, "workspace": str(folder)}
                status, found = await gateway.rest("POST", "/api/mcp", body)
                assert status == 201 and found[name]["status"] == "connected"
        assert sorted(one.env["KEY"] for one in gateway.scripted.alive("same")) == ["a", "b"]
        for _ in range(2):
            for folder, key in zip(folders, ("a", "b", "a"), strict=True):
                listed = await (await gateway.caller(view_of(folder))).tools()
                assert [name for name in listed if name.startswith("far__")] == [f"far__{key}"]
        assert [asked.headers["authorization"] for asked in server.of("tools/list")] == ["a", "b"]


@requirement("hub.pool.scope")
async def test_a_session_scoped_server_runs_once_for_each_session_and_ends_with_it() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", scope="session")) as gateway:
        callers = [await gateway.old_caller() for _ in range(2)]
        pids = [told(await caller.call("one__echo"))["pid"] for caller in callers]
        assert len(set(pids)) == 2
        assert pids == [told(await caller.call("one__echo"))["pid"] for caller in callers]
        await callers[0].close()
        await next(one for one in gateway.scripted.all if one.pid == pids[0]).has_ended()
        assert told(await callers[1].call("one__echo"))["pid"] == pids[1]


@requirement("hub.pool.scope")
async def test_a_server_added_for_a_session_is_seen_by_it_alone_and_ends_with_it() -> None:
    async with start_gateway(lambda scripted: scripted.servers("everybody")) as gateway:
        mine, other = await gateway.old_caller(), await gateway.old_caller()
        await other.listen()
        body = {"name": "one", "config": gateway.scripted.server("one"), "session": mine.session}
        status, found = await gateway.rest("POST", "/api/mcp", body)
        assert status == 201 and found["one"]["status"] == "connected"
        assert "one" not in (await gateway.rest("GET", "/api/mcp"))[1]
        assert "one__echo" in await mine.tools()
        assert "one__echo" not in await other.tools()
        assert "error" in await other.call("one__echo")
        assert "error" in await (await gateway.caller()).call("one__echo")
        pid = told(await mine.call("one__echo"))["pid"]
        shared = {told(await caller.call("everybody__echo"))["pid"] for caller in (mine, other)}
        assert len(shared) == 1
        await mine.close()
        await gateway.scripted.of("one")[0].has_ended()
        assert not alive(pid)
        # What was shared with others goes on, and ends when nobody uses it any more.
        assert told(await other.call("everybody__echo"))["pid"] in shared
        write({})
        await gateway.scripted.of("everybody")[0].has_ended()


@requirement("hub.pool.scope")
async def test_sessions_that_come_and_go_leave_nothing_in_the_pool() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", scope="session")) as gateway:
        pool = pool_of(gateway)
        for _ in range(5):
            caller = await gateway.old_caller()
            await caller.call("one__echo")
            await caller.close()
            # A change of the file makes every view look at its members again.
            write(gateway.scripted.servers("one", scope="session"), tools={"x": True})
            await gateway.hub.config_watcher.read_again()
        assert not gateway.scripted.alive() or await all_of(one.has_ended() for one in gateway.scripted.alive())
        assert len(pool) == 0


@requirement("hub.pool.scope")
async def test_session_scoped_servers_are_refused_to_clients_without_a_session() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", scope="session")) as gateway:
        modern, old = await gateway.caller(), await gateway.old_caller()
        assert "one__echo" in await old.tools()
        assert await modern.tools() == ["hub_list_servers"]
        refused = str(await modern.call("one__echo"))
        assert "only clients that open a session" in refused
        _, found = await gateway.rest("POST", "/api/mcp/one/connect")
        assert found["error"]["code"] == "server-unavailable"
        assert told(await old.call("one__echo"))["server"] == "one"
        assert len(gateway.scripted.all) == 1


@requirement("hub.pool.lazy")
async def test_looking_makes_no_server_and_what_names_an_unknown_session_is_refused() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", scope="session")) as gateway:
        old = await gateway.old_caller()
        assert old.session is not None
        await gateway.rest("GET", f"/api/mcp?session={old.session}")
        await gateway.rest("GET", "/api/mcp")
        assert len(pool_of(gateway)) == 0
        asked: list[tuple[str, str, Any]] = [
            ("GET", "/api/mcp?session=x", None),
            ("GET", "/api/mcp/one?session=x", None),
            ("GET", "/api/tools?session=x", None),
            ("POST", "/api/mcp/one/connect?session=x", None),
            ("POST", "/api/mcp/one/disable?session=x", {}),
            ("POST", "/api/mcp", {"name": "two", "config": gateway.scripted.server("two"), "session": "x"}),
        ]
        found = [await gateway.rest(*one) for one in asked]
        assert [(status, one["error"]["code"]) for status, one in found] == [(404, "session-not-found")] * len(asked)
        assert len(pool_of(gateway)) == 0 and gateway.scripted.all == []
        status, _ = await gateway.rest("POST", f"/api/mcp/one/connect?session={old.session}")
        assert status == 200 and len(gateway.scripted.all) == 1


def pool_of(gateway: Gateway) -> ServerPool:
    return gateway.hub.pool


@requirement("hub.config.invalid", "hub.pool.reuse")
async def test_a_changed_file_stops_removed_servers_and_restarts_only_changed_ones() -> None:
    async with start_gateway(lambda scripted: scripted.servers("gone", "other", "same")) as gateway:
        caller = await gateway.old_caller()
        await caller.tools()
        await caller.listen()
        before = {one.name: one for one in gateway.scripted.all}
        scripted = gateway.scripted
        changed = {"same": scripted.server("same", idle=600), "other": scripted.server("other", None, "-x")}
        write(changed, tools={"nothing": False})
        await all_of(before[name].has_ended() for name in ("gone", "other"))
        await caller.hears("notifications/tools/list_changed")
        listed = await caller.tools()
        assert "gone__echo" not in listed and {"same__echo", "other__echo"} <= set(listed)
        assert told(await caller.call("other__echo"))["pid"] == (await gateway.scripted.comes("other", 2)).pid
        assert told(await caller.call("same__echo"))["pid"] == before["same"].pid
        assert (await gateway.scripted.comes("other", 2)).words == ["-x"]


@requirement("hub.pool.dispose")
async def test_the_end_closes_everything_even_if_closing_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", "two", "three")) as gateway:
        await (await gateway.caller()).tools()
        servers: list[ScriptedServer] = list(gateway.scripted.all)
        server = await gateway.server("two")
        closing = server.close

        async def fail() -> None:
            await closing()
            raise OSError("no")

        server.close = fail
    assert len(servers) == 3
    assert not [one for one in servers if alive(one.pid)]
    assert "two was not closed properly" in caplog.text


@requirement("hub.pool.dispose")
async def test_the_end_comes_soon_while_servers_start_hang_and_are_deaf() -> None:
    async with start_gateway(patient=False) as gateway:
        scripted = gateway.scripted
        mute = scripted.server("mute", ServerScript(held={"initialize", "server/discover"}))
        write({"mute": mute, "one": scripted.server("one")})
        caller = await gateway.caller()
        running, listing = caller.begin("one__hold"), asyncio.create_task(caller.tools())
        await (await scripted.comes("one")).called("hold")
        (await scripted.comes("mute")).order(deaf=True)
        running.cancel()
        listing.cancel()
    assert not [one for one in scripted.all if alive(one.pid)]
