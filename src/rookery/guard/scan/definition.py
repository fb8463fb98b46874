"""Definitions that are scanned, and every text in them with its place and role."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple, cast

import msgspec

Kind = Literal["tool", "prompt", "resource", "instructions", "skill"]

# A definition beyond these is not read further, and that is reported as severe: what was not read is not clean.
MOST_NODES = 20_000
MOST_DEPTH = 64
MOST_CHARACTERS = 200_000
# All texts as they are, and as they read after each encoding that was undone.
MOST_READ_CHARACTERS = 300_000


class Definition(msgspec.Struct, frozen=True):
    """One definition of a server. `value` is what the server sent: an object, or the text of instructions.

    `unread` says why a definition could not be read from where it was kept; it is empty for one that could.
    """

    kind: Kind
    server: str
    name: str
    value: Any
    id: str = ""
    unread: str = ""


class Role(Enum):
    """What a text of a definition is for."""

    NAME = "name"
    DESCRIPTION = "description"
    PARAMETER_NAME = "parameter name"
    PARAMETER = "parameter"
    VALUE = "value"
    OTHER = "other"


class Text(NamedTuple):
    """One text of a definition. `parameter` is the name of the parameter that it belongs to."""

    place: str
    value: str
    role: Role
    parameter: str = ""


class LimitError(Exception):
    """A definition is larger or deeper than the scanner reads."""


_SCHEMAS = frozenset(("inputSchema", "outputSchema", "input_schema", "output_schema", "parameters", "arguments"))
_VALUES = frozenset(("default", "const", "enum", "examples", "example", "pattern"))
# Keywords whose values are names of types and formats, and not read by a model as text.
_KEYWORDS = frozenset(
    [
        "$ref",
        "$schema",
        "$id",
        "$defs",
        "$anchor",
        "$comment",
        "type",
        "format",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "default",
        "examples",
        "title",
        "description",
        "additionalProperties",
        "patternProperties",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "pattern",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "nullable",
        "definitions",
        "readOnlyHint",
        "destructiveHint",
        "idempotentHint",
        "openWorldHint",
        "annotations",
        "name",
        "inputSchema",
        "outputSchema",
    ]
)


def list_texts(definition: Definition) -> list[Text]:
    """Return every text of a definition, keys included; raise `LimitError` beyond the limits."""
    texts: list[Text] = []
    characters = 0
    parts = _walk(definition.value)
    if isinstance(definition.value, str):
        parts = iter([Text(definition.kind, definition.value, Role.DESCRIPTION)])
    for nodes, text in enumerate(parts, 1):
        characters += len(text.value) if text is not _NODE else 0
        if nodes > MOST_NODES:
            raise LimitError(f"the definition has more than {MOST_NODES:,} parts")
        if characters > MOST_CHARACTERS:
            raise LimitError(f"the definition has more than {MOST_CHARACTERS:,} characters")
        if text is not _NODE:
            texts.append(text)
    return texts


_NODE = Text("", "", Role.OTHER)


def _walk(value: Any) -> Iterator[Text]:
    """Yield all texts, and `_NODE` for each other part, without recursion."""
    stack: list[tuple[Any, str, Role, str, bool, int]] = [(value, "", Role.OTHER, "", False, 0)]
    while stack:
        node, place, role, parameter, inside, depth = stack.pop()
        if depth > MOST_DEPTH:
            raise LimitError(f"the definition is nested deeper than {MOST_DEPTH} levels")
        if isinstance(node, str):
            yield Text(place, node, role, parameter)
            continue
        yield _NODE
        children: list[tuple[Any, str, Role, str, bool, int]] = []
        if isinstance(node, dict):
            named = place.endswith(("properties", "patternProperties", "$defs", "definitions")) and inside
            for key, child in cast("dict[str, Any]", node).items():
                path = f"{place}.{key}" if place else key
                if named or key not in _KEYWORDS:
                    yield Text(f"{path} (key)", key, Role.PARAMETER_NAME if named else Role.OTHER, key)
                owner = key if named and place.endswith("roperties") else parameter
                children.append(
                    (child, path, _find_role(key, role, inside, named), owner, inside or key in _SCHEMAS, depth + 1)
                )
        elif isinstance(node, list):
            for index, child in enumerate(cast("list[Any]", node)):
                owner = _get_name(child) if place == "arguments" else parameter
                children.append((child, f"{place}[{index}]", role, owner, inside, depth + 1))
        stack.extend(reversed(children))


def _get_name(argument: Any) -> str:
    return str(cast("dict[str, Any]", argument).get("name", "")) if isinstance(argument, dict) else ""


def _find_role(key: str, role: Role, inside: bool, named: bool) -> Role:
    if named:
        return Role.PARAMETER
    if key in _VALUES or role is Role.VALUE:
        return Role.VALUE
    if inside:
        return Role.PARAMETER
    if key in ("name", "title"):
        return Role.NAME
    return Role.DESCRIPTION if key in ("description", "instructions", "text", "content") else Role.OTHER
