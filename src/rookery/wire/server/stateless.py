"""Requests of the stateless era.

Each request states its own revision and the capabilities of its client.
"""

import functools
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import headers as mirrored, revisions
from rookery.wire.protocol.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Message,
    Params,
    Request,
    WireError,
    decode_object,
    decode_value,
)
from rookery.wire.protocol.provider import ClientProfile, Provider
from rookery.wire.server.call import decode_params
from rookery.wire.server.session import MAX_SUBSCRIPTIONS, check_profile_size

# The HTTP status of a response with this error code; 200 for all others.
HTTP_STATUSES = dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400) | {METHOD_NOT_FOUND: 404}

_NO_META = Raw(b"{}")
_REMEMBERED_BYTES = 4096
_LONGEST_CLIENT_INFO = 1024

_text = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Any])

_ENVELOPE_KEY = revisions.META_VERSION.encode()

T = TypeVar("T")


class RequestEnvelope(msgspec.Struct, frozen=True):
    """What `_meta` says about the client of a request. `error` is an error in it, which is reported in its turn."""

    version: str
    client: ClientProfile
    log_level: str | None
    meta: Params
    error: str | None
    # The raw client info, which identifies a client.
    client_info: bytes = b""


def classify_request(
    request: Request, head: RequestHead | None, provider: Provider, declarations: mirrored.HeaderDeclarations
) -> tuple[RequestEnvelope, Params]:
    """Return the envelope and the parameters of a request. Raise WireError for the first thing that is wrong.

    `head` is None on a transport without headers.
    """
    params = decode_object(request.params)
    raw_meta = bytes(params.get("_meta", _NO_META))
    envelope = _decode_envelope_cached(raw_meta) if len(raw_meta) <= _REMEMBERED_BYTES else _decode_envelope(raw_meta)
    name = mirrored.check_routing(head, request, params, envelope.version) if head is not None else None
    check_revision(envelope.version)
    if request.method in revisions.ONLY_HANDSHAKE:
        raise WireError(METHOD_NOT_FOUND, f"{envelope.version} has no method {request.method}")
    if head is not None and request.method == "tools/call" and "name" in params:
        if name is None:
            raise WireError(INVALID_PARAMS, _describe_wrong_type("name"))
        schema = provider.input_schema(name)
        if schema is not None and (parameters := declarations.get(name, schema)):
            arguments = params.get("arguments")
            values: Any = decode_value(arguments, "arguments", None) if arguments is not None else {}
            mirrored.check_parameters(head, parameters, values)
    if envelope.error is not None:
        raise WireError(INVALID_PARAMS, envelope.error)
    return envelope, params


def _decode_envelope(raw_meta: bytes) -> RequestEnvelope:
    meta = decode_object(Raw(raw_meta), "_meta")
    if missing := [key for key in (revisions.META_VERSION, revisions.META_CAPABILITIES) if key not in meta]:
        raise WireError(INVALID_PARAMS, f"_meta lacks {' and '.join(missing)}")
    version = _decode_member(meta, revisions.META_VERSION, _text)
    capabilities: dict[str, Any] = {}
    info: dict[str, Any] = {}
    level: str | None = None
    wrong: str | None = None
    try:
        for key in (revisions.META_CAPABILITIES, revisions.META_CLIENT):
            check_profile_size(meta.get(key, b""), key)
        capabilities = _decode_member(meta, revisions.META_CAPABILITIES, _object)
        info = _decode_member(meta, revisions.META_CLIENT, _object) if revisions.META_CLIENT in meta else {}
        level = _log_level(meta)
    except WireError as error:
        wrong = error.message
    client_info = bytes(meta.get(revisions.META_CLIENT, b""))[:_LONGEST_CLIENT_INFO]
    return RequestEnvelope(version, ClientProfile(version, capabilities, info), level, meta, wrong, client_info)


# A client sends the same `_meta` with every request. The key is a copy: a slice would keep the whole message alive.
_decode_envelope_cached = functools.lru_cache(256)(_decode_envelope)


def has_envelope(message: Message) -> bool:
    """Return whether a message is a request that states its own revision."""
    if not isinstance(message, Request) or _ENVELOPE_KEY not in bytes(message.params):
        return False
    try:
        return revisions.META_VERSION in decode_params(message.params)[1]
    except WireError:
        return False


def check_revision(version: str) -> None:
    """Raise WireError unless the revision is a modern one."""
    if version not in revisions.MODERN:
        data = {"supported": list(revisions.MODERN), "requested": version}
        raise WireError(UNSUPPORTED_VERSION, f"{version} is not supported", data)


def _log_level(meta: Params) -> str | None:
    """Return the log level that the client requested for this call, or None."""
    if revisions.META_LOG_LEVEL not in meta:
        return None
    level = _decode_member(meta, revisions.META_LOG_LEVEL, _text)
    if level not in revisions.LOG_LEVELS:
        raise WireError(INVALID_PARAMS, f"there is no log level {level!r}")
    return level


def make_discover_result(provider: Provider) -> dict[str, Any]:
    """Return the result of server/discover."""
    result: dict[str, Any] = {
        "supportedVersions": list(revisions.MODERN),
        "capabilities": provider.capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return result | ({"instructions": provider.instructions} if provider.instructions else {})


class SubscriptionFilter(msgspec.Struct, rename="camel"):
    """The notifications that a subscription asks for."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []

    def wants(self, method: str, uri: str | None) -> bool:
        if uri is not None:
            return uri in self.resource_subscriptions
        kind = method.removeprefix("notifications/").removesuffix("/list_changed")
        return bool(getattr(self, f"{kind}_list_changed", False))


def decode_filter(params: Params, provider: Provider) -> tuple[SubscriptionFilter, dict[str, Any]]:
    """Return the filter of a subscription, and the part of it that this server supports."""
    try:
        requested = msgspec.json.decode(params.get("notifications", b"{}"), type=SubscriptionFilter)
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"notifications is invalid: {error}") from None
    if len(requested.resource_subscriptions) > MAX_SUBSCRIPTIONS:
        raise WireError(INVALID_PARAMS, f"one subscription watches at most {MAX_SUBSCRIPTIONS} resources")
    honoured: dict[str, Any] = {}
    for kind in ("tools", "prompts", "resources"):
        supported = provider.capabilities.get(kind, {}).get("listChanged", False)
        setattr(requested, f"{kind}_list_changed", getattr(requested, f"{kind}_list_changed") and supported)
        if getattr(requested, f"{kind}_list_changed"):
            honoured[f"{kind}ListChanged"] = True
    if not provider.capabilities.get("resources", {}).get("subscribe", False):
        requested.resource_subscriptions = []
    if requested.resource_subscriptions:
        honoured["resourceSubscriptions"] = requested.resource_subscriptions
    return requested, honoured


def _decode_member(members: Params, key: str, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(members[key])
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, _describe_wrong_type(key)) from None


def _describe_wrong_type(key: str) -> str:
    return f"{key} has the wrong type"
