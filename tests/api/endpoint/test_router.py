"""The endpoints: which view a path, a header and a query select, and that none selects another's."""

import asyncio
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from websockets.asyncio.client import connect

from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of
from tests.support.mcp.caller import ERAS, HANDSHAKE, Caller, failure, told, words
from tests.support.mcp.scripted_server import all_of
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

HEADER = "X-Workspace-Path"


async def status_with(gateway: Gateway, *values: bytes, path: str = "/mcp") -> tuple[int, str]:
    """The answer to a request with this header, in raw bytes."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}'
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: here", b"Content-Type: application/json"]
    lines += [b"X-Workspace-Path: " + value for value in values]
    answer = await gateway.site.ask(b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body]))
    return answer.status, answer.body.decode()


@requirement("hub.pool.scope")
@pytest.mark.parametrize("era", ERAS)
async def test_a_workspace_is_chosen_by_header_or_by_path_and_is_the_same_one(era: str) -> None:
    folder = checkout("with space é")
    link = folder.parent / "link"
    link.symlink_to(folder)
    spellings = [quote(str(folder)), quote(str(folder)) + "/", str(folder.parent) + "/./x/../link", str(link)]
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        callers = [await gateway.caller("/mcp", era, headers={HEADER: value}) for value in spellings]
        callers.append(await gateway.caller(view_of(folder), era))
        pids = {told(await caller.call("one__echo"))["pid"] for caller in callers}
        assert len(pids) == 1
        assert {one.cwd for one in gateway.scripted.all} == {folder.resolve()}


async def test_a07_a_header_that_makes_no_sense_is_refused_before_anything_happens() -> None:
    folder = checkout()
    good = str(folder).encode()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        assert "X-Workspace-Path" not in (await status_with(gateway, good))[1]
        for values in (
            (good, good),
            (good, b"/other"),
            (b"relative/path",),
            (b"../" + good,),
            (b"",),
            (b"/" + b"x" * 5_000,),
            (b"/a%00b",),
            (b"/\xff\xfe",),
            (b"/%ff%fe",),
            (b"file://" + good,),
        ):
            status, body = await status_with(gateway, *values)
            assert status == 400, values
            assert HEADER in json.loads(body)["error"]["message"]
        assert gateway.scripted.all == []


@pytest.mark.parametrize("era", ERAS)
async def test_a07_a_workspace_that_is_not_registered_can_use_nothing_and_starts_nothing(era: str) -> None:
    folder = checkout()
    (folder / "inside").mkdir()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        for path in ("/", "/nowhere", str(folder / "inside"), str(folder) + "x", str(folder.parent)):
            caller = await gateway.caller("/mcp", era, headers={HEADER: path})
            assert "one__echo" not in await caller.tools()
            for tool in ("one__echo", "hub_list_servers", "no_such_tool"):
                found = await caller.call(tool)
                assert failure(found) == "workspace-not-found" and "rookery ws list" in words(found)
            assert "error" in await caller.ask("resources/read", {"uri": "one+x://y"})
        assert gateway.scripted.all == []
        assert len((await gateway.rest("GET", "/api/projects"))[1]) == 1


async def test_a_workspace_that_is_registered_meanwhile_is_there_at_once() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller(headers={HEADER: str(folder)})
        assert failure(await caller.call("one__echo")) == "project-not-found"
        status, _ = await gateway.rest("POST", "/api/projects", {"path": str(folder)})
        assert status == 201
        assert told(await caller.call("one__echo"))["server"] == "one"
        assert gateway.scripted.of("one")[0].cwd == folder.resolve()


async def test_a_path_that_leads_nowhere_is_not_found() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        right = view_of(folder)
        wrong = [
            "/w/none/@main/mcp",
            right.replace("@main", "other"),
            right.replace("@main", "..%2F@main"),
            view_of(folder, "two"),
            view_of(folder, "one/../one"),
            right.replace("/mcp", "/s//mcp"),
            right.replace("/mcp", "/s/one/more/mcp"),
            right.replace("/mcp", "/x/one/mcp"),
            "/w/mcp",
            "/w//mcp",
            "/x/mcp",
            "/mcp/mcp",
            "//mcp",
        ]
        for path in wrong:
            status, _ = await status_with(gateway, path=path)
            assert status == 404, path
        assert (await status_with(gateway, path=right))[0] != 404
        assert gateway.scripted.all == []


async def test_a18_a_session_of_one_view_opens_no_other() -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(lambda scripted: scripted.servers("one"), left, right) as gateway:
        caller = await gateway.old_caller(view_of(left))
        assert await caller.tools()
        others: list[tuple[str, dict[str, str]]] = [
            (view_of(right), {}),
            (view_of(left, "one"), {}),
            ("/mcp", {}),
            ("/mcp", {HEADER: str(left)}),
            (view_of(left) + "?names=opencode", {}),
        ]
        for path, headers in others:
            replay = Caller(gateway.http, gateway.url(path), HANDSHAKE, headers=headers)
            replay.session = caller.session
            message = replay.message("tools/call", {"name": "one__echo"})
            status, _ = await replay.raw(json.dumps(message).encode())
            assert status == 404, path
        assert gateway.scripted.of("one")[0].calls("echo") == []
        assert "result" in await caller.call("one__echo")


async def test_clients_that_come_at_the_same_time_all_keep_their_sessions() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        callers = await all_of(gateway.old_caller(view_of(folder)) for _ in range(8))
        for caller in callers:
            assert "one__echo" in await caller.tools()


async def test_the_toolsets_of_ours_can_be_narrowed() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        for query, shown in (
            ("", True),
            ("?toolsets=hub", True),
            ("?toolsets=hub,other", True),
            ("?toolsets=x", False),
        ):
            caller = await gateway.caller(f"/mcp{query}")
            assert ("hub_list_servers" in await caller.tools()) == shown, query
            assert ("result" in await caller.call("hub_list_servers")) == shown
            assert "result" in await caller.call("one__echo")


async def test_addresses_without_end_do_not_push_out_a_view_that_is_in_use() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        for number in range(1_200):
            status, _ = await status_with(gateway, path=f"/mcp?toolsets=t{number}&x={number}")
            assert status < 500
            if number % 100 == 0:
                assert "result" in await caller.ask("ping")
        assert "result" in await caller.call("one__echo")


@requirement("hub.servers.tool")
@pytest.mark.parametrize("query", ["", "?names=opencode"])
async def test_a_client_of_the_first_transport_is_served_the_view_that_it_opened(query: str) -> None:
    folder = checkout()
    tool = "one_echo" if query else "one__echo"
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        for view in (f"/mcp{query}", view_of(folder) + query):
            # That the list has grown is told before the client comes: this one fails if it is told while it leaves.
            first = await gateway.caller(view)
            await first.listen()
            await first.tools()
            await first.hears("notifications/tools/list_changed")
            async with Client(sse_client(gateway.url(view.replace("/mcp", "/sse"))), mode="legacy") as client:
                assert tool in [each.name for each in (await client.list_tools()).tools]
                found = await client.call_tool(tool, {"a": 1})
                assert not found.is_error


async def test_a_client_over_a_websocket_is_served_the_view_that_it_opened() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        for path, tool in (("/ws?names=opencode", "one_echo"), (view_of(folder, "one").replace("/mcp", "/ws"), "echo")):
            url = gateway.url(path).replace("http", "ws")
            async with connect(url, subprotocols=["mcp"], proxy=None) as socket:  # pyright: ignore[reportArgumentType]
                maker = Caller(gateway.http, gateway.url())
                await socket.send(json.dumps(maker.message("tools/list", id_=1)))
                listed = json.loads(await asyncio.wait_for(socket.recv(), 10))
                assert tool in [each["name"] for each in listed["result"]["tools"]]
                await socket.send(json.dumps(maker.message("tools/call", {"name": tool}, id_=2)))
                found = json.loads(await asyncio.wait_for(socket.recv(), 10))
                assert told(found)["tool"] == "echo"


@requirement("hub.servers.tool")
async def test_the_servers_are_listed_for_a_model_as_this_view_has_them() -> None:
    folder = checkout()
    async with start_gateway(
        lambda scripted: scripted.servers("one") | {"bad": {"command": "false"}}, folder
    ) as gateway:
        caller = await gateway.caller(headers={HEADER: str(folder)})
        await caller.tools()
        found = (await caller.call("hub_list_servers"))["result"]
        servers = {one["name"]: one for one in found["structuredContent"]["servers"]}
        assert json.loads(found["content"][0]["text"]) == found["structuredContent"]
        assert set(servers["one"]) == {"name", "status", "error", "tools", "source", "shadowed", "scope", "era"}
        assert servers["one"]["status"] == "connected" and servers["one"]["tools"] == 2
        assert servers["one"]["era"] == HANDSHAKE and servers["one"]["scope"] == "workspace"
        assert re.fullmatch(r".*/rookery/mcp\.json:1", servers["one"]["source"])
        assert servers["bad"]["status"] == "failed" and servers["bad"]["error"]
        wrong = await caller.call("hub_list_servers", {"x": 1})
        assert failure(wrong) == "invalid-input"
    assert Path.home().is_dir()
