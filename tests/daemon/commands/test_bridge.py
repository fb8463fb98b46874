"""The bridge, between the official SDK and the real daemon."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.support.cli.workspaces import app, made
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, kill, rookery, up, wait_dead
from tests.support.gateway.gateway import write
from tests.support.mcp.caller import MODERN
from tests.support.mcp.scripted_server import start_scripted_servers
from tests.support.mcp.sdk_client import LIMIT, ClientRecorder
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _down() -> Iterator[None]:
    """A bridge may have started a daemon; it is stopped in order."""
    yield
    assert rookery("down").returncode == 0


@asynccontextmanager
async def a_client(*words: str, mode: str = "legacy", told: ClientRecorder | None = None) -> AsyncGenerator[Client]:
    told = told or ClientRecorder()
    way = StdioServerParameters(command=str(ROOKERY), args=["bridge", *words], env=dict(os.environ))
    async with Client(way, mode=mode, read_timeout_seconds=LIMIT, message_handler=told.on_message) as client:
        yield client


async def tools(client: Client) -> set[str]:
    return {one.name for one in (await client.list_tools()).tools}


def lines(*given: Any, words: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a bridge on some lines to its end."""
    text = "".join((one if isinstance(one, str) else json.dumps({"jsonrpc": "2.0", **one})) + "\n" for one in given)
    return subprocess.run(
        [ROOKERY, "bridge", *words], input=text, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@requirement("client.bridge.relay", "wire.stdio.server")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_the_bridge_starts_the_daemon_and_relays_in_both_eras(mode: str) -> None:
    async with a_client(mode=mode) as client:
        assert "workspace_list" in await tools(client)
        found = await client.call_tool("project_list", {})
        assert not found.is_error and found.structured_content == {"result": []}
    assert Daemon(Path(os.environ["ROOKERY_HOME"])).refresh().http("GET", "/api/health").status == 200


@requirement("client.bridge.relay", "client.print.options")
async def test_with_a_workspace_it_is_that_workspaces_view(daemon: Daemon) -> None:
    checkout = app(Path.home() / "src" / "app")
    path = await asyncio.to_thread(made, "fix", "--no-agent", cwd=checkout)
    async with a_client("--workspace", "fix") as client:
        assert "workspace_set_metadata" in await tools(client)
        await client.call_tool("workspace_set_metadata", {"key": "note", "value": "from the bridge"})
    shown = rookery("ws", "meta", "fix", "--json", cwd=path)
    assert json.loads(shown.stdout)["note"] == "from the bridge"


def test_a_workspace_that_does_not_exist_is_told_at_once(daemon: Daemon) -> None:
    done = lines(words=("--workspace", "nope"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "there is no workspace nope" in done.stderr


@requirement("client.bridge.relay")
async def test_a_killed_daemon_costs_the_calls_under_way_and_nothing_else() -> None:
    told = ClientRecorder()
    async with start_scripted_servers() as scripted:
        write(scripted.servers("one"))
        daemon = await asyncio.to_thread(up)
        async with a_client(told=told) as client:
            held = asyncio.ensure_future(client.call_tool("one__hold", {}))
            await (await scripted.comes("one")).called("hold")
            kill(daemon.pid)
            with pytest.raises(MCPError, match="has stopped; it is unknown whether the request was executed"):
                await held
            await asyncio.to_thread(wait_dead, daemon.pid)
            # Nobody starts it but the next request.
            found = await client.call_tool("one__echo", {"a": 1})
            assert not found.is_error
            assert daemon.refresh().pid
            assert {"one__echo", "workspace_list"} <= await tools(client)
        changed = [type(one).__name__ for one in told.heard]
        assert "ToolListChangedNotification" in changed


@requirement("client.bridge.relay")
async def test_a_daemon_that_is_stopped_and_started_finds_the_same_client_again(daemon: Daemon) -> None:
    async with a_client() as client:
        before = await tools(client)
        for _ in range(2):
            assert rookery("down").returncode == 0
            assert rookery("up", "-d").returncode == 0
            assert await tools(client) == before


@requirement("client.bridge.relay", "wire.stdio.server")
def test_nothing_but_messages_comes_out_of_it() -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}}
    done = lines(
        "",
        "what?",
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": "a", "method": "ping"},
        {"id": 1, "method": "no/such"},
    )
    assert done.returncode == 0
    answers = {one.get("id"): one for one in map(json.loads, done.stdout.splitlines())}
    assert answers[None]["error"]["code"] == -32700
    assert answers[0]["result"]["serverInfo"]["name"] == "rookery"
    assert answers["a"]["result"] == {}
    assert answers[1]["error"]["code"] == -32601
    assert "starting the daemon" in done.stderr


def test_without_a_daemon_that_it_may_start_every_request_is_answered_so() -> None:
    done = lines({"id": 0, "method": "initialize", "params": {}}, words=("--no-start",))
    assert done.returncode == 0
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["id"] == 0
    assert "cannot be reached: no daemon is running" in answer["error"]["message"]


def test_a_client_that_goes_away_takes_the_bridge_with_it(daemon: Daemon) -> None:
    for ending in ("stdin", "stdout"):
        process = subprocess.Popen([ROOKERY, "bridge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
            (process.stdin if ending == "stdin" else process.stdout).close()
            assert process.wait(SECONDS) == 0
