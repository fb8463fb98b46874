"""The official SDK's client for a workspace of the gateway, by header or by path, in both eras."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, TextContent

from rookery.system.ids import project_id
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.client import LIMIT
from tests.support.mcp.sdk_client import MODERN
from tests.support.workspaces.service import make_repository

# How a client says which workspace it is about, and its era.
WAYS = [("header", "legacy"), ("header", MODERN), ("path", "legacy"), ("path", MODERN)]


@dataclass
class WorkspaceClient:
    """A client of one workspace, with the gateway and the repository."""

    gateway: Gateway
    client: Client
    app: Path
    path: Path
    name: str

    async def tell(self, tool: str, **given: Any) -> Any:
        """Call a tool, check that text and structured content agree, and return the result."""
        found = await self.client.call_tool(tool, given)
        assert not found.is_error, found
        plain: Any = json.loads(words(found))
        assert found.structured_content == (plain if words(found).startswith("{") else {"result": plain})
        return plain

    async def fail(self, tool: str, **given: Any) -> str:
        """Call a tool that fails, check that its message is in the text, and return the code."""
        found = await self.client.call_tool(tool, given)
        assert found.is_error, found
        assert found.structured_content is not None
        error = found.structured_content["error"]
        remedy = f" ({error['remedy']})" if "remedy" in error else ""
        assert f"{error['message']}{remedy}" == words(found) != ""
        return error["code"]

    async def rest(self, method: str, end: str = "", body: Any = None) -> tuple[int, Any]:
        """Send a REST request for the same workspace."""
        place = f"/api/workspaces/{project_id(self.app)}/{quote(self.name, safe='@')}"
        return await self.gateway.rest(method, place + end, body)


def words(found: CallToolResult) -> str:
    (content,) = found.content
    assert isinstance(content, TextContent)
    return content.text


@asynccontextmanager
async def open_workspace_client(
    way: str = "header", mode: str = MODERN, name: str = "fix"
) -> AsyncGenerator[WorkspaceClient]:
    """Open a client for a new workspace of a new repository, or for its main checkout."""
    app = make_repository(Path.home() / "src" / "app")
    async with start_gateway(None, app) as gateway:
        path = app
        if name != "@main":
            made = (await gateway.rest("POST", "/api/workspaces", {"name": name, "wait": True}))[1]
            path = Path(made["path"])
        async with open_client_at(gateway, way, mode, app, path, name) as client:
            yield WorkspaceClient(gateway, client, app, path, name)


@asynccontextmanager
async def open_client_at(
    gateway: Gateway, way: str, mode: str, app: Path, path: Path, name: str
) -> AsyncGenerator[Client]:
    headers = {"X-Workspace-Path": str(path)} if way == "header" else {}
    url = gateway.url("/mcp" if way != "path" else f"/w/{project_id(app)}/{quote(name, safe='@')}/mcp")
    async with (
        create_mcp_http_client(headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=LIMIT) as client,
    ):
        yield client
