"""What tools cost: a model reads every definition that it is shown, before it has done anything."""

from collections.abc import Iterable, Iterator

import msgspec

from rookery.gateway.catalog import Entry
from rookery.gateway.names import face_name
from rookery.gateway.rules import Rules
from rookery.upstreams.server import Server

# What a model's tokenizer makes of JSON, near enough to compare servers by.
_BYTES_A_TOKEN = 4


class Tool(msgspec.Struct, frozen=True):
    """One tool of one server. `tokens` is about what its definition costs, where it is shown at all."""

    server: str
    tool: str
    name: str
    shown: bool
    definition: msgspec.Raw
    tokens: int


def tokens_of(entry: Entry) -> int:
    return tokens_in(bytes(entry.raw))


def tokens_in(text: bytes) -> int:
    return -(-len(text) // _BYTES_A_TOKEN)


def tools_of(servers: Iterable[Server], rules: Rules) -> Iterator[Tool]:
    for one in servers:
        for entry in one.catalog.tools if one.catalog is not None else ():
            public = face_name(one.name, entry.name)
            shown = rules.shows(one.name, entry.name, public)
            yield Tool(one.name, entry.name, public, shown, entry.raw, tokens_of(entry))
