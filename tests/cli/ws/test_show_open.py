"""Workspaces that are opened without their agents, by `rookery up` and `rookery ws open --no-agent`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.daemon.endpoints import bearer
from tests.support.daemon.process import up
from tests.support.daemon.system import FullSystem, is_ready, start_system
from tests.support.mcp.caller import HANDSHAKE, Caller, words
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

OFF = ("stopped", None, True)


@requirement("ws.open.no-agent")
async def test_up_and_open_offer_the_mcp_server_of_a_workspace_without_an_agent(tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "app", {"a.txt": "a\n"})
    async with start_system({"turn": [{"when": "hello", "step": [{"say": "hello"}]}]}, checkout) as system:

        async def ws(*words: str) -> str:
            done = await system.cli("ws", *words, cwd=checkout)
            assert done.returncode == 0, done.stderr
            return done.stderr

        async def show(name: str) -> dict[str, Any]:
            done = await system.cli("ws", "show", name, "--json", cwd=checkout)
            return json.loads(done.stdout)

        # Registered only.
        main = await show("@main")
        assert (main["open"], main["mcp"]["server_running"]) == (False, False)
        done = await system.cli("up", "-d", cwd=checkout)
        main = await show("@main")
        assert (main["open"], state(main)) == (True, OFF)
        assert done.returncode == 0 and f"the MCP server of its main checkout: {main['mcp']['url']}" in done.stderr
        assert await read_file(system, main["mcp"]["url"]) == "a\n"
        assert json.loads((await system.cli("up", "-d", "--json", cwd=checkout)).stdout)["main_mcp_url"]

        # Any other workspace.
        await ws("create", "one")
        one = await system.until(await show("one"), is_ready)
        assert "its agent is running; stop it: rookery agent stop one" in await ws("open", "one", "--no-agent")
        assert is_ready(await show("one"))
        await ws("close", "one")
        assert one["path"] and not (await show("one"))["open"]
        await ws("open", "one", "--no-agent")
        one = await show("one")
        assert state(one) == OFF
        assert await read_file(system, one["mcp"]["url"]) == "a\n"

        # Both stay so after a restart, also of a daemon that nobody started for this repository.
        await system.cli("down")
        await system.start_again()
        assert [state(await show(name)) for name in ("@main", "one")] == [OFF, OFF]
        # An agent starts when somebody starts it, or opens the workspace with it.
        assert (await system.cli("agent", "start", "one", cwd=checkout)).returncode == 0
        await ws("open", "@main")
        await system.until(main, is_ready)

        # Opened with its agent, it stays so, and closed, it starts anew.
        await system.cli("down")
        system.daemon = await asyncio.to_thread(up, str(checkout), env=system.env)
        for workspace in (main, one):
            await system.until(workspace, is_ready)
        await ws("close", "@main")
        await system.cli("down")
        system.daemon = await asyncio.to_thread(up, str(checkout), env=system.env)
        assert state(await show("@main")) == OFF


def state(workspace: dict[str, Any]) -> tuple[str, int | None, bool]:
    """Return the state and the process of the agent, and whether the MCP server of the workspace runs."""
    return workspace["agent"]["state"], workspace["agent"]["pid"], workspace["mcp"]["server_running"]


async def read_file(system: FullSystem, url: str) -> str:
    """Return what the tool `read_file` returns for a file of the workspace."""
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, url, HANDSHAKE, headers=bearer(system.daemon.token))
        await caller.open()
        return words(await caller.call("read_file", {"path": "a.txt"}))
