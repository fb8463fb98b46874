"""Encoding of a client's messages: the `_meta` and the headers that each revision requires."""

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from rookery.wire.protocol import headers as mirrored, revisions
from rookery.wire.protocol.messages import RequestId, decode_object, encode_request

logger = logging.getLogger("rookery.mcp.client")

# Members of `_meta` that are always our own, whatever the caller passed.
_RESERVED_META = ("progressToken", revisions.META_VERSION, revisions.META_CAPABILITIES, revisions.META_CLIENT)


# Placeholders for a number and arguments in a template. They are random, so no tool name can contain them.
_NUMBER = secrets.token_hex(16)
_ARGUMENTS = secrets.token_hex(16)


RequestTemplate = Callable[[tuple[RequestId, Raw, RequestId]], bytes]


@dataclass(frozen=True)
class ClientIdentity:
    """How the client identifies itself, and which questions it can answer."""

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])


class MessageWriter:
    """Encodes the messages to one server."""

    def __init__(self, identity: ClientIdentity) -> None:
        self.identity = identity
        self.revision = ""
        self.modern = False
        # Which arguments of a tool are repeated in headers.
        self._mirrored: dict[str, list[tuple[tuple[str, ...], str]]] = {}

    def set_revision(self, revision: str) -> None:
        """Set the revision to write. It is empty before it is known."""
        self.revision = revision
        self.modern = revision in revisions.MODERN

    def request(
        self,
        number: RequestId,
        method: str,
        params: Mapping[str, Any],
        *,
        with_progress: bool,
        capabilities: Mapping[str, Any] | None,
    ) -> bytes:
        """Return an encoded request with its `_meta`."""
        caller_meta = params.get("_meta")
        meta: dict[str, Any] = {}
        if caller_meta is not None:
            meta |= decode_object(caller_meta, "_meta") if isinstance(caller_meta, Raw) else caller_meta
            for key in _RESERVED_META:
                meta.pop(key, None)
        if self.modern:
            meta[revisions.META_VERSION] = self.revision
            meta[revisions.META_CAPABILITIES] = self.identity.capabilities if capabilities is None else capabilities
            meta[revisions.META_CLIENT] = self.identity.info
        if with_progress:
            meta["progressToken"] = number
        full_params = {**params, "_meta": meta} if meta or caller_meta is not None else params
        return encode_request(number, method, msgspec.json.encode(full_params))

    def template(
        self, method: str, params: Mapping[str, Any], *, capabilities: Mapping[str, Any] | None
    ) -> RequestTemplate:
        """Return a template for such requests, with progress.

        It is filled with a tuple of the number, the arguments and the number again.
        """
        full_params = {**params, "arguments": _ARGUMENTS}
        message = self.request(_NUMBER, method, full_params, with_progress=True, capabilities=capabilities)
        number, arguments = (b'"%b"' % placeholder.encode() for placeholder in (_NUMBER, _ARGUMENTS))
        return message.replace(b"%", b"%%").replace(number, b"%d").replace(arguments, b"%b").__mod__

    def mirrors_arguments(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether arguments of such requests are repeated in headers, which so differ with the arguments."""
        return self.modern and method == "tools/call" and str(_decode_if_raw(params.get("name"))) in self._mirrored

    def headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers by which a modern message can be routed. A handshake has none."""
        if not self.revision or method == "initialize":
            return {}
        headers = {"MCP-Protocol-Version": self.revision}
        if not self.modern:
            return headers
        headers["Mcp-Method"] = method
        named_by = revisions.NAME_PARAMETERS.get(method)
        if named_by is None or named_by not in params:
            return headers
        name = str(_decode_if_raw(params[named_by]))
        headers["Mcp-Name"] = mirrored.encode_header_value(name)
        mirrored_arguments = self._mirrored.get(name) if method == "tools/call" else None
        if mirrored_arguments:
            arguments = _decode_if_raw(params.get("arguments", {}))
            for path, header in mirrored_arguments:
                text = mirrored.render_argument(mirrored.find_argument(arguments, path))
                if text is not None:
                    headers[f"Mcp-Param-{header}"] = mirrored.encode_header_value(text)
        return headers

    def filter_tools(self, tools: list[Raw]) -> list[Raw]:
        """Return the tools without invalid header annotations, and record which arguments are repeated in headers.

        A definition that cannot be read is kept: whoever shows the list reports it.
        """
        valid: list[Raw] = []
        self._mirrored.clear()
        for tool in tools:
            try:
                definition = msgspec.json.decode(tool, type=_Tool)
            except msgspec.DecodeError:
                valid.append(tool)
                continue
            try:
                parameters = [
                    (path, header) for path, header, _ in mirrored.find_header_parameters(definition.inputSchema)
                ]
            except ValueError as error:
                logger.warning("a tool was skipped: %s", error)
                continue
            if parameters:
                self._mirrored[definition.name] = parameters
            valid.append(tool)
        return valid


class _Tool(msgspec.Struct):
    name: str
    inputSchema: Any = None


def _decode_if_raw(value: Any) -> Any:
    """Decode a value that is still raw."""
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
