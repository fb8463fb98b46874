"""The tools of servers, with an estimate of the tokens that each definition costs a model."""

from collections.abc import Iterable, Iterator

import msgspec

from rookery.gateway.names import gateway_name
from rookery.gateway.provider import CatalogEntry
from rookery.gateway.rules import Rules
from rookery.upstreams.server import Server

# An estimate for JSON that is good enough to compare servers.
_BYTES_PER_TOKEN = 4


class ToolCost(msgspec.Struct, frozen=True):
    """One tool of one server. `tokens` is the estimated cost of its definition where it is shown."""

    server: str
    tool: str
    name: str
    shown: bool
    definition: msgspec.Raw
    tokens: int


def estimate_tool_tokens(entry: CatalogEntry) -> int:
    return estimate_tokens(bytes(entry.raw))


def estimate_tokens(text: bytes) -> int:
    return -(-len(text) // _BYTES_PER_TOKEN)


def list_tool_costs(servers: Iterable[Server], rules: Rules) -> Iterator[ToolCost]:
    for server in servers:
        for entry in server.catalog.tools if server.catalog is not None else ():
            public = gateway_name(server.name, entry.name)
            is_shown = rules.is_shown(server.name, entry.name, public)
            yield ToolCost(server.name, entry.name, public, is_shown, entry.raw, estimate_tool_tokens(entry))
