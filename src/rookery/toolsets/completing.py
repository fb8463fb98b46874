"""What may stand in a blank, of a template's URI or of a prompt."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from rookery.wire.jsonrpc import EMPTY, INVALID_PARAMS, WireError
from rookery.wire.provider import Call

_MOST_VALUES = 100

# Answers what begins with a text.
Completing = Callable[[Call, str], Awaitable[Sequence[str]]]


class Argument(msgspec.Struct):
    name: str = ""
    value: str = ""


def value_of(params: Mapping[str, Any]) -> Argument:
    """What there is to complete."""
    try:
        return msgspec.json.decode(params.get("argument", EMPTY), type=Argument)
    except msgspec.DecodeError as error:
        raise WireError(INVALID_PARAMS, f"the argument to complete does not fit: {error}") from None


async def completion(call: Call, value: str, completing: Completing | None) -> Mapping[str, Any]:
    values = list(await completing(call, value)) if completing is not None else []
    more = len(values) > _MOST_VALUES
    return {"completion": {"values": values[:_MOST_VALUES], "total": len(values), "hasMore": more}}
