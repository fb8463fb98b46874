"""A server on version 1 of the official SDK whose tools ask their client; its folder is on PYTHONPATH."""

import importlib
import os
from typing import Any

types: Any = importlib.import_module("mcp.types")
server: Any = importlib.import_module("mcp.server.fastmcp").FastMCP("asking")


async def sample_now() -> str:
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="a poem"))
    found = await server.get_context().session.create_message([asked], max_tokens=10)
    return f"{found.model} said {found.content.text}"


async def roots_now() -> str:
    return " ".join(str(root.uri) for root in (await server.get_context().session.list_roots()).roots)


def process() -> str:
    return str(os.getpid())


for function in (sample_now, roots_now, process):
    server.tool()(function)
server.run()
