"""The MCP server of a workspace whose folder was moved from outside, or that is closed while it opens."""

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest

from tests.support.cli.workspaces import app, made, told, ws
from tests.support.daemon.endpoints import bearer, listens, mcp
from tests.support.daemon.process import Daemon
from tests.support.gateway.gateway import checkout as checked_out, start_gateway
from tests.support.http.listener import within_limit
from tests.support.mcp.caller import Caller
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio


@requirement("ws.endpoint.stop", "ws.endpoint.running")
async def test_a_workspace_that_is_moved_keeps_its_server_and_closing_it_stops_that(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    before = mcp("one", made("one", "--no-agent", cwd=checkout))
    moved = Path.home() / "moved"
    git(checkout, "worktree", "move", told("show", "one", cwd=checkout)["path"], str(moved))
    shown = mcp("one", checkout)
    assert (shown["server_running"], shown["port"]) == (True, before["port"])
    assert "read_file" in {one["name"] for one in shown["tools"]}
    (moved / "new.txt").write_text("here")
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, before["url"], headers=bearer(daemon.token))
        assert (await caller.call("read_file", {"path": "new.txt"}))["result"]["content"][0]["text"] == "here"
        assert mcp("one", checkout)["connected_clients"] == 1
    ws("close", "one", cwd=checkout)
    assert not listens(daemon.pid, before["port"])
    assert mcp("one", checkout)["server_running"] is False


@requirement("ws.endpoint.start")
def test_a_workspace_in_the_place_of_one_that_was_moved_has_a_server_of_its_own(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app")
    folder = made("one", "--no-agent", cwd=checkout)
    first = mcp("one", checkout)
    git(checkout, "worktree", "move", str(folder), str(Path.home() / "moved"))
    git(checkout, "worktree", "add", "-q", "-b", "two", str(folder))
    assert mcp("two", checkout)["server_running"] is False
    ws("open", "two", cwd=checkout)
    second = mcp("two", checkout)
    assert second["server_running"] is True and second["port"] != first["port"]
    assert mcp("one", checkout)["port"] == first["port"]


@requirement("ws.endpoint.stop")
async def test_a_workspace_that_is_closed_while_its_port_is_chosen_leaves_none_behind() -> None:
    folder = checked_out()
    async with start_gateway(lambda scripted: scripted.servers(), folder) as gateway:
        workspace = await gateway.workspaces.at(folder)
        endpoints = gateway.parts.endpoints
        await endpoints.start()
        opening = asyncio.ensure_future(endpoints.on_opened(workspace))
        await asyncio.sleep(0)
        await endpoints.on_closed(workspace)
        await within_limit(opening)
        assert endpoints.state(workspace.as_dict()).server_running is False
        assert not gateway.hub.workspace_ports
        await endpoints.on_opened(workspace)
        port = endpoints.state(workspace.as_dict()).port
        assert port is not None and gateway.hub.workspace_ports == {port}
        await endpoints.stop()
        assert not listens(os.getpid(), port)


@requirement("ws.endpoint.stop")
async def test_what_ran_for_a_workspace_where_it_was_before_ends_when_it_is_seen_elsewhere() -> None:
    checkout = make_repository(Path.home() / "app")
    folder, moved = Path.home() / "one", Path.home() / "moved"
    git(checkout, "worktree", "add", "-q", "-b", "one", str(folder))
    async with start_gateway(lambda scripted: scripted.servers("tool"), checkout) as gateway:
        endpoints = gateway.parts.endpoints
        await endpoints.start()
        workspace = await gateway.workspaces.at(folder)
        await endpoints.on_opened(workspace)
        caller = await gateway.caller(f"/w/{workspace.project.id}/one/mcp")
        await caller.call("tool__echo")
        assert {one.cwd for one in gateway.scripted.all} == {folder}
        git(checkout, "worktree", "move", str(folder), str(moved))
        workspace = await gateway.workspaces.at(moved)
        assert endpoints.state(workspace.as_dict()).server_running is True
        (server,) = gateway.scripted.all
        await server.has_ended()
        await endpoints.stop()
