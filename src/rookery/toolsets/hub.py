"""`hub`: the servers behind the gateway, and `hub_find_tool`, a search over their tools."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from rookery.gateway.search.view import FIND, ToolMatches
from rookery.gateway.table import Target
from rookery.operations.operation import BoundOperation
from rookery.operations.results import TextResult
from rookery.toolsets.operations import operation_tools
from rookery.toolsets.toolset import Tool, Toolset
from rookery.wire.protocol.provider import Call

# Searches for tools on behalf of a call, with the arguments query and limit.
FindTools = Callable[[Call, str, int], Awaitable[ToolMatches]]


class FindTool(msgspec.Struct, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=1000, description="What is to be done, in a few plain words.")]
    limit: Annotated[int, Meta(ge=1, le=20, description="The maximum number of tools to return.")] = 5


class FoundTool(msgspec.Struct):
    """One tool, with the name that it is called by here."""

    name: str
    server: str
    description: str
    inputSchema: dict[str, Any]


class FoundTools(msgspec.Struct):
    """The result of a search. `among` is the number of all tools. `absent` lists servers that could not be searched."""

    tools: list[FoundTool]
    among: int
    absent: list[str]


class _Definition(msgspec.Struct):
    description: Raw = Raw(b'""')
    inputSchema: Raw = Raw(b'{"type":"object"}')


def find_tool(find: FindTools) -> Tool:
    """Return the tool that searches all tools."""

    async def run(call: Call, arguments: FindTool) -> TextResult:
        matches = await find(call, arguments.query, arguments.limit)
        result = {
            "tools": [_describe_match(target) for target in matches.tools],
            "among": matches.searched,
            "absent": matches.absent,
        }
        return TextResult(msgspec.json.encode(result).decode())

    return Tool(
        FIND,
        "Find tools for a task among all available tools, best match first: name, server, description and inputSchema.",
        run,
        input_type=FindTool,
        output_type=FoundTools,
        read_only=True,
    )


def search_toolset(find: FindTools) -> Toolset:
    """Return the toolset of a view in search mode."""
    return Toolset("search", [find_tool(find)])


def _describe_match(target: Target) -> dict[str, Any]:
    """Return a tool with the schema of its server. An invalid description or schema is replaced by the default."""
    definition = msgspec.json.decode(target.entry.raw, type=_Definition)
    default = _Definition()
    return {
        "name": target.public,
        "server": target.member.name,
        "description": definition.description
        if bytes(definition.description).startswith(b'"')
        else default.description,
        "inputSchema": definition.inputSchema
        if bytes(definition.inputSchema).startswith(b"{")
        else default.inputSchema,
    }


def hub_toolset(
    operations: Sequence[BoundOperation[Any]], scope: Path | None, directory: Path | None, find: FindTools
) -> Toolset:
    """Return the `hub` toolset of a view that acts in the workspace at `directory`, or in none.

    `scope` is the only workspace that the clients of the view may access, None for the owner. `find` returns the tools
    that match a query.
    """
    return Toolset("hub", [*operation_tools(operations, "hub", scope, directory), find_tool(find)])
