"""What is wrong with the tools that a server lists, as far as that can be seen by looking. Nothing is ever fetched."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import unquote

import msgspec

from rookery.gateway.catalog import Entry
from rookery.gateway.names import LONGEST, Owned, Style, face_name, public_names

Level = Literal["error", "warning", "note"]

# How much of a schema is looked at. What is larger is told as such, and not taken for good.
_MOST_NODES = 20_000
_DEEPEST = 64
_FIT = re.compile(r"[a-zA-Z0-9_-]+")
_SHORT = 80
_PLACE = re.compile(r"0|[1-9][0-9]{0,8}")
# Where schemas lie inside of a schema as the members of an object that is none itself.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# What stands there is data, and may look like anything.
_DATA = frozenset({"const", "enum", "default", "examples"})


class Finding(msgspec.Struct, frozen=True):
    """`rule` is for machines, `text` for people. `server` and `tool` are None where it is about several."""

    level: Level
    rule: str
    text: str
    server: str | None = None
    tool: str | None = None


class _Definition(msgspec.Struct):
    description: Any = None
    inputSchema: Any = None
    outputSchema: Any = None


def judged(server: str, tools: Sequence[Entry]) -> Iterator[Finding]:
    """What there is to say of the tools of one server."""
    for entry in tools:
        for level, rule, text in _of_tool(server, entry):
            yield Finding(level, rule, text, server, entry.name)
    if silent := [one.name for one in tools if _is_silent(one)]:
        shown = ", ".join(name[:_SHORT] for name in silent[:3]) + (", …" if len(silent) > 3 else "")
        text = f"{len(silent)} of {len(tools)} tools have arguments that are not described: {shown}"
        yield Finding("note", "no-argument-description", text, server)
    for name, count in Counter(one.name.lower() for one in tools).items():
        if count > 1:
            yield Finding("warning", "name-clash", f"{count} of its tools differ only in case: {name[:_SHORT]}", server)


def clashes(offered: Iterable[Owned]) -> Iterator[Finding]:
    """Tools whose public names in OpenCode's way of naming would be the same, and which are told apart by a mark."""
    by_name: dict[str, list[Owned]] = {}
    for one in offered:
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{one.owner}_{one.name}")
        by_name.setdefault(plain, []).append(one)
    for plain, same in by_name.items():
        if len(same) > 1:
            names = public_names(same, Style(separator="_"))
            told = ", ".join(sorted(f"{one.owner}/{one.name} as {public}" for public, one in names.items()))
            yield Finding("warning", "name-clash", f"{plain!r} would be the name of several; they are shown: {told}")


def _of_tool(server: str, entry: Entry) -> Iterator[tuple[Level, str, str]]:
    public = face_name(server, entry.name)
    if len(f"{server}__{entry.name}") > LONGEST:
        yield "warning", "name-too-long", f"with its server's it has more than {LONGEST} characters: shown as {public}"
    elif not _FIT.fullmatch(entry.name):
        yield "warning", "name-characters", f"it has characters that clients do not take: shown as {public}"
    try:
        told = msgspec.json.decode(entry.raw, type=_Definition)
    except (msgspec.DecodeError, RecursionError):
        yield "error", "unreadable", "its definition cannot be read"
        return
    if not isinstance(told.description, str) or not told.description.strip():
        yield "warning", "no-description", "it has no description: a model can only guess what it is for"
    yield from _of_input(told.inputSchema)
    for what, schema in (("inputSchema", told.inputSchema), ("outputSchema", told.outputSchema)):
        yield from _of_references(what, schema)


def _of_input(schema: Any) -> Iterator[tuple[Level, str, str]]:
    if not isinstance(schema, dict):
        yield "error", "no-schema", "it has no inputSchema that is an object: clients refuse such a list"
        return
    members = cast(dict[str, Any], schema)
    if members.get("type") != "object":
        yield "error", "schema-type", 'its inputSchema has not the type "object": clients refuse such a list'
    properties: Any = members.get("properties", {})
    if not isinstance(properties, dict):
        yield "error", "schema-properties", "the properties of its inputSchema are no object"
        return
    named = cast(dict[str, Any], properties)
    required: Any = members.get("required", [])
    listed = cast(list[Any], required) if isinstance(required, list) else []
    unknown = [one for one in listed if not isinstance(one, str) or one not in named]
    if unknown and members.get("additionalProperties") is False:
        yield "error", "schema-required", f"it requires an argument that it does not take: {str(unknown[0])[:_SHORT]}"


def _is_silent(entry: Entry) -> bool:
    try:
        schema: Any = msgspec.json.decode(entry.raw, type=_Definition).inputSchema
    except (msgspec.DecodeError, RecursionError):
        return False
    properties: Any = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    named = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
    return not all(map(_is_described, named.values()))


def _is_described(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.keys() & {"description", "title", "$ref"})  # pyright: ignore[reportUnknownArgumentType]


def _of_references(what: str, schema: Any) -> Iterator[tuple[Level, str, str]]:
    """Each `$ref` leads to a place in the same schema, or nowhere: none is fetched, from wherever it may be."""
    anchors, references, whole = _walked(schema)
    for reference in sorted(references):
        shown = reference[:_SHORT]
        if not reference.startswith("#"):
            yield "error", "ref-elsewhere", f"its {what} refers to {shown!r}, which is never fetched"
        elif reference.startswith("#/") or reference == "#":
            if not _leads(schema, reference):
                yield "error", "ref-unresolvable", f"its {what} refers to {shown!r}, which is not there"
        elif reference[1:] not in anchors:
            yield "error", "ref-unresolvable", f"its {what} refers to {shown!r}, which is not there"
    if not whole:
        yield "error", "schema-too-large", f"its {what} has more than {_MOST_NODES} parts, or more than {_DEEPEST} deep"


def _walked(schema: Any) -> tuple[set[str], set[str], bool]:
    """The anchors and references in a schema, and whether all of it was looked at."""
    anchors: set[str] = set()
    references: set[str] = set()
    nodes, left = 0, [(schema, 0, True)]
    while left:
        part, depth, is_schema = left.pop()
        nodes += 1
        if nodes > _MOST_NODES or depth > _DEEPEST:
            return anchors, references, False
        if isinstance(part, list):
            left += [(one, depth + 1, is_schema) for one in cast(list[Any], part)]
        elif isinstance(part, dict):
            members = cast(dict[str, Any], part)
            if is_schema:
                references |= {one for key in ("$ref", "$dynamicRef") if isinstance(one := members.get(key), str)}
                anchors |= {one for key in ("$anchor", "$dynamicAnchor") if isinstance(one := members.get(key), str)}
            inside = [(key, one) for key, one in members.items() if not (is_schema and key in _DATA)]
            left += [(one, depth + 1, not (is_schema and key in _NAMED)) for key, one in inside]
    return anchors, references, True


def _leads(schema: Any, reference: str) -> bool:
    found = schema
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = cast(Mapping[str, Any], found)[name]
        elif isinstance(found, list) and _PLACE.fullmatch(name) and int(name) < len(cast(list[Any], found)):
            found = cast(list[Any], found)[int(name)]
        else:
            return False
    return True
