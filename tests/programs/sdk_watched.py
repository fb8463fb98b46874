"""A server on the official SDK that changes when a tool is called: `stdio`, or `http`, which prints its port."""

import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server: Any = MCPServer("watched")


@server.tool()
async def change(ctx: Context[Any, Any], what: str) -> str:
    """Change the list of `tools`, or the resource with this URI."""
    if what == "tools":
        await ctx.notify_tools_changed()
    else:
        await ctx.notify_resource_updated(what)
    return what


@server.tool()
async def log(ctx: Context[Any, Any]) -> str:
    await ctx.info("something happened")  # pyright: ignore[reportDeprecated]
    return "logged"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    sock = socket.create_server(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[sock])
