"""Results of operations: those that are more than a value, such as bytes or a stream, and the schemas of values."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError


class ContentBlocks(msgspec.Struct, frozen=True):
    """A result that consists of content blocks, such as the text of a file, without structured content.

    With an `error` it is a failed result, with the error as structured content. `links` are resource links, which
    follow the content for clients that accept them.
    """

    content: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] = {}
    error: RookeryError | None = None
    links: Sequence[Mapping[str, Any]] = ()


class TextResult(msgspec.Struct, frozen=True):
    """A result that is already a JSON object as text; large ones are not parsed again."""

    text: str


@dataclass(frozen=True)
class NotedResult:
    """A result with additions: content `blocks`, a `note`, or the `error` that makes it a failed result."""

    value: Any
    note: str | None = None
    error: RookeryError | None = None
    blocks: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Binary:
    """Bytes with their media type, and headers that describe them."""

    data: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class PlainText:
    """Text that is not JSON, with its media type."""

    text: str
    media_type: str


# Sends one event of a stream: its type and its data.
Emit = Callable[[str, object], Awaitable[None]]


@dataclass(frozen=True)
class EventResult:
    """A result that arrives as events. `run` emits events and returns the value of the last one, of type `last`."""

    run: Callable[[Emit], Awaitable[object]]
    last: str


@dataclass(frozen=True)
class BusEvents:
    """A result without end: the events of a bus that match, also earlier ones after the id `since`."""

    bus: Bus
    since: int | None
    matches: Callable[[Event], bool] = lambda event: True


def require_all_members(schema: Any) -> Any:
    """Return the schema of a result, in which every member is required, even one with a default.

    A member that may be unset is the exception: it may be omitted, and has no default.
    """
    if isinstance(schema, list):
        return [require_all_members(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast(dict[str, Any], schema)
    complete = {key: require_all_members(value) for key, value in members.items() if key != "default"}
    if isinstance(complete.get("properties"), dict):
        properties: dict[str, Any] = members["properties"]
        required: list[str] = members.get("required", [])
        complete["required"] = [name for name in properties if name in required or "default" in properties[name]]
    return complete
