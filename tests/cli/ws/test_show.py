"""`rookery ws show`: the messages between a workspace's agent and MCP servers."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.cli.workspaces import app, made, ws
from tests.support.daemon.endpoints import bearer, mcp, token_of
from tests.support.daemon.process import ROOKERY, Daemon, rookery
from tests.support.mcp.caller import HANDSHAKE, Caller
from tests.support.mcp.project_servers import SERVER
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

LIMIT = 60.0


@requirement("servers.traffic.agents")
async def test_what_an_agent_calls_over_any_address_is_counted_shown_and_streamed(daemon: Daemon) -> None:
    checkout = app(Path.home() / "app", {"a.txt": "a\n"})
    for name in ("one", "two"):
        made(name, "--no-agent", cwd=checkout)
    server = Path.home() / "server.py"
    server.write_text(SERVER)
    assert rookery("mcp", "add", "small", "--", sys.executable, str(server)).returncode == 0
    shown = mcp("one", checkout)
    app_url, place = daemon.runtime["url"], shown["app_url"].removesuffix("/mcp")
    async with aiohttp.ClientSession() as http:
        # The addresses of an agent: its own entry, and one for each server.
        agent = {**bearer(token_of(daemon, "one")), "X-Workspace-Path": shown_path("one", checkout)}
        addresses = {"mcp": f"{app_url}/mcp", "small": f"{place}/s/small/mcp", "port": shown["url"]}
        callers = {name: Caller(http, url, HANDSHAKE, headers=agent) for name, url in addresses.items()}
        with followed("one", checkout) as follow:
            for caller in (callers["small"], callers["mcp"]):
                await caller.open()
            # One client, with a session at each server and one for all.
            assert mcp("one", checkout)["connected_clients"] == 1
            await callers["port"].open()
            assert mcp("one", checkout)["connected_clients"] == 2
            await callers["small"].call("echo", id_="by-server")
            await callers["mcp"].call("workspace_get_status", id_="by-app")
            await callers["port"].call("read_file", {"path": "a.txt"}, id_="by-port")
            streamed = [next_call(follow) for _ in range(6)]
            wanted = [("small", "echo"), (None, "workspace_get_status"), (None, "read_file")]
            assert [(line["server"], line["tool"]) for line in streamed[::2]] == wanted
            assert [line["direction"] for line in streamed] == ["in", "out"] * 3
            # What comes later is streamed too.
            await callers["small"].call("echo", id_="later")
            assert next_call(follow)["id"] == "later"
        # The owner's own clients, and another workspace, are not this one's.
        owner = Caller(http, addresses["small"], HANDSHAKE, headers=bearer(daemon.token))
        await owner.open()
        assert mcp("one", checkout)["connected_clients"] == 2
        assert (mcp("two", checkout)["connected_clients"], mcp("two", checkout)["traffic"]) == (0, [])
        text = ws("show", "one", cwd=checkout)
        assert "-> small: tools/call echo (" in text and "<- small: answer echo (" in text and " ms)" in text
        assert "2 clients" in text
        for caller in (*callers.values(), owner):
            await caller.close()


def shown_path(name: str, cwd: Path) -> str:
    return ws("path", name, cwd=cwd).strip()


@contextmanager
def followed(name: str, cwd: Path) -> Generator["subprocess.Popen[bytes]"]:
    """Run `rookery ws show --follow` until the end of the block."""
    words = [str(ROOKERY), "ws", "show", name, "--follow", "--json"]
    process = subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(LIMIT)
        assert process.stdout is not None
        process.stdout.close()


def next_call(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Return the next line about a tool call."""
    assert process.stdout is not None
    while True:
        line = process.stdout.readline()
        assert line, "the stream has ended"
        message = json.loads(line)
        if message["tool"] is not None:
            return message
