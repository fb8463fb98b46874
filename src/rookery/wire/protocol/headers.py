"""The headers by which a modern request can be routed without reading its body; they must say what the body says."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rookery.wire import revisions
from rookery.wire.head import Head
from rookery.wire.jsonrpc import HEADER_MISMATCH, Params, Request, WireError, value_of

# Where an annotated property is, the name of its header, its type.
Declared = tuple[tuple[str, ...], str, str]

_PARAM = "mcp-param-"
_SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"(-?\d+)(?:\.0+)?")
_SCHEMAS_KEPT = 1000
_TYPES = frozenset({"string", "integer", "boolean"})
# Keywords under which a schema may hide another one; only `properties` keeps a property at a fixed place.
_HOLDERS = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contentSchema"}
    | {"unevaluatedItems", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "prefixItems", "patternProperties"}
    | {"dependentSchemas", "$defs", "definitions"}
)


def encode_value(text: str) -> str:
    """A value that survives as a header: itself, or wrapped in base64."""
    if _PLAIN.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_value(text: str) -> str | None:
    """The value that was meant, None if it is wrapped badly."""
    wrapped = _SENTINEL.fullmatch(text) if text.startswith("=?") else None
    if wrapped is None:
        return text
    try:
        data = base64.b64decode(wrapped[1], validate=True)
        return data.decode() if base64.b64encode(data).decode() == wrapped[1] else None
    except (binascii.Error, ValueError):
        return None


def _values(head: Head, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for value in head.all(name)]


def check_routing(head: Head, request: Request, params: Params, version: str) -> str | None:
    """Refuse a request whose headers and body disagree on version, method or name. Answers the name, if it has one."""
    name: str | None = None
    named_by = revisions.NAMED_BY.get(request.method)
    if named_by is not None and named_by in params:
        found = value_of(params[named_by], named_by)
        name = found if isinstance(found, str) else None
    _check_one(head, b"mcp-protocol-version", version)
    _check_one(head, b"mcp-method", request.method)
    _check_one(head, b"mcp-name", name)
    return name


def _check_one(head: Head, header: bytes, expected: str | None) -> None:
    # Most are sent as they are.
    if expected is not None and expected.isascii() and expected[:2] != "=?" and head.only(header) == expected.encode():
        return
    given = _values(head, header)
    if len(given) > 1:
        raise _mismatch(f"{header.decode()} is given {len(given)} times")
    if expected is not None and (not given or decode_value(given[0]) != expected):
        raise _mismatch(f"{header.decode()} does not say what the body says")


def declared(schema: Any) -> Iterator[Declared]:
    """Each annotated property. Raises ValueError for a bad one."""
    seen: set[str] = set()
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        place, found = waiting.pop()
        if not isinstance(found, dict):
            continue
        node = cast(dict[str, Any], found)
        if "x-mcp-header" in node:
            name, kind = node["x-mcp-header"], node.get("type")
            if not place:
                raise ValueError("x-mcp-header stands where no argument has a fixed place")
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                raise ValueError("x-mcp-header is not a header name")
            if not isinstance(kind, str) or kind not in _TYPES:
                raise ValueError("x-mcp-header is for strings, integers and booleans only")
            if name.lower() in seen:
                raise ValueError(f"x-mcp-header {name} stands twice")
            seen.add(name.lower())
            yield place, name, kind
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                for key, child in cast(dict[str, Any], value).items():
                    waiting.append(((*place, key) if place is not None else None, child))
            elif keyword in _HOLDERS:
                waiting += [(None, child) for child in _children(value)]


def _children(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast(list[Any], value)
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return [members, *members.values()]
    return []


class Declarations:
    """What the schemas of tools declare, read once for as long as a tool keeps its schema."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], list[Declared]]] = {}

    def of(self, tool: str, schema: Mapping[str, Any]) -> list[Declared]:
        known = self._known.get(tool)
        if known is not None and known[0] is schema:
            return known[1]
        try:
            found = list(declared(schema))
        except ValueError:
            # Clients drop such a tool, and send no headers for it.
            found = []
        if known is None and len(self._known) >= _SCHEMAS_KEPT:
            del self._known[next(iter(self._known))]
        self._known[tool] = schema, found
        return found


def check_params(head: Head, wanted: Sequence[Declared], arguments: Any) -> None:
    """Refuse a call whose Mcp-Param-* headers and arguments disagree."""
    for place, name, kind in wanted:
        value = at(arguments, place)
        given = _values(head, (_PARAM + name.lower()).encode())
        if len(given) > 1:
            raise _mismatch(f"Mcp-Param-{name} is given {len(given)} times")
        if (value is None) != (not given):
            raise _mismatch(f"Mcp-Param-{name} and {'.'.join(place)} must be given together")
        if given and not _agree(kind, value, decode_value(given[0])):
            raise _mismatch(f"Mcp-Param-{name} does not say what {'.'.join(place)} says")


def at(arguments: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        if not isinstance(arguments, dict):
            return None
        arguments = cast(dict[str, Any], arguments).get(key)
    return arguments


def render(value: Any) -> str | None:
    """An argument as a header has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _agree(kind: str, value: Any, given: str | None) -> bool:
    if given is None:
        return False
    if kind == "integer" and not isinstance(value, bool) and isinstance(value, int | float) and value == int(value):
        number = _DECIMAL.fullmatch(given)
        return number is not None and int(number[1]) == int(value)
    return given == render(value)


def _mismatch(message: str) -> WireError:
    return WireError(HEADER_MISMATCH, message)
