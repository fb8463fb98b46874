"""A server on the official SDK. `stdio`, or `http`: then Streamable HTTP at /mcp and HTTP+SSE at /sse, port printed.

A third word names a named pipe: the server starts when the pipe has been opened. SDK_REVISION is the newest revision
of the handshake era that it accepts.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

if len(sys.argv) > 2:
    Path(sys.argv[2]).read_bytes()

import anyio
import uvicorn
from mcp.server import MCPServer, runner
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp_types import (
    CreateMessageResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel

PAGE = 3

if revision := os.environ.get("SDK_REVISION"):
    kept = HANDSHAKE_PROTOCOL_VERSIONS[: HANDSHAKE_PROTOCOL_VERSIONS.index(revision) + 1]
    for name, value in (("HANDSHAKE_PROTOCOL_VERSIONS", kept), ("LATEST_HANDSHAKE_VERSION", revision)):
        setattr(runner, name, value)


class Server(MCPServer[Any]):
    """A server with lists in pages."""

    async def _handle_list_tools(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        tools, start = await self.list_tools(), int((params and params.cursor) or 0)
        following = str(start + PAGE) if start + PAGE < len(tools) else None
        return ListToolsResult(tools=tools[start : start + PAGE], next_cursor=following)

    async def _handle_list_prompts(self, ctx: Any, params: PaginatedRequestParams | None) -> ListPromptsResult:
        prompts, start = await self.list_prompts(), int((params and params.cursor) or 0)
        following = str(start + 1) if start + 1 < len(prompts) else None
        return ListPromptsResult(prompts=prompts[start : start + 1], next_cursor=following)


server = Server("peer", instructions="A peer on the official SDK.", version="4.5.6")
noticed = anyio.Event()


class Person(BaseModel):
    name: str


class Point(BaseModel):
    x: int
    y: float


def ask_name() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


def ask_poem() -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text="a poem"))], max_tokens=10)


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
def structured() -> Point:
    return Point(x=1, y=2.5)


@server.tool()
def unicode() -> str:
    return 'ü 😀 \u2028 \x7f \\ " \n end'


@server.tool()
def fail() -> str:
    raise ToolError("this went wrong")


@server.tool()
async def progress(ctx: Context[Any, Any], steps: int) -> str:
    for number in range(steps):
        await ctx.report_progress(number + 1, steps, f"step {number + 1}")
    return "done"


@server.tool()
async def log(ctx: Context[Any, Any]) -> str:
    await ctx.info("something happened")  # pyright: ignore[reportDeprecated]
    return "logged"


@server.tool()
async def elicit(person: Annotated[Person, Resolve(ask_name)]) -> str:
    return f"Hello, {person.name}"


@server.tool()
async def sample(poem: Annotated[CreateMessageResult, Resolve(ask_poem)]) -> str:
    return f"{poem.model} said {poem.content.text if isinstance(poem.content, TextContent) else '?'}"


@server.tool()
async def slow(ctx: Context[Any, Any]) -> str:
    global noticed
    noticed = anyio.Event()
    await ctx.report_progress(0)
    try:
        await anyio.sleep_forever()
    finally:
        noticed.set()
    return "awake"


@server.tool()
async def was_cancelled() -> bool:
    """Wait until the slow tool is cancelled, and return whether it was."""
    await noticed.wait()
    return True


@server.resource("note://one", mime_type="text/plain")
def note() -> str:
    return "a note"


@server.resource("note://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    return b"\0\1\2"


@server.resource("note://{name}/text")
def named(name: str) -> str:
    return f"the note of {name}"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}."


@server.prompt()
def plain() -> str:
    return "Say something."


class Printing(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    app = server.streamable_http_app()
    app.router.routes.extend(server.sse_app().routes)
    Printing(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")).run()
