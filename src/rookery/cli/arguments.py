"""The arguments of a tool as people type them, made into what its schema wants."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import click


def arguments_of(words: Sequence[str], schema: dict[str, Any]) -> dict[str, Any]:
    """One JSON object, the one on stdin, or key=value."""
    if not words:
        return {}
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        try:
            found = json.loads(sys.stdin.read() if words[0] == "-" else words[0])
        except ValueError as error:
            raise click.UsageError(f"the arguments are no JSON: {error}") from None
        if not isinstance(found, dict):
            raise click.UsageError("the arguments of a tool are an object")
        return cast("dict[str, Any]", found)
    properties = _object(schema.get("properties"))
    made: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is not key=value")
        made[key] = _value(key, value, _object(properties.get(key)))
    return made


def _value(key: str, text: str, schema: dict[str, Any]) -> Any:
    """As text where text is wanted, else as the JSON that it is; where the schema does not say, as it looks."""
    kinds = _kinds(schema)
    if "string" in kinds:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if kinds:
            raise click.UsageError(f"{key} is to be {' or '.join(sorted(kinds))}, not {text!r}") from None
        return text
    return value if kinds or not isinstance(value, str) else text


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The types that a value may have, as far as a schema says so at once."""
    found = {str(one) for one in _list(schema.get("type"))}
    for one in (*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))):
        found |= _kinds(_object(one))
    return found | {"string" for one in _list(schema.get("enum")) if isinstance(one, str)}


def headers_of(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """The headers that repeat arguments, where the schema marks them so; the daemon compares both."""
    found: dict[str, str] = {}
    for name, value in _marked(arguments, schema):
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        found[f"mcp-param-{name.lower()}"] = encoded(text)
    return found


def _marked(arguments: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, node in _object(schema.get("properties")).items():
        value, inner = arguments.get(key), _object(node)
        if "x-mcp-header" in inner and value is not None:
            yield str(inner["x-mcp-header"]), value
        elif isinstance(value, dict):
            yield from _marked(cast("dict[str, Any]", value), inner)


def encoded(text: str) -> str:
    """A value that survives as a header: itself, or wrapped in base64."""
    if text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?"):
        return text
    import base64

    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [] if value is None else [value]
