"""A server on the official SDK whose tools ask their client; `stdio`, or `http`: then the port is printed."""

import os
import sys
from typing import Annotated, Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel


class Person(BaseModel):
    name: str


server: MCPServer[Any] = MCPServer("asking")


def ask_name() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


@server.tool()
async def elicit_now(ctx: Context[Any, Any]) -> str:
    found: Any = await ctx.elicit("What is your name?", Person)
    return f"{found.action} {found.data.name if found.action == 'accept' else ''}"


@server.tool()
async def sample_now(ctx: Context[Any, Any]) -> str:
    asked = SamplingMessage(role="user", content=TextContent(type="text", text="a poem"))
    session: Any = ctx.session
    found = await session.create_message([asked], max_tokens=10)
    return f"{found.model} said {found.content.text}"


@server.tool()
async def roots_now(ctx: Context[Any, Any]) -> str:
    session: Any = ctx.session
    found = await session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def elicit_either(person: Annotated[Person, Resolve(ask_name)]) -> str:
    return f"Hello, {person.name}"


@server.tool()
def process() -> str:
    return str(os.getpid())


class Printing(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    Printing(uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=0, log_level="warning")).run()
