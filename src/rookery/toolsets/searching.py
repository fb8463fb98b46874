"""`hub_find_tool`: the tool for a task, looked for in plain words among all that a view shows."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from rookery.gateway.finding import FIND, Finds
from rookery.gateway.table import Target
from rookery.toolsets.toolset import Tool, Toolset, Written
from rookery.wire.provider import Call

# Looks for tools: as a session sees them, by these words, and at most so many.
Find = Callable[[str | None, str, int], Awaitable[Finds]]


class FindTool(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=1000, description="What is to be done, in a few plain words.")]
    limit: Annotated[int, Meta(ge=1, le=20, description="How many tools to answer at most.")] = 5


class FoundTool(msgspec.Struct):
    """One tool as it is called from here."""

    name: str
    server: str
    description: str
    inputSchema: dict[str, Any]


class FoundTools(msgspec.Struct):
    """`among` is how many tools there are. `absent` tells of servers that could not be looked through."""

    tools: list[FoundTool]
    among: int
    absent: list[str]


class _Definition(msgspec.Struct):
    description: Raw = Raw(b'""')
    inputSchema: Raw = Raw(b'{"type":"object"}')


def find_tool(find: Find) -> Tool:
    async def run(call: Call, given: FindTool) -> Written:
        found = await find(call.session, given.query, given.limit)
        told = {"tools": [_told(one) for one in found.tools], "among": found.among, "absent": found.absent}
        return Written(msgspec.json.encode(told).decode())

    return Tool(
        FIND,
        "Find tools for a task among all that are here, the best first: name, server, description and inputSchema.",
        run,
        takes=FindTool,
        gives=FoundTools,
        read_only=True,
    )


def search_toolset(find: Find) -> Toolset:
    """What a view in search mode has of ours to show."""
    return Toolset("search", [find_tool(find)])


def _told(target: Target) -> dict[str, Any]:
    """The schema as its server wrote it. A description that is no text is not told, and no schema that is none."""
    said, nothing = msgspec.json.decode(target.entry.raw, type=_Definition), _Definition()
    return {
        "name": target.public,
        "server": target.member.name,
        "description": said.description if bytes(said.description).startswith(b'"') else nothing.description,
        "inputSchema": said.inputSchema if bytes(said.inputSchema).startswith(b"{") else nothing.inputSchema,
    }
