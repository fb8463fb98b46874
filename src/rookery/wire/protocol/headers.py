"""Headers that repeat parts of a stateless request, so that it can be routed without its body.

They have to agree with the body.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import HEADER_MISMATCH, Params, Request, WireError, decode_value

# Names the session of an agent that a request belongs to: its program has one connection for all its sessions.
CONVERSATION_HEADER = b"x-rookery-session"

# The path of an annotated property in the arguments, the name of its header, and its type.
HeaderParameter = tuple[tuple[str, ...], str, str]

_PARAM_PREFIX = "mcp-param-"
_SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL = re.compile(r"(-?\d+)(?:\.0+)?")
_MAX_CACHED_SCHEMAS = 1000
_TYPES = frozenset({"string", "integer", "boolean"})
# Keywords that may contain another schema. Only under `properties` does a property have a fixed path.
_SUBSCHEMA_KEYWORDS = frozenset(
    {"items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contentSchema"}
    | {"unevaluatedItems", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "prefixItems", "patternProperties"}
    | {"dependentSchemas", "$defs", "definitions"}
)


def encode_header_value(text: str) -> str:
    """Return the text as a header value: unchanged, or in base64 if it would not survive as a header."""
    if _PLAIN.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_header_value(text: str) -> str | None:
    """Return the decoded value of a header, or None if its base64 is malformed."""
    match = _SENTINEL.fullmatch(text) if text.startswith("=?") else None
    if match is None:
        return text
    try:
        data = base64.b64decode(match[1], validate=True)
        return data.decode() if base64.b64encode(data).decode() == match[1] else None
    except (binascii.Error, ValueError):
        return None


def _decode_header(head: RequestHead, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for value in head.all(name)]


def check_routing(head: RequestHead, request: Request, params: Params, version: str) -> str | None:
    """Check that headers and body agree on version, method and name. Return the name, if there is one.

    Raise WireError if they disagree.
    """
    name: str | None = None
    named_by = revisions.NAME_PARAMETERS.get(request.method)
    if named_by is not None and named_by in params:
        value = decode_value(params[named_by], named_by)
        name = value if isinstance(value, str) else None
    _check_header(head, b"mcp-protocol-version", version)
    _check_header(head, b"mcp-method", request.method)
    _check_header(head, b"mcp-name", name)
    return name


def _check_header(head: RequestHead, header: bytes, expected: str | None) -> None:
    # The common case: the header is not encoded.
    if expected is not None and expected.isascii() and expected[:2] != "=?" and head.only(header) == expected.encode():
        return
    values = _decode_header(head, header)
    if len(values) > 1:
        raise _make_mismatch_error(f"the header {header.decode()} occurs {len(values)} times")
    if expected is not None and (not values or decode_header_value(values[0]) != expected):
        raise _make_mismatch_error(f"the header {header.decode()} does not match the body")


def find_header_parameters(schema: Any) -> Iterator[HeaderParameter]:
    """Yield each property that has `x-mcp-header`. Raise ValueError for an invalid annotation."""
    seen: set[str] = set()
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, subschema = stack.pop()
        if not isinstance(subschema, dict):
            continue
        node = cast(dict[str, Any], subschema)
        if "x-mcp-header" in node:
            name = node["x-mcp-header"]
            kind = node.get("type")
            if not path:
                raise ValueError("x-mcp-header is only allowed on a property at a fixed path")
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                raise ValueError("x-mcp-header is not a valid header name")
            if not isinstance(kind, str) or kind not in _TYPES:
                raise ValueError("x-mcp-header is for strings, integers and booleans only")
            if name.lower() in seen:
                raise ValueError(f"x-mcp-header {name} is declared twice")
            seen.add(name.lower())
            yield path, name, kind
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                for key, child in cast(dict[str, Any], value).items():
                    stack.append(((*path, key) if path is not None else None, child))
            elif keyword in _SUBSCHEMA_KEYWORDS:
                stack += [(None, child) for child in _list_children(value)]


def _list_children(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast(list[Any], value)
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return [members, *members.values()]
    return []


class HeaderDeclarations:
    """Caches the header parameters that the schemas of tools declare, as long as a tool keeps its schema."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Mapping[str, Any], list[HeaderParameter]]] = {}

    def get(self, tool: str, schema: Mapping[str, Any]) -> list[HeaderParameter]:
        """Return the header parameters of a tool."""
        cached = self._cache.get(tool)
        if cached is not None and cached[0] is schema:
            return cached[1]
        try:
            parameters = list(find_header_parameters(schema))
        except ValueError:
            # Clients drop a tool with invalid annotations, and send no headers for it.
            parameters = []
        if cached is None and len(self._cache) >= _MAX_CACHED_SCHEMAS:
            del self._cache[next(iter(self._cache))]
        self._cache[tool] = schema, parameters
        return parameters


def check_parameters(head: RequestHead, parameters: Sequence[HeaderParameter], arguments: Any) -> None:
    """Check that the Mcp-Param-* headers of a call agree with its arguments. Raise WireError if they disagree."""
    for path, name, kind in parameters:
        value = find_argument(arguments, path)
        values = _decode_header(head, (_PARAM_PREFIX + name.lower()).encode())
        if len(values) > 1:
            raise _make_mismatch_error(f"the header Mcp-Param-{name} occurs {len(values)} times")
        if (value is None) != (not values):
            raise _make_mismatch_error(
                f"the header Mcp-Param-{name} and the argument {'.'.join(path)} must be sent together"
            )
        if values and not _is_equal(kind, value, decode_header_value(values[0])):
            raise _make_mismatch_error(f"the header Mcp-Param-{name} does not match the argument {'.'.join(path)}")


def find_argument(arguments: Any, path: tuple[str, ...]) -> Any:
    """Return the argument at a path of keys, or None if there is none."""
    for key in path:
        if not isinstance(arguments, dict):
            return None
        arguments = cast(dict[str, Any], arguments).get(key)
    return arguments


def render_argument(value: Any) -> str | None:
    """Return an argument as the text of a header, or None if it has no such form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _is_equal(kind: str, value: Any, text: str | None) -> bool:
    if text is None:
        return False
    if kind == "integer" and not isinstance(value, bool) and isinstance(value, int | float) and value == int(value):
        number = _DECIMAL.fullmatch(text)
        try:
            return number is not None and int(number[1]) == int(value)
        except ValueError:  # more digits than Python converts
            return False
    return text == render_argument(value)


def _make_mismatch_error(message: str) -> WireError:
    return WireError(HEADER_MISMATCH, message)
