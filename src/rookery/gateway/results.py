"""How a failure looks to whoever called: words for the model, and the same as data."""

from collections.abc import Mapping
from typing import Any

from rookery.system.errors import RookeryError
from rookery.wire.jsonrpc import INTERNAL_ERROR, WireError


def failed(code: str, message: str) -> Mapping[str, Any]:
    """A tool's result that tells the model what it could do about it."""
    return {
        "content": [{"type": "text", "text": message}],
        "structuredContent": {"error": {"code": code, "message": message}},
        "isError": True,
    }


def words_of(error: RookeryError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


def wire_error_of(error: RookeryError) -> WireError:
    """The same for a request that has no place for a failed result."""
    return WireError(INTERNAL_ERROR, words_of(error), {"code": error.code})
