"""The stateless era: every request says for itself which revision it speaks and what its client can do."""

import functools
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from rookery.wire import headers as mirrored, revisions
from rookery.wire.calls import params_of
from rookery.wire.head import Head
from rookery.wire.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Message,
    Params,
    Request,
    WireError,
    object_of,
    value_of,
)
from rookery.wire.provider import Client, Provider
from rookery.wire.session import MAX_SUBSCRIPTIONS

# The HTTP status that goes with an error; with any other it is 200.
STATUS = dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400) | {METHOD_NOT_FOUND: 404}

_NOTHING = Raw(b"{}")
_REMEMBERED_BYTES = 4096
_LONGEST_WHO = 1024

_text = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Any])

_ENVELOPE = revisions.META_VERSION.encode()

T = TypeVar("T")


class Told(msgspec.Struct, frozen=True):
    """What `_meta` says of a request's client, and what is wrong with that, which is told when its turn comes."""

    version: str
    client: Client
    log_level: str | None
    meta: Params
    wrong: str | None
    # What it says of itself, as it came: one client is told from another by it.
    who: bytes = b""


def classify(
    request: Request, head: Head | None, provider: Provider, declarations: mirrored.Declarations
) -> tuple[Told, Params]:
    """Who calls, and the parameters; or the error that the first thing wrong deserves. No headers on stdio."""
    params = object_of(request.params)
    written = bytes(params.get("_meta", _NOTHING))
    told = _told_again(written) if len(written) <= _REMEMBERED_BYTES else _told(written)
    name = mirrored.check_routing(head, request, params, told.version) if head is not None else None
    refuse_unknown(told.version)
    if request.method in revisions.ONLY_HANDSHAKE:
        raise WireError(METHOD_NOT_FOUND, f"{told.version} has no method {request.method}")
    if head is not None and request.method == "tools/call" and "name" in params:
        if name is None:
            raise WireError(INVALID_PARAMS, _wrong_kind("name"))
        schema = provider.input_schema(name)
        if schema is not None and (wanted := declarations.of(name, schema)):
            arguments = params.get("arguments")
            given: Any = value_of(arguments, "arguments") if arguments is not None else {}
            mirrored.check_params(head, wanted, given)
    if told.wrong is not None:
        raise WireError(INVALID_PARAMS, told.wrong)
    return told, params


def _told(written: bytes) -> Told:
    meta = object_of(Raw(written), "_meta")
    if missing := [key for key in (revisions.META_VERSION, revisions.META_CAPABILITIES) if key not in meta]:
        raise WireError(INVALID_PARAMS, f"_meta lacks {' and '.join(missing)}")
    version = _decoded(meta, revisions.META_VERSION, _text)
    capabilities: dict[str, Any] = {}
    info: dict[str, Any] = {}
    level: str | None = None
    wrong: str | None = None
    try:
        capabilities = _decoded(meta, revisions.META_CAPABILITIES, _object)
        info = _decoded(meta, revisions.META_CLIENT, _object) if revisions.META_CLIENT in meta else {}
        level = _log_level(meta)
    except WireError as error:
        wrong = error.message
    who = bytes(meta.get(revisions.META_CLIENT, b""))[:_LONGEST_WHO]
    return Told(version, Client(version, capabilities, info), level, meta, wrong, who)


# A client says the same with every request. It is kept by a copy, as parts of a message hold the whole of it.
_told_again = functools.lru_cache(256)(_told)


def has_envelope(message: Message) -> bool:
    """Whether this is a request that says for itself which revision it speaks."""
    if not isinstance(message, Request) or _ENVELOPE not in bytes(message.params):
        return False
    try:
        return revisions.META_VERSION in params_of(message.params)[1]
    except WireError:
        return False


def refuse_unknown(version: str) -> None:
    if version not in revisions.MODERN:
        data = {"supported": list(revisions.MODERN), "requested": version}
        raise WireError(UNSUPPORTED_VERSION, f"{version} is not supported", data)


def _log_level(meta: Params) -> str | None:
    """The level that the client opted in to for this request."""
    if revisions.META_LOG_LEVEL not in meta:
        return None
    level = _decoded(meta, revisions.META_LOG_LEVEL, _text)
    if level not in revisions.LOG_LEVELS:
        raise WireError(INVALID_PARAMS, f"there is no log level {level!r}")
    return level


def discovered(provider: Provider) -> dict[str, Any]:
    """The result of server/discover."""
    found: dict[str, Any] = {
        "supportedVersions": list(revisions.MODERN),
        "capabilities": provider.capabilities,
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return found | ({"instructions": provider.instructions} if provider.instructions else {})


class Filter(msgspec.Struct, rename="camel"):
    """What a listener asked for."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []

    def wants(self, method: str, uri: str | None) -> bool:
        if uri is not None:
            return uri in self.resource_subscriptions
        kind = method.removeprefix("notifications/").removesuffix("/list_changed")
        return bool(getattr(self, f"{kind}_list_changed", False))


def filter_of(params: Params, provider: Provider) -> tuple[Filter, dict[str, Any]]:
    """The filter of a subscription, and what of it this server honours."""
    try:
        asked = msgspec.json.decode(params.get("notifications", b"{}"), type=Filter)
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"notifications does not fit: {error}") from None
    if len(asked.resource_subscriptions) > MAX_SUBSCRIPTIONS:
        raise WireError(INVALID_PARAMS, f"one subscription watches at most {MAX_SUBSCRIPTIONS} resources")
    honoured: dict[str, Any] = {}
    for kind in ("tools", "prompts", "resources"):
        able = provider.capabilities.get(kind, {}).get("listChanged", False)
        setattr(asked, f"{kind}_list_changed", getattr(asked, f"{kind}_list_changed") and able)
        if getattr(asked, f"{kind}_list_changed"):
            honoured[f"{kind}ListChanged"] = True
    if not provider.capabilities.get("resources", {}).get("subscribe", False):
        asked.resource_subscriptions = []
    if asked.resource_subscriptions:
        honoured["resourceSubscriptions"] = asked.resource_subscriptions
    return asked, honoured


def _decoded(found: Params, key: str, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(found[key])
    except msgspec.DecodeError:
        raise WireError(INVALID_PARAMS, _wrong_kind(key)) from None


def _wrong_kind(key: str) -> str:
    return f"{key} is not of the right kind"
