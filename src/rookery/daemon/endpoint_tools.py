"""The tools of an endpoint as its state tells them, from what it lists."""

from typing import Any

import msgspec
from msgspec import Raw

from rookery.api.status import Tool


class _Listed(msgspec.Struct):
    name: str
    description: Any = ""
    inputSchema: Any = None


class _List(msgspec.Struct):
    tools: list[_Listed]


def tools_in(listed: Raw) -> list[Tool]:
    """Some servers describe their tools as they please."""
    found = msgspec.json.decode(listed, type=_List).tools
    return [Tool(one.name, str(one.description or ""), one.inputSchema or {}) for one in found]
