"""What the client of a call can be asked."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from rookery.wire import revisions
from rookery.wire.jsonrpc import Params
from rookery.wire.provider import Call

_FORMS = frozenset({"form"})


def able(call: Call, method: str, params: Params) -> bool:
    """Whether it has said so. A form is what elicitation is about where nothing else is said."""
    capability: Any = call.client.capabilities.get(revisions.CAPABILITY_OF[method])
    if capability is None:
        return False
    if method != "elicitation/create":
        return True
    modes = cast(Mapping[str, Any], capability) if capability and isinstance(capability, Mapping) else _FORMS
    return mode_of(params) in modes


def mode_of(params: Params) -> str:
    """How a user is to be asked."""
    try:
        return msgspec.json.decode(params["mode"], type=str)
    except (KeyError, msgspec.DecodeError):
        return "form"
