"""What a client sees whose workspace is not there: tools of ours, and nothing that can be used."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.member import Member
from rookery.gateway.names import Style
from rookery.gateway.rules import ALLOWED, Verdict
from rookery.gateway.table import build
from rookery.system.errors import RookeryError
from rookery.wire.provider import Call, Changes


class _AllShown:
    def shows(self, server: str, tool: str, public: str) -> bool:
        return True

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        return ALLOWED


class Nowhere:
    """A provider that starts no server: it could only run one in a directory that its client did not mean."""

    capabilities: Mapping[str, Any] = {"tools": {}}
    instructions = None

    def __init__(self, toolsets: Sequence[Member], info: Mapping[str, Any], why: str) -> None:
        self.info = info
        self._why = why
        self.changes = Changes()
        self._lists = build(toolsets, Style(), _AllShown()).lists

    def close(self) -> None:
        """Nothing is held."""

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return None

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        if call.method in self._lists:
            return self._lists[call.method]
        error = RookeryError("workspace-not-found", self._why, "register its repository: rookery project add PATH")
        if call.method == "tools/call":
            return results.failed_by(error)
        raise results.wire_error_of(error)
