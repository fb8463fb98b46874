"""An echo tool on the official SDK's low-level server, over Streamable HTTP with JSON; prints its port."""

import socket
from typing import Any

import uvicorn
from mcp.server import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", description="Echoes.", input_schema=SCHEMA)])


async def call_tool(ctx: Any, params: Any) -> CallToolResult:
    given: dict[str, Any] = params.arguments or {}
    return CallToolResult(content=[TextContent(type="text", text=str(given.get("text")))])


server: Any = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
sock = socket.create_server(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(json_response=True), log_level="error")).run(sockets=[sock])
