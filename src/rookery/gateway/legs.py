"""What of a call goes on from one leg of its way to the other, where these may be of different eras."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.able import mode_of
from rookery.system.ids import new_id
from rookery.wire import revisions
from rookery.wire.client import Client as Server
from rookery.wire.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY, Params, WireError
from rookery.wire.provider import Call

# Members of `_meta` that belong to one leg of the way, and not to the call.
_OF_THE_LEG = frozenset({"progressToken", revisions.META_VERSION, revisions.META_CLIENT, revisions.META_CAPABILITIES})
# What belongs to a call, and clients of 2026-07-28 do not know.
_ONLY_HANDSHAKE = frozenset({"notifications/elicitation/complete"})
# What handshake revisions call a resource that is not there.
_NO_RESOURCE = -32002


def with_meta(call: Call, params: Mapping[str, Any], server: Server) -> Mapping[str, Any]:
    """The parameters with what of the caller's `_meta` concerns the server: traces, and the level of log it wants."""
    meta: dict[str, Any] = {key: value for key, value in call.meta.items() if key not in _OF_THE_LEG}
    if server.modern and not call.client.modern and call.log_level is not None:
        meta[revisions.META_LOG_LEVEL] = call.log_level
    elif not server.modern:
        meta.pop(revisions.META_LOG_LEVEL, None)
    return {**params, "_meta": meta} if meta else params


def without_rounds(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters for a server that knows no rounds: a state that is not ours cannot be one of its own."""
    if "requestState" in params:
        raise WireError(INVALID_PARAMS, "requestState is not one of ours, or was changed")
    if "inputResponses" not in params:
        return params
    return {key: value for key, value in params.items() if key != "inputResponses"}


def is_known(call: Call, method: str) -> bool:
    """Whether the client's era has such a notification."""
    return not call.client.modern or method not in _ONLY_HANDSHAKE


def asked(call: Call, method: str, params: Params) -> Params:
    """A question of the server as the client's era has it: before 2026-07-28 a page to open has an id."""
    if call.client.modern or method != "elicitation/create" or mode_of(params) != "url" or "elicitationId" in params:
        return params
    return {**params, "elicitationId": Raw(msgspec.json.encode(new_id()))}


def told(error: Exception, call: Call, lacks: str | None) -> Exception:
    """An error of the server as the client's era has it; `lacks` is what the client could not be asked."""
    if not isinstance(error, WireError) or not call.client.modern:
        return error
    if lacks is not None:
        words = f"this needs a client with the capability {lacks}"
        return WireError(MISSING_CAPABILITY, words, {"requiredCapabilities": {lacks: {}}})
    if error.code == _NO_RESOURCE and call.method == "resources/read":
        return WireError(INVALID_PARAMS, error.message, error.data)
    return error
