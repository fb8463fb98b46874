"""Results and errors for failed requests: a text for the model, and the same as data."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.protocol.messages import INTERNAL_ERROR, WireError, decode_object


def tool_failure(code: str, message: str) -> Mapping[str, Any]:
    """Return a tool's result with an error message for the model."""
    return tool_error(RookeryError(code, message))


def tool_error(error: RookeryError, *, structured: bool = True) -> Mapping[str, Any]:
    """Return a tool's result for an error: as text with its remedy, and as the object that all interfaces return.

    Without `structured` the object is left out, for tools whose output schema does not allow it: clients check
    failures against the schema too, and hide a failure that does not fit.
    """
    data = {"structuredContent": {"error": error.as_dict()}} if structured else {}
    return {"content": [{"type": "text", "text": error_text(error)}], **data, "isError": True}


def error_text(error: RookeryError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def wire_error(error: RookeryError) -> WireError:
    """Return the error of a request whose result cannot express a failure."""
    return WireError(INTERNAL_ERROR, error_text(error), {"code": error.code})


def replace_uri(result: Raw | Mapping[str, Any], own: str, public: str) -> Raw | Mapping[str, Any]:
    """Return the result of a read with the URI by which the client knows the resource."""
    members: dict[str, Any] = dict(decode_object(result, "result") if isinstance(result, Raw) else result)
    try:
        contents: list[dict[str, Any]] = msgspec.json.decode(members["contents"], type=list[dict[str, Raw]])
    except (KeyError, TypeError, msgspec.DecodeError):
        return result
    own_json = msgspec.json.encode(own)
    members["contents"] = [
        content | ({"uri": public} if bytes(content.get("uri", b"")) == own_json else {}) for content in contents
    ]
    return members
