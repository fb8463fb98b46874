"""The view of a client whose workspace does not exist: it lists Rookery's own tools, and each call fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from rookery.gateway import results
from rookery.gateway.names import NamingStyle
from rookery.gateway.provider import CatalogProvider
from rookery.gateway.rules import ALLOWED, Verdict
from rookery.gateway.table import build_table
from rookery.system.errors import RookeryError
from rookery.wire.protocol.provider import Call, ChangeNotifier


@dataclass(frozen=True)
class Absence:
    """Why a client's workspace does not exist, as the error of each of its calls."""

    code: str
    message: str
    remedy: str

    @classmethod
    def of(cls, error: RookeryError) -> "Absence":
        return cls(error.code, error.message, error.remedy)

    @property
    def error(self) -> RookeryError:
        return RookeryError(self.code, self.message, self.remedy)


class _AllowAll:
    def is_shown(self, server: str, tool: str, public: str) -> bool:
        return True

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        return ALLOWED


class UnavailableView:
    """A provider that starts no server: it could only run one in a directory that its client did not mean."""

    capabilities: Mapping[str, Any] = {"tools": {}}
    instructions = None

    def __init__(self, toolsets: Sequence[CatalogProvider], info: Mapping[str, Any], absence: Absence) -> None:
        self.info = info
        self._absence = absence
        self.changes = ChangeNotifier()
        self._lists = build_table(toolsets, NamingStyle(), _AllowAll()).lists

    def close(self) -> None:
        """Do nothing: the view holds no resources."""

    def input_schema(self, tool: str) -> Mapping[str, Any] | None:
        return None

    async def handle(self, call: Call) -> Raw | Mapping[str, Any]:
        if call.method in self._lists:
            return self._lists[call.method]
        error = self._absence.error
        if call.method == "tools/call":
            return results.tool_error(error)
        raise results.wire_error(error)
