"""What of a call goes on from one leg of its way to the other, where these may be of different eras."""

from collections.abc import Mapping
from typing import Any

from rookery.wire import revisions
from rookery.wire.client import Client as Server
from rookery.wire.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY, WireError
from rookery.wire.provider import Call

# Members of `_meta` that belong to one leg of the way, and not to the call.
_OF_THE_LEG = frozenset({"progressToken", revisions.META_VERSION, revisions.META_CLIENT, revisions.META_CAPABILITIES})
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
