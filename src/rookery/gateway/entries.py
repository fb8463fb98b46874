"""The definitions that a server lists: each is taken as it is, repaired where its meaning is plain, or left out.

Clients with strict parsers refuse a whole list for one definition that is malformed. A well-formed definition is kept
byte for byte. Of a malformed one, optional members that are not valid are removed, and a few common mistakes are
corrected. What a parser of the official SDKs would still refuse is left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from rookery.gateway.provider import LISTS, CatalogEntry, Kind

_MAX_NAME_LENGTH = 1024
# Parsers end at a depth of 200, counted from the beginning of the message.
_MAX_DEPTH = 150
_SHOWN_LENGTH = 100

_Object = dict[str, Raw]
_Texts = list[str]
_Uri = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9+.\-]*:")]
_Time = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")]


class _Icon(msgspec.Struct):
    src: str
    mimeType: str | UnsetType = UNSET
    sizes: _Texts | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class _Definition(msgspec.Struct):
    """The members that all kinds of definitions have. `msgspec` refuses a null where a value may only be missing."""

    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    icons: list[_Icon] | UnsetType = UNSET
    meta: _Object | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _ObjectSchema(msgspec.Struct):
    type: Literal["object"]
    properties: dict[str, _Object] | UnsetType = UNSET
    required: _Texts | UnsetType = UNSET


class _Hints(msgspec.Struct):
    title: str | UnsetType = UNSET
    readOnlyHint: bool | UnsetType = UNSET
    destructiveHint: bool | UnsetType = UNSET
    idempotentHint: bool | UnsetType = UNSET
    openWorldHint: bool | UnsetType = UNSET


class _Execution(msgspec.Struct):
    taskSupport: Literal["required", "optional", "forbidden"] | UnsetType = UNSET


class _Tool(_Definition, kw_only=True):
    name: str
    inputSchema: _ObjectSchema
    outputSchema: _Object | UnsetType = UNSET
    annotations: _Hints | UnsetType = UNSET
    execution: _Execution | UnsetType = UNSET


class _Argument(msgspec.Struct):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class _Prompt(_Definition, kw_only=True):
    name: str
    arguments: list[_Argument] | UnsetType = UNSET


class _Annotations(msgspec.Struct):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    lastModified: _Time | UnsetType = UNSET


class _Template(_Definition, kw_only=True):
    uriTemplate: str
    name: str
    mimeType: str | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Resource(_Definition, kw_only=True):
    uri: _Uri
    name: str
    mimeType: str | UnsetType = UNSET
    size: int | float | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


_TYPES: Mapping[Kind, type[msgspec.Struct]] = {
    "tools": _Tool,
    "prompts": _Prompt,
    "resources": _Resource,
    "templates": _Template,
}
_DECODERS: Mapping[Kind, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(struct) for kind, struct in _TYPES.items()
}
T = TypeVar("T")
_object = msgspec.json.Decoder(_Object)
_text = msgspec.json.Decoder(str)
_WRONG = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AcceptedEntries(NamedTuple):
    """The definitions of a list that are served, each name once, and what was repaired or left out."""

    entries: list[CatalogEntry]
    problems: list[str]


def read_entries(kind: Kind, listed: Sequence[Raw]) -> AcceptedEntries:
    """Return the definitions of a list that clients can read, and a description of each problem."""
    entries: dict[str, CatalogEntry] = {}
    problems: list[str] = []
    key = LISTS[kind][2]
    for raw in listed:
        try:
            name = _text.decode(_object.decode(raw)[key])
        except (*_WRONG, KeyError):
            problems.append(f"an entry of {kind} has no {key}, and is left out")
            continue
        what = f"{kind[:-1]} {name[:_SHOWN_LENGTH]!r}"
        if not name or len(name) > _MAX_NAME_LENGTH:
            problems.append(f"an entry of {kind} has a {key} of {len(name)} characters, and is left out")
        elif name in entries:
            problems.append(f"{kind} contains {name[:_SHOWN_LENGTH]!r} twice; the first one is used")
        elif _is_too_deep(raw):
            problems.append(f"{what} is left out: it is nested deeper than {_MAX_DEPTH} levels")
        elif _is_well_formed(kind, raw):
            entries[name] = _make_entry(kind, name, bytes(raw))
        else:
            definition, found = _repair(_TYPES[kind], _object.decode(raw))
            problems += [f"{what} {problem}" for problem in found]
            if definition is not None:
                entries[name] = _make_entry(kind, name, definition)
    return AcceptedEntries(list(entries.values()), problems)


def _is_well_formed(kind: Kind, raw: Raw) -> bool:
    try:
        _DECODERS[kind].decode(raw)
    except _WRONG:
        return False
    return True


def _make_entry(kind: Kind, name: str, definition: bytes) -> CatalogEntry:
    """Return the entry of a definition. Before 2026-07-28 results are objects, and so is each output schema."""
    if kind == "tools" and b'"outputSchema"' in definition:
        members = _object.decode(definition)
        if "outputSchema" in members and not _fits(members["outputSchema"], _ObjectSchema):
            del members["outputSchema"]
            return CatalogEntry(name, Raw(definition), Raw(msgspec.json.encode(members)))
    return CatalogEntry(name, Raw(definition))


def _is_too_deep(raw: Raw) -> bool:
    """Return whether a definition is nested deeper than parsers go. Brackets in texts are counted only if need be."""
    data = bytes(raw)
    if data.count(b"{") + data.count(b"[") <= _MAX_DEPTH:
        return False
    depth = deepest = 0
    in_text = escaped = False
    for byte in data:
        if in_text:
            escaped, in_text = byte == 0x5C and not escaped, byte != 0x22 or escaped
        elif byte == 0x22:
            in_text = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest > _MAX_DEPTH


def _repair(struct: type[msgspec.Struct], members: _Object) -> tuple[bytes | None, list[str]]:
    """Return a malformed definition as far as it is meant plainly, or None, and what was done."""
    problems: list[str] = []
    for member in msgspec.structs.fields(struct):
        key = member.encode_name
        if key in members and _fits(members[key], member.type):
            continue
        if key not in members and not member.required:
            continue
        corrected = _CORRECTIONS[key](members) if key in _CORRECTIONS else None
        if corrected is not None and _fits(corrected, member.type):
            verb = "is invalid, and is corrected" if key in members else "is missing, and is added"
            problems.append(f"is repaired: `{key}` {verb}")
            members[key] = corrected
        elif member.required or key == "arguments":
            problems.append(f"is left out: `{key}` is {'invalid' if key in members else 'missing'}")
            return None, problems
        else:
            problems.append(f"is repaired: `{key}` is invalid, and is removed")
            del members[key]
    return msgspec.json.encode(members), problems


def _fits(raw: Raw, type_: Any) -> bool:
    try:
        msgspec.json.decode(raw, type=type_)
    except _WRONG:
        return False
    return True


# Corrections: each returns a member as it was meant, from all members of the definition, or None.


def _correct_schema(members: _Object) -> Raw | None:
    """A tool without a schema takes no arguments, and arguments are always an object."""
    if _is_empty(members.get("inputSchema")):
        return Raw(b'{"type":"object"}')
    schema = _read_members(members["inputSchema"])
    if schema is None:
        return None
    if _is_empty(schema.get("type")) or _fits(schema["type"], list[str]):
        types = _read_list(schema.get("type"), str) or ["object"]
        if "object" in types:
            schema = {"type": Raw(b'"object"'), **{key: value for key, value in schema.items() if key != "type"}}
    if "properties" in schema:
        properties = _read_members(schema["properties"])
        if properties is not None:
            # A schema may be a boolean too, but some parsers take only objects.
            corrected = {key: _BOOLEAN_SCHEMAS.get(bytes(value), value) for key, value in properties.items()}
            schema["properties"] = Raw(msgspec.json.encode(corrected))
        elif _is_empty(schema["properties"]):
            # PHP writes an empty object as a list.
            del schema["properties"]
    if "required" in schema and bytes(schema["required"]) in (b"null", b"true", b"false"):
        # A boolean belongs to the schema of an argument, and says nothing here.
        del schema["required"]
    return Raw(msgspec.json.encode(schema))


_BOOLEAN_SCHEMAS: Mapping[bytes, Raw] = {b"true": Raw(b"{}"), b"false": Raw(b'{"not":{}}')}


def _correct_arguments(members: _Object) -> Raw | None:
    """A prompt without arguments has an empty list; members of an argument that are not valid are removed."""
    if _is_empty(members["arguments"]):
        return Raw(b"[]")
    arguments = _read_list(members["arguments"], Raw)
    if arguments is None:
        return None
    corrected: list[_Object] = []
    for argument in arguments:
        values = _read_members(argument)
        if values is None:
            return None
        if bytes(values.get("required", b"")) in (b'"true"', b'"false"'):
            values["required"] = Raw(bytes(values["required"])[1:-1])
        corrected.append(_drop_invalid(values, _Argument))
    return Raw(msgspec.json.encode(corrected))


def _correct_name(members: _Object) -> Raw | None:
    """A resource without a name is called by its URI."""
    return members.get("uri") or members.get("uriTemplate")


def _correct_annotations(members: _Object) -> Raw | None:
    annotations = _read_members(members["annotations"])
    struct = _Hints if "inputSchema" in members else _Annotations
    return Raw(msgspec.json.encode(_drop_invalid(annotations, struct))) if annotations is not None else None


_CORRECTIONS: Mapping[str, Callable[[_Object], Raw | None]] = {
    "inputSchema": _correct_schema,
    "arguments": _correct_arguments,
    "name": _correct_name,
    "annotations": _correct_annotations,
}


def _drop_invalid(members: _Object, struct: type[msgspec.Struct]) -> _Object:
    """Return an object without its optional members that are not valid."""
    types = {field.encode_name: field.type for field in msgspec.structs.fields(struct) if not field.required}
    return {key: value for key, value in members.items() if key not in types or _fits(value, types[key])}


def _is_empty(raw: Raw | None) -> bool:
    """Return whether a member is missing, null, or an empty list or object."""
    return raw is None or bytes(raw).translate(None, b" \t\r\n") in (b"null", b"[]", b"{}")


def _read_members(raw: Raw) -> _Object | None:
    try:
        return _object.decode(raw)
    except _WRONG:
        return None


def _read_list(raw: Raw | None, item: type[T]) -> list[T] | None:
    try:
        return msgspec.json.decode(raw, type=list[item]) if raw is not None else None
    except _WRONG:
        return None
