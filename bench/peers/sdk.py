"""`sdk.py PORT lowlevel|mcpserver`: an echo tool on the official SDK, each class with its cheapest options."""

import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer, Server
from mcp.server.context import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def lowlevel() -> Starlette:
    async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema=_SCHEMA)])

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=(params.arguments or {})["text"])])

    server = Server[Any](
        "echo",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema={"echo": _SCHEMA}.get,
    )
    return server.streamable_http_app(json_response=True)


def mcpserver() -> Starlette:
    server = MCPServer("echo", log_level="WARNING")

    @server.tool(structured_output=False)
    async def echo(text: str) -> str:
        return text

    return server.streamable_http_app(json_response=True)


async def health(request: Request) -> Response:
    return PlainTextResponse("ok")


if __name__ == "__main__":
    app = {"lowlevel": lowlevel, "mcpserver": mcpserver}[sys.argv[2]]()
    app.routes.append(Route("/api/health", health))
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=300,
    )
