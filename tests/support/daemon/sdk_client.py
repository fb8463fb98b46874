"""The official SDK's client for a real daemon, on every transport and in both eras, as owner or workspace."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.support.daemon.process import ROOKERY, Daemon
from tests.support.daemon.system import LIMIT
from tests.support.mcp.sdk_client import ClientRecorder, client_over, over_websocket


@asynccontextmanager
async def open_sdk_client(
    daemon: Daemon, transport: str, mode: str, told: ClientRecorder | None = None, token: str | None = None
) -> AsyncGenerator[Client]:
    """Open a client with the owner's token, or another one. Over stdio it is the bridge, which needs none."""
    url = daemon.runtime["url"]
    headers = {"Authorization": f"Bearer {token or daemon.token}"}
    async with create_mcp_http_client(headers) as http:
        ways: dict[str, Any] = {
            "http": lambda: streamable_http_client(f"{url}/mcp", http_client=http),
            "sse": lambda: sse_client(f"{url}/sse", headers=headers),
            "ws": lambda: over_websocket(f"{url.replace('http', 'ws', 1)}/ws", headers),
            "stdio": lambda: StdioServerParameters(command=str(ROOKERY), args=["bridge"], env=dict(os.environ)),
        }
        async with client_over(ways[transport](), mode, told, LIMIT) as client:
            yield client
