"""Parses the arguments of a tool by its JSON schema, and builds the headers that repeat them."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import click


def parse_arguments(words: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments from one JSON object, from one on stdin (`-`), or from key=value words."""
    if not words:
        return {}
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        try:
            parsed = json.loads(sys.stdin.read() if words[0] == "-" else words[0])
        except ValueError as error:
            raise click.UsageError(f"the arguments are not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise click.UsageError("the arguments of a tool must be a JSON object")
        return cast("dict[str, Any]", parsed)
    properties = _as_object(schema.get("properties"))
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is not key=value")
        arguments[key] = _parse_value(key, value, _as_object(properties.get(key)))
    return arguments


def _parse_value(key: str, text: str, schema: dict[str, Any]) -> Any:
    """Return the text itself where the schema allows a string, else the JSON value in it.

    If the schema has no type, JSON other than a string is parsed, and everything else stays text.
    """
    kinds = _list_types(schema)
    if "string" in kinds:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if kinds:
            raise click.UsageError(f"{key} must be {' or '.join(sorted(kinds))}, not {text!r}") from None
        return text
    return value if kinds or not isinstance(value, str) else text


def _list_types(schema: dict[str, Any]) -> set[str]:
    """Return the types that a value may have, by `type`, `anyOf`, `oneOf` and the strings in `enum`."""
    types = {str(name) for name in _as_list(schema.get("type"))}
    for option in (*_as_list(schema.get("anyOf")), *_as_list(schema.get("oneOf"))):
        types |= _list_types(_as_object(option))
    return types | {"string" for value in _as_list(schema.get("enum")) if isinstance(value, str)}


def build_headers(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """Return the headers that repeat the arguments marked `x-mcp-header` in the schema. The daemon compares both."""
    headers: dict[str, str] = {}
    for name, value in _list_header_arguments(arguments, schema):
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        headers[f"mcp-param-{name.lower()}"] = encode_header(text)
    return headers


def _list_header_arguments(arguments: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the header name and the value of each marked argument, also in nested objects."""
    for key, node in _as_object(schema.get("properties")).items():
        value = arguments.get(key)
        inner = _as_object(node)
        if "x-mcp-header" in inner and value is not None:
            yield str(inner["x-mcp-header"]), value
        elif isinstance(value, dict):
            yield from _list_header_arguments(cast("dict[str, Any]", value), inner)


def encode_header(text: str) -> str:
    """Return the text as a header value: unchanged where that is safe, else wrapped in base64."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    import base64

    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]
