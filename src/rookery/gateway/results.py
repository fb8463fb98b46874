"""How a failure looks to whoever called: words for the model, and the same as data."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import INTERNAL_ERROR, WireError, object_of


def failed(code: str, message: str) -> Mapping[str, Any]:
    """A tool's result that tells the model what it could do about it."""
    return failed_by(RookeryError(code, message))


def failed_by(error: RookeryError, *, structured: bool = True) -> Mapping[str, Any]:
    """The same for an error of ours: as text with its remedy, and as the object that every face answers.

    A tool's own output schema may have no room for that. Clients check failures against it too, and hide all of one
    that does not fit, so it is not `structured` then.
    """
    told = {"structuredContent": {"error": error.as_dict()}} if structured else {}
    return {"content": [{"type": "text", "text": words_of(error)}], **told, "isError": True}


def words_of(error: RookeryError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def wire_error_of(error: RookeryError) -> WireError:
    """The same for a request that has no place for a failed result."""
    return WireError(INTERNAL_ERROR, words_of(error), {"code": error.code})


def with_uri(result: Raw | Mapping[str, Any], own: str, public: str) -> Raw | Mapping[str, Any]:
    """What was read, under the URI by which the client knows it."""
    members: dict[str, Any] = dict(object_of(result, "result") if isinstance(result, Raw) else result)
    try:
        contents: list[dict[str, Any]] = msgspec.json.decode(members["contents"], type=list[dict[str, Raw]])
    except (KeyError, TypeError, msgspec.DecodeError):
        return result
    mine = msgspec.json.encode(own)
    members["contents"] = [one | ({"uri": public} if bytes(one.get("uri", b"")) == mine else {}) for one in contents]
    return members
