"""The MCP server of each workspace, on its own port, in the real daemon: its start and stop."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.cli.workspaces import app, made, told, ws
from tests.support.daemon.endpoints import bearer, hold_port, is_free, listens, mcp, start_daemon, token_of
from tests.support.daemon.process import Daemon, rookery, unused_port, up
from tests.support.http.listener import LIMIT, within_limit
from tests.support.mcp.caller import ERAS, HANDSHAKE, Caller
from tests.support.requirements import requirement
from tests.support.workspaces.service import git

pytestmark = pytest.mark.anyio


async def who(http: aiohttp.ClientSession, url: str, token: str, era: str = ERAS[1]) -> str:
    """The branch of the workspace that is served there."""
    caller = Caller(http, url, era, headers=bearer(token))
    await caller.open()
    found = await caller.call("workspace_get_metadata")
    await caller.close()
    return found["result"]["structuredContent"]["who"]


def marked(name: str, cwd: Path) -> Path:
    path = made(name, cwd=cwd)
    ws("meta", "set", "who", name, cwd=path)
    return path


@requirement("ws.endpoint.start", "ws.endpoint.running")
async def test_opening_a_workspace_starts_its_server_and_so_does_the_daemon(tmp_path: Path) -> None:
    with start_daemon(f"endpoints.first_port={unused_port()}") as daemon:
        checkout = app(tmp_path / "app")
        assert mcp("@main", checkout).items() >= {"server_running": False, "port": None, "url": None}.items()
        for name in ("left", "right"):
            marked(name, checkout)
        ws("open", "@main", cwd=checkout)
        ws("meta", "set", "who", "@main", cwd=checkout)
        names = ("left", "right", "@main")
        before = {name: mcp(name, checkout) for name in names}
        async with aiohttp.ClientSession() as http:
            for name in names:
                one = before[name]
                assert one["server_running"] is True and one["last_error"] is None
                assert one["url"] == f"http://127.0.0.1:{one['port']}/mcp"
                for era in ERAS:
                    assert await who(http, one["url"], daemon.token, era) == name
            assert len({one["port"] for one in before.values()}) == 3
            assert rookery("down").returncode == 0
            assert all(is_free(one["port"]) for one in before.values())
            daemon = await asyncio.to_thread(up, "--set", f"endpoints.first_port={before['left']['port']}")
            for name in names:
                assert mcp(name, checkout)["port"] == before[name]["port"]
                assert await who(http, before[name]["url"], daemon.token) == name


@requirement("house.bind.loopback", "ws.endpoint.port")
def test_a08_every_port_of_the_daemon_is_bound_to_loopback_alone(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    for name in ("left", "right"):
        made(name, cwd=checkout)
    ports = {daemon.port, *(mcp(name, checkout)["port"] for name in ("left", "right"))}
    assert len(ports) == 3
    assert rookery("config", "get", "endpoints.first_port").stdout.strip() == "3000"
    assert min(mcp(name, checkout)["port"] for name in ("left", "right")) >= 3000
    listening = [one.laddr for one in psutil.Process(daemon.pid).net_connections("inet") if one.status == "LISTEN"]
    assert {(one.ip, one.port) for one in listening} == {("127.0.0.1", port) for port in ports}


@requirement("ws.endpoint.stop", "ws.endpoint.running")
async def test_closing_or_deleting_a_workspace_stops_its_server_and_frees_the_port() -> None:
    # Other daemons of this machine look for ports from the default on, and would take one that was freed.
    with start_daemon(f"endpoints.first_port={unused_port()}") as daemon:
        checkout = app(Path.home() / "app")
        marked("one", checkout)
        port = mcp("one", checkout)["port"]
        async with aiohttp.ClientSession() as http:
            caller = Caller(http, f"http://127.0.0.1:{port}/mcp", HANDSHAKE, headers=bearer(daemon.token))
            await caller.open()
            await caller.listen()
            async with connect(
                f"ws://127.0.0.1:{port}/ws", additional_headers=bearer(daemon.token), proxy=None
            ) as socket:
                ws("close", "one", cwd=checkout)
                assert is_free(port)
                # Both were ended in order, and not cut off.
                assert caller.standing is not None
                await within_limit(caller.standing)
                with pytest.raises(ConnectionClosed) as ended:
                    await within_limit(socket.recv())
                assert ended.value.rcvd is not None and ended.value.rcvd.code == 1001
            shown = mcp("one", checkout)
            assert (shown["server_running"], shown["port"], shown["connected_clients"]) == (False, None, 0)
            with pytest.raises(aiohttp.ClientConnectionError):
                await caller.ask("ping")
        ws("open", "one", cwd=checkout)
        assert mcp("one", checkout)["port"] == port
        ws("rm", "one", "--force", cwd=checkout)
        assert is_free(port)
        # Somebody new may have it now.
        marked("two", checkout)
        assert mcp("two", checkout)["port"] == port


@requirement("ws.endpoint.stop")
async def test_a_client_that_deletes_its_own_workspace_over_its_port_is_answered(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    marked("one", checkout)
    shown = mcp("one", checkout)
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, shown["url"], headers=bearer(token_of(daemon, "one")))
        found = await caller.call("workspace_delete", {"wait": True, "force": True})
        assert found["result"]["structuredContent"]["started"] is True
    assert not listens(daemon.pid, shown["port"])
    assert [one["name"] for one in told("list", cwd=checkout)] == ["@main"]


@requirement("ws.endpoint.stop")
async def test_a_worktree_that_other_hands_delete_takes_its_server_along(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    folder = made("one", cwd=checkout)
    port = mcp("one", checkout)["port"]
    async with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=bearer(daemon.token), proxy=None) as socket:
        git(checkout, "worktree", "remove", "--force", str(folder))
        with pytest.raises(ConnectionClosed):
            await within_limit(socket.recv())
    assert not listens(daemon.pid, port)


@requirement("ws.endpoint.stop")
def test_a_project_that_is_removed_takes_the_servers_of_its_workspaces_along(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    made("one", cwd=checkout)
    port = mcp("one", checkout)["port"]
    assert rookery("project", "remove", "app").returncode == 0
    assert rookery("status").returncode == 0
    assert not listens(daemon.pid, port)


@requirement("ws.endpoint.port")
def test_a09_ports_go_upward_past_those_in_use_and_a_workspace_keeps_its_own(tmp_path: Path) -> None:
    first = unused_port()
    with start_daemon(f"endpoints.first_port={first}"), hold_port(first + 1):
        checkout = app(tmp_path / "app")
        names = [f"w{number:02}" for number in range(13)]
        for name in names:
            made(name, "--no-agent", cwd=checkout)
        ports = [mcp(name, checkout)["port"] for name in names]
        # More than eleven.
        assert ports == [first, *range(first + 2, first + 14)]
        ws("close", "w03", cwd=checkout)
        made("late", "--no-agent", cwd=checkout)
        assert mcp("late", checkout)["port"] == first + 14
        ws("open", "w03", cwd=checkout)
        assert mcp("w03", checkout)["port"] == first + 4


@requirement("ws.endpoint.port")
def test_a09_a_port_that_a_stranger_has_taken_meanwhile_is_given_up_and_told(tmp_path: Path) -> None:
    first = unused_port()
    with start_daemon(f"endpoints.first_port={first}"):
        checkout = app(tmp_path / "app")
        made("one", "--no-agent", cwd=checkout)
        assert mcp("one", checkout)["port"] == first
        assert rookery("down").returncode == 0
        with hold_port(first):
            daemon = up("--set", f"endpoints.first_port={first}")
            shown = mcp("one", checkout)
            assert (shown["server_running"], shown["port"]) == (True, first + 1)
            assert f"port {first} is in use by another program; the server now uses {first + 1}" in shown["last_error"]
            assert [line for line in daemon.log() if f"now uses {first + 1}" in line["message"]]
        assert rookery("down").returncode == 0
        up("--set", f"endpoints.first_port={first}")
        shown = mcp("one", checkout)
        assert (shown["port"], shown["last_error"]) == (first + 1, None)


@requirement("ws.endpoint.running", "ws.create.base")
async def test_without_a_free_port_the_workspace_works_and_says_what_is_wrong(tmp_path: Path) -> None:
    settings = ("endpoints.first_port=65535", "worktrees.path=../trees/{project}-{name}")
    with hold_port(65_535), start_daemon(*settings) as daemon:
        checkout = app(tmp_path / "app")
        assert marked("one", checkout) == tmp_path / "trees" / "app-one"
        shown = mcp("one", checkout)
        assert (shown["server_running"], shown["port"], shown["url"]) == (False, None, None)
        assert "no port from 65535 upwards is free on 127.0.0.1" in shown["last_error"]
        assert "endpoints.first_port" in shown["last_error"]
        async with aiohttp.ClientSession() as http:
            assert await who(http, shown["app_url"], daemon.token) == "one"
        assert "no port" in ws("show", "one", cwd=checkout)
        assert "problem: the MCP server of one: no port" in rookery("status").stdout


@requirement("ws.endpoint.start")
async def test_old_transports_are_there_too_and_nothing_else_is(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    marked("one", checkout)
    port = mcp("one", checkout)["port"]
    way = sse_client(f"http://127.0.0.1:{port}/sse", headers=dict(bearer(daemon.token)))
    async with Client(way, mode="legacy", read_timeout_seconds=LIMIT) as client:
        found = await client.call_tool("workspace_get_metadata", {})
        assert found.structured_content is not None and found.structured_content["who"] == "one"
    async with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=bearer(daemon.token), proxy=None) as socket:
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        answer: dict[str, Any] = json.loads(await within_limit(socket.recv()))
        assert answer["result"] == {}


@requirement("ws.endpoint.start")
async def test_a_workspace_that_is_called_otherwise_later_is_still_at_its_port(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    folder = Path.home() / "elsewhere"
    git(checkout, "worktree", "add", "-q", "-b", "before", str(folder))
    ws("open", "before", cwd=checkout)
    url = mcp("before", checkout)["url"]
    git(folder, "switch", "-q", "-c", "after")
    ws("meta", "set", "who", "me", cwd=folder)
    async with aiohttp.ClientSession() as http:
        assert await who(http, url, daemon.token) == "me"
    assert mcp("after", checkout)["url"] == url
