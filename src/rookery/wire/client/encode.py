"""How a client writes its messages: what each revision wants in `_meta`, and in the headers."""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.wire import headers as mirrored, revisions
from rookery.wire.jsonrpc import Id, encode_request, object_of

logger = logging.getLogger("rookery.mcp.client")

# Members of `_meta` that are always our own, whatever a caller gave.
_OURS = ("progressToken", revisions.META_VERSION, revisions.META_CAPABILITIES, revisions.META_CLIENT)


# Stand in a template where a number and arguments will be; nobody knows them, to have them in a name.
_NUMBER, _ARGUMENTS = secrets.token_hex(16), secrets.token_hex(16)


Written = Callable[[tuple[Id, Raw, Id]], bytes]


@dataclass(frozen=True)
class Identity:
    """How we present ourselves, and what we can be asked."""

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Writer:
    """Writes what one server is told."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.revision = ""
        self.modern = False
        # Which arguments of a tool are repeated in headers.
        self._mirrored: dict[str, list[tuple[tuple[str, ...], str]]] = {}

    def speak(self, revision: str) -> None:
        """Write as this revision wants it; none before that is known."""
        self.revision, self.modern = revision, revision in revisions.MODERN

    def request(
        self,
        number: Id,
        method: str,
        params: Mapping[str, Any],
        *,
        with_progress: bool,
        capabilities: Mapping[str, Any] | None,
    ) -> bytes:
        given = params.get("_meta")
        meta: dict[str, Any] = {}
        if given is not None:
            meta |= object_of(given, "_meta") if isinstance(given, Raw) else given
            for key in _OURS:
                meta.pop(key, None)
        if self.modern:
            meta[revisions.META_VERSION] = self.revision
            meta[revisions.META_CAPABILITIES] = self.identity.capabilities if capabilities is None else capabilities
            meta[revisions.META_CLIENT] = self.identity.info
        if with_progress:
            meta["progressToken"] = number
        whole = {**params, "_meta": meta} if meta or given is not None else params
        return encode_request(number, method, msgspec.json.encode(whole))

    def template(self, method: str, params: Mapping[str, Any], *, capabilities: Mapping[str, Any] | None) -> Written:
        """Writes such a request, with progress, again and again: to be given its number, its arguments, its number."""
        given = {**params, "arguments": _ARGUMENTS}
        made = self.request(_NUMBER, method, given, with_progress=True, capabilities=capabilities)
        number, arguments = (b'"%b"' % one.encode() for one in (_NUMBER, _ARGUMENTS))
        return made.replace(b"%", b"%%").replace(number, b"%d").replace(arguments, b"%b").__mod__

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers by which a modern message can be routed; a handshake has none."""
        if not self.revision or method == "initialize":
            return {}
        found = {"MCP-Protocol-Version": self.revision}
        if not self.modern:
            return found
        found["Mcp-Method"] = method
        named_by = revisions.NAMED_BY.get(method)
        if named_by is None or named_by not in params:
            return found
        name = str(_value(params[named_by]))
        found["Mcp-Name"] = mirrored.encode_value(name)
        wanted = self._mirrored.get(name) if method == "tools/call" else None
        if wanted:
            arguments = _value(params.get("arguments", {}))
            for place, header in wanted:
                text = mirrored.render(mirrored.at(arguments, place))
                if text is not None:
                    found[f"Mcp-Param-{header}"] = mirrored.encode_value(text)
        return found

    def usable(self, tools: list[Raw]) -> list[Raw]:
        """Remember which arguments are repeated in headers; a tool that asks for that wrongly is left out."""
        kept: list[Raw] = []
        self._mirrored.clear()
        for tool in tools:
            try:
                found = msgspec.json.decode(tool, type=_Tool)
                wanted = [(place, header) for place, header, _ in mirrored.declared(found.inputSchema)]
            except ValueError as error:
                logger.warning("a tool was left out: %s", error)
                continue
            if wanted:
                self._mirrored[found.name] = wanted
            kept.append(tool)
        return kept


class _Tool(msgspec.Struct):
    name: str
    inputSchema: Any = None


def _value(given: Any) -> Any:
    """What was relayed as it came is read only here."""
    return msgspec.json.decode(given) if isinstance(given, Raw) else given
