"""The project toolset of the real daemon: the official client, with a workspace's token, at its endpoint."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, ResourceLink, TextContent, TextResourceContents

from rookery.system.ids import project_id
from tests.daemon.test_callers_identity import tokens
from tests.support.cli.workspaces import made, trusted_app
from tests.support.daemon.process import Daemon
from tests.support.mcp.sdk_client import MODERN
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

FILES = {
    "AGENTS.md": "".join(f"{number}. be kind\n" for number in range(3000)),
    ".gitignore": "*.log\n",
    "justfile": "# adds up\nadd a b='2':\n  @echo $(({{a}} + {{b}}))\n\nbad:\n  @echo no; exit 4\n",
}


def texts(found: CallToolResult) -> list[str]:
    return [one.text for one in found.content if isinstance(one, TextContent)]


def code(found: CallToolResult) -> str:
    assert found.is_error and found.structured_content is not None
    return found.structured_content["error"]["code"]


@requirement("files.read.path", "files.list.path", "files.sandbox.outside", "files.deny.secrets")
@requirement("just.list.tasks", "just.run.task", "just.run.failing", "context.get.aggregate", "context.budget.receipts")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_workspace_is_read_asked_about_and_worked_in_by_the_official_client(
    daemon: Daemon, tmp_path: Path, mode: str
) -> None:
    checkout = await asyncio.to_thread(trusted_app, tmp_path / "app", FILES)
    path = await asyncio.to_thread(lambda: made("fix", cwd=checkout))
    (path / "notes.log").write_text("ignored\n")
    (path / ".env").write_text("TOKEN=hunter2\n")
    (path / "new.txt").write_text("fresh\n")
    url = f"{daemon.runtime['url']}/w/{project_id(checkout)}/fix/mcp"
    async with (
        create_mcp_http_client({"Authorization": f"Bearer {tokens(daemon)['fix']}"}) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):

        async def call(tool: str, **given: Any) -> CallToolResult:
            return await client.call_tool(tool, given)

        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert {"read_file", "list_directory", "get_project_context", "list_just_tasks", "run_just_task"} <= listed
        assert texts(await call("read_file", path="new.txt")) == ["fresh\n"]
        assert code(await call("read_file", path="/etc/passwd")) == "path-outside-root"
        assert code(await call("list_directory", path="..")) == "path-outside-root"
        assert code(await call("read_file", path=".env")) == "path-denied"
        entries: Any = (await call("list_directory", path=".", hidden=True)).structured_content
        shown = {one["path"]: bool(one["denied"]) for one in entries["entries"]}
        assert shown == {
            ".env": True,
            ".git": True,
            ".gitignore": False,
            "AGENTS.md": False,
            "README": False,
            "justfile": False,
            "new.txt": False,
        }
        tasks: Any = (await call("list_just_tasks")).structured_content
        assert [one["name"] for one in tasks["tasks"]] == ["add", "bad"] and tasks["approved"]
        assert texts(await call("run_just_task", task_name="add", arguments=["40"]))[0] == "42\n"
        bad = await call("run_just_task", task_name="bad")
        assert code(bad) == "task-failed" and texts(bad)[0].startswith("no\n")
        context = await call("get_project_context", budget=2000)
        assert "?? new.txt" in texts(context)[0] and "exit code 4" in texts(context)[0]
        assert "hunter2" not in str(context)
        links = {one.name: one.uri for one in context.content if isinstance(one, ResourceLink)}
        (content,) = (await client.read_resource(str(links["files/AGENTS.md"]))).contents
        assert isinstance(content, TextResourceContents) and content.text.startswith("0. be kind\n")
        templates = (await client.list_resource_templates()).resource_templates
        assert "context://{+section}" in [one.uri_template for one in templates]
