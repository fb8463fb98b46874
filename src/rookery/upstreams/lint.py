"""Faults in the tools that a server lists, found by reading their definitions. Nothing is ever fetched.

A toxic flow is a set of tools with which untrusted text can send private data out: one tool reads text of strangers,
one reads private data and one sends data. Each is harmless alone. The classification is a guess, made from words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import unquote

import msgspec

from rookery.gateway.names import MAX_LENGTH, NamingStyle, OwnedName, gateway_name, make_public_names
from rookery.gateway.provider import CatalogEntry

Severity = Literal["error", "warning", "note"]

# Limits of the check of a schema. A larger schema is reported, and not accepted.
_MAX_NODES = 20_000
_MAX_DEPTH = 64
_PORTABLE_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_SHOWN_LENGTH = 80
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
# Keywords whose value is an object of schemas, but not a schema itself.
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# Keywords whose value is data, which may look like a schema.
_DATA_KEYS = frozenset({"const", "enum", "default", "examples"})

_READ_WORDS = re.compile(
    r"get|read|list|search|find|fetch\w*|query|retrieve|show|view|open|browse|scrape|crawl|download|navigate"
)
_MAX_NAMES = 3
_MAX_DESCRIPTION = 2048


class Finding(msgspec.Struct, frozen=True):
    """One fault. `rule` is for machines, `text` for people. `server` and `tool` are None if it concerns several."""

    level: Severity
    rule: str
    text: str
    server: str | None = None
    tool: str | None = None


class _ToolSchemas(msgspec.Struct):
    description: Any = None
    inputSchema: Any = None
    outputSchema: Any = None


def lint_tools(server: str, tools: Sequence[CatalogEntry]) -> Iterator[Finding]:
    """Yield the findings about the tools of one server."""
    for entry in tools:
        for level, rule, text in _lint_tool(server, entry):
            yield Finding(level, rule, text, server, entry.name)
    if undescribed := [tool.name for tool in tools if _lacks_descriptions(tool)]:
        names = ", ".join(name[:_SHOWN_LENGTH] for name in undescribed[:3]) + (", …" if len(undescribed) > 3 else "")
        text = f"{len(undescribed)} of {len(tools)} tools have arguments that are not described: {names}"
        yield Finding("note", "no-argument-description", text, server)
    for name, count in Counter(tool.name.lower() for tool in tools).items():
        if count > 1:
            yield Finding(
                "warning", "name-clash", f"{count} of its tools differ only in case: {name[:_SHOWN_LENGTH]}", server
            )


def find_name_clashes(offered: Iterable[OwnedName]) -> Iterator[Finding]:
    """Yield tools whose public names would be equal in OpenCode's naming style, so that a hash is added to them."""
    by_name: dict[str, list[OwnedName]] = {}
    for tool in offered:
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{tool.owner}_{tool.name}")
        by_name.setdefault(plain, []).append(tool)
    for plain, tools in by_name.items():
        if len(tools) > 1:
            names = make_public_names(tools, NamingStyle(separator="_"))
            listing = ", ".join(sorted(f"{tool.owner}/{tool.name} as {public}" for public, tool in names.items()))
            yield Finding(
                "warning", "name-clash", f"{plain!r} would be the name of several tools; they are shown as: {listing}"
            )


def _lint_tool(server: str, entry: CatalogEntry) -> Iterator[tuple[Severity, str, str]]:
    public = gateway_name(server, entry.name)
    if len(f"{server}__{entry.name}") > MAX_LENGTH:
        yield (
            "warning",
            "name-too-long",
            f"its name with the server's is longer than {MAX_LENGTH} characters: shown as {public}",
        )
    elif not _PORTABLE_NAME.fullmatch(entry.name):
        yield "warning", "name-characters", f"its name contains characters that clients reject: shown as {public}"
    try:
        definition = msgspec.json.decode(entry.raw, type=_ToolSchemas)
    except (msgspec.DecodeError, RecursionError):
        yield "error", "unreadable", "its definition cannot be read"
        return
    if not isinstance(definition.description, str) or not definition.description.strip():
        yield "warning", "no-description", "it has no description: a model can only guess what it is for"
    yield from _lint_input_schema(definition.inputSchema)
    for what, schema in (("inputSchema", definition.inputSchema), ("outputSchema", definition.outputSchema)):
        yield from _lint_references(what, schema)


def _lint_input_schema(schema: Any) -> Iterator[tuple[Severity, str, str]]:
    if not isinstance(schema, dict):
        yield "error", "no-schema", "its inputSchema is not an object: clients refuse such a list"
        return
    members = cast(dict[str, Any], schema)
    if members.get("type") != "object":
        yield "error", "schema-type", 'its inputSchema does not have the type "object": clients refuse such a list'
    properties: Any = members.get("properties", {})
    if not isinstance(properties, dict):
        yield "error", "schema-properties", "the properties of its inputSchema are not an object"
        return
    arguments = cast(dict[str, Any], properties)
    required: Any = members.get("required", [])
    required_names = cast(list[Any], required) if isinstance(required, list) else []
    unknown = [name for name in required_names if not isinstance(name, str) or name not in arguments]
    if unknown and members.get("additionalProperties") is False:
        yield (
            "error",
            "schema-required",
            f"it requires an argument that it does not take: {str(unknown[0])[:_SHOWN_LENGTH]}",
        )


def _lacks_descriptions(entry: CatalogEntry) -> bool:
    try:
        schema: Any = msgspec.json.decode(entry.raw, type=_ToolSchemas).inputSchema
    except (msgspec.DecodeError, RecursionError):
        return False
    properties: Any = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    arguments = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
    return not all(map(_is_described, arguments.values()))


def _is_described(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.keys() & {"description", "title", "$ref"})  # pyright: ignore[reportUnknownArgumentType]


def _lint_references(what: str, schema: Any) -> Iterator[tuple[Severity, str, str]]:
    """Yield each `$ref` that does not resolve within the schema itself. No reference is ever fetched."""
    anchors, references, complete = _collect_references(schema)
    for reference in sorted(references):
        shortened = reference[:_SHOWN_LENGTH]
        if not reference.startswith("#"):
            yield "error", "ref-elsewhere", f"its {what} refers to {shortened!r}, which is never fetched"
        elif reference.startswith("#/") or reference == "#":
            if not _resolves(schema, reference):
                yield "error", "ref-unresolvable", f"its {what} refers to {shortened!r}, which does not exist"
        elif reference[1:] not in anchors:
            yield "error", "ref-unresolvable", f"its {what} refers to {shortened!r}, which does not exist"
    if not complete:
        yield (
            "error",
            "schema-too-large",
            f"its {what} has more than {_MAX_NODES} parts, or is nested deeper than {_MAX_DEPTH}",
        )


def _collect_references(schema: Any) -> tuple[set[str], set[str], bool]:
    """Return the anchors and references in a schema, and whether all of it was checked."""
    anchors: set[str] = set()
    references: set[str] = set()
    nodes = 0
    pending = [(schema, 0, True)]
    while pending:
        part, depth, is_schema = pending.pop()
        nodes += 1
        if nodes > _MAX_NODES or depth > _MAX_DEPTH:
            return anchors, references, False
        if isinstance(part, list):
            pending += [(value, depth + 1, is_schema) for value in cast(list[Any], part)]
        elif isinstance(part, dict):
            members = cast(dict[str, Any], part)
            if is_schema:
                references |= {value for key in ("$ref", "$dynamicRef") if isinstance(value := members.get(key), str)}
                anchors |= {
                    value for key in ("$anchor", "$dynamicAnchor") if isinstance(value := members.get(key), str)
                }
            inside = [(key, value) for key, value in members.items() if not (is_schema and key in _DATA_KEYS)]
            pending += [(value, depth + 1, not (is_schema and key in _SCHEMA_MAPS)) for key, value in inside]
    return anchors, references, True


def _resolves(schema: Any, reference: str) -> bool:
    node = schema
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and name in node:
            node = cast(Mapping[str, Any], node)[name]
        elif isinstance(node, list) and _INDEX.fullmatch(name) and int(name) < len(cast(list[Any], node)):
            node = cast(list[Any], node)[int(name)]
        else:
            return False
    return True


FlowRole = Literal["untrusted", "private", "sink"]

_ROLE_WORDS: dict[FlowRole, re.Pattern[str]] = {
    "untrusted": re.compile(
        r"web|url|https?|internet|browse\w*|navigate|crawl\w*|scrap\w+|website|issues?|pull.requests?|comments?"
        r"|e-?mails?|inbox|messages?|rss|feeds?|tweets?|reviews?|transcripts?|download"
    ),
    "private": re.compile(
        r"files?|director(?:y|ies)|folders?|database|sql|query|collections?|documents?|secrets?|credentials?|passwords?"
        r"|environment|env|private|memory|notes?|calendar|contacts?|repositor(?:y|ies)|e-?mails?|inbox|logs?|pages?"
    ),
    "sink": re.compile(
        r"send|post|publish|push|upload|e-?mails?|webhook|tweet|comment|create.issue|create.pull|merge|share|submit"
        r"|http.request|exec\w*|run|shell|command|apply|deploy|navigate|fill|click"
    ),
}


class _ToolAnnotations(msgspec.Struct):
    description: Any = None
    annotations: Any = None


def classify_tool(entry: CatalogEntry) -> frozenset[FlowRole]:
    """Guess the roles that a tool can play from its name and description, corrected by its `annotations`."""
    try:
        definition = msgspec.json.decode(entry.raw, type=_ToolAnnotations)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    annotations: Any = definition.annotations
    hints = cast(dict[str, Any], annotations if isinstance(annotations, dict) else {})
    description = definition.description if isinstance(definition.description, str) else ""
    first_sentence = description[:_MAX_DESCRIPTION].partition(". ")[0].partition("\n")[0]
    text = " ".join(
        re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", f"{entry.name} {first_sentence}").lower())
    )
    roles: set[FlowRole] = {role for role, words in _ROLE_WORDS.items() if re.search(rf"\b(?:{words.pattern})\b", text)}
    if not re.search(rf"\b(?:{_READ_WORDS.pattern})\b", text):
        roles -= {"untrusted", "private"}
    if hints.get("openWorldHint") is False:
        roles -= {"untrusted", "sink"}
    if hints.get("readOnlyHint") is True:
        roles.discard("sink")
    if hints.get("openWorldHint") is True and hints.get("readOnlyHint") is True:
        roles.add("untrusted")
    return frozenset(roles)


def find_toxic_flow(tools: Iterable[tuple[str, CatalogEntry]]) -> Finding | None:
    """Return a finding if the tools of one view, given by public name, play all three roles; else None."""
    names_by_role: dict[FlowRole, list[str]] = {"untrusted": [], "private": [], "sink": []}
    for public, entry in tools:
        for role in classify_tool(entry):
            names_by_role[role].append(public)
    if not all(names_by_role.values()):
        return None
    untrusted, private, sink = (_join_names(names_by_role[role]) for role in ("untrusted", "private", "sink"))
    text = (
        f"these tools together can read untrusted text ({untrusted}), read private data ({private}) and send data out "
        f"({sink}): untrusted text could make a model send private data out. This is a guess from names, first "
        "sentences and annotations; set tools that need not be available together to deny or ask"
    )
    return Finding("warning", "toxic-flow", text)


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")
