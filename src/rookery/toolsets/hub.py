"""`hub`: what there is to know about the servers behind the gateway, and a search over their tools."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from rookery.toolsets.searching import Find, find_tool
from rookery.toolsets.toolset import Nothing, Tool, Toolset
from rookery.wire.provider import Call


class Server(msgspec.Struct):
    """One server, as `rookery status --json` shows it."""

    name: str
    status: str
    error: str | None
    tools: int
    source: str
    shadowed: bool
    scope: str
    era: str | None


class Servers(msgspec.Struct):
    servers: list[Server]


def hub(records: Callable[[str | None], Awaitable[Sequence[Any]]], find: Find) -> Toolset:
    """`records` answers every known server as a session sees it, `find` the tools that fit a question."""

    async def list_servers(call: Call, given: Nothing) -> Servers:
        found = await records(call.session)
        return Servers([msgspec.convert(one, Server, from_attributes=True) for one in found])

    return Toolset(
        "hub",
        [
            Tool(
                "hub_list_servers",
                "List the MCP servers behind this gateway: status, error, number of tools, and where each is defined.",
                list_servers,
                gives=Servers,
                read_only=True,
            ),
            find_tool(find),
        ],
    )
