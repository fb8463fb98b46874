"""The tools of MCP servers for a Python program, with a real daemon."""

import asyncio
import base64
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rookery
from tests.support.daemon.process import Daemon, rookery as run, up
from tests.support.gateway.gateway import write
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, start_scripted_servers, text, tool
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
PICTURE = base64.b64encode(b"\x89PNG").decode()
SHOWN: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "one"},
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "note://1", "text": "hello"}},
        {"type": "resource_link", "uri": "note://2", "name": "second"},
        {"type": "text", "text": "two"},
    ],
    "structuredContent": {"count": 2},
}
BROKEN = text("no such file") | {"isError": True}


@asynccontextmanager
async def a_hub() -> AsyncGenerator[tuple[rookery.Rookery, ScriptedServers, Daemon]]:
    tools = [tool("read", description="Reads.", inputSchema=SCHEMA), tool("show"), tool("break"), tool("hold")]
    tools.append(tool("odd", description=None, inputSchema=[]))
    play = ServerScript(tools, results={"show": SHOWN, "break": BROKEN})
    async with start_scripted_servers() as scripted:
        write({"files": scripted.server("files", play), "other": scripted.server("other")})
        daemon = await asyncio.to_thread(up)
        try:
            async with rookery.connect() as r:
                yield r, scripted, daemon
        finally:
            assert (await asyncio.to_thread(run, "down")).returncode == 0


@requirement("session.face.python", "hub.filter.disconnected")
@requirement("hub.python.contract", "hub.python.text", "hub.python.attachments")
async def test_the_tools_are_a_snapshot_by_public_name_that_can_be_executed() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with a_hub() as (r, scripted, daemon):
        await r.projects.add(app)
        ws = await r.workspaces.create("fix", agent=False)
        tools = await r.hub.tools(workspace=ws)
        assert {name.partition("__")[0] for name in tools} == {"files", "other"}
        read = tools["files__read"]
        assert (read.description, read.schema, read.concurrency_safe) == ("Reads.", SCHEMA, False)
        assert read.for_openai()["function"]["parameters"] == read.for_anthropic()["input_schema"] == SCHEMA
        assert (tools["files__odd"].description, tools["files__odd"].schema) == ("", {"type": "object"})
        odd = (await r.hub.find("odd", ws))["files__odd"]
        assert (odd.description, odd.schema) == ("", {"type": "object"})

        assert "path" in (await read.execute({"path": "a"})).text
        assert (await scripted.comes("files")).cwd == ws.path
        shown = await tools["files__show"].execute()
        assert (str(shown), shown.structured) == ("one\nsecond: note://2\ntwo", {"count": 2})
        kinds = [(each.media_type, each.content, each.uri) for each in shown.attachments]
        assert kinds == [("image/png", b"\x89PNG", None), ("text/plain", b"hello", "note://1")]

        with pytest.raises(rookery.RookeryError, match="no such file"):
            await tools["files__break"].execute()
        assert (await tools["files__break"].execute(check=False)).is_error
        with pytest.raises(rookery.RookeryError) as caught:
            await tools["files__hold"].execute(timeout=0.2)
        assert caught.value.code == "timeout"
        await (await scripted.comes("files")).hears("notifications/cancelled")

        # What is switched off is not listed any more, but the record that was given stays what it was.
        place = f"/api/mcp/files/disable?workspace={ws.path}"
        answer = await asyncio.to_thread(
            daemon.http, "POST", place, b"{}", headers={"Content-Type": "application/json"}
        )
        assert answer.status == 200, answer.body
        assert {name.partition("__")[0] for name in await r.hub.tools(workspace=ws.path)} == {"other"}
        assert (await r.hub.servers(ws))["files"]["status"] == "disabled"
        assert "files__read" in tools and len(await r.hub.tools()) == len(tools)
        with pytest.raises(rookery.RookeryError) as caught:
            await read.execute({"path": "a"})
        assert caught.value.code == "tool-failed" and "disabled" in caught.value.message


async def test_own_toolsets_come_on_request_and_their_errors_keep_code_and_remedy() -> None:
    app = make_repository(Path.home() / "src" / "app")
    async with a_hub() as (r, _, _):
        await r.projects.add(app)
        tools = await r.hub.tools(app, toolsets=["workspace"])
        assert "workspace_list" in tools and "files__read" in tools and "hub_list_servers" not in tools
        assert (await tools["workspace_get_metadata"].execute()).structured == {"base": "main"}
        with pytest.raises(rookery.RookeryError) as caught:
            await tools["workspace_set_metadata"].execute({"key": "1", "value": "x"})
        assert caught.value.code == "invalid-input" and caught.value.remedy
        assert "trash_list" not in tools
        admin = await r.hub.tools(toolsets=["admin"])
        shown = (await admin["workspace_get"].execute({"workspace": "@main"})).structured
        assert isinstance(shown, dict) and shown["path"] == str(app)
        with pytest.raises(rookery.RookeryError) as caught:
            await r.hub.tools(Path.home())
        assert caught.value.code == "workspace-not-found"


async def test_tools_are_listed_and_run_again_after_a_restart_of_the_daemon() -> None:
    async with a_hub() as (r, scripted, daemon):
        tools = await r.hub.tools()
        before = tools["files__show"]
        assert (await before.execute()).text
        held = asyncio.ensure_future(tools["files__hold"].execute())
        await (await scripted.comes("files")).hears("tools/call", 2)
        os.kill(daemon.pid, signal.SIGKILL)
        with pytest.raises(rookery.RookeryError) as caught:
            await held
        assert caught.value.code == "daemon-unreachable" and "was lost" in caught.value.message and caught.value.remedy
        await asyncio.to_thread(up)
        assert (await before.execute()).text
        assert (await asyncio.to_thread(run, "down")).returncode == 0
        for asked in (r.hub.tools(), r.hub.servers(), before.execute()):
            with pytest.raises(rookery.RookeryError) as caught:
                await asked
            assert caught.value.code == "daemon-unreachable" and caught.value.remedy
        await asyncio.to_thread(up)
        after = (await r.hub.tools())["files__show"]
        for one in (before, after):
            assert (await one.execute()).text
