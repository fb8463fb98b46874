"""The canonical form of a definition, and its digest: what a pin records.

A definition is a whole object as a server lists it (a tool, prompt, resource template or skill), or the text of its
instructions. Two spellings with the same canonical form cannot mean different things to a model: the order of the keys
of objects, white space between tokens, escapes in strings and the order of the audience in annotations do not count.
Everything else does, unknown members included: `1` and `1.0` differ, as do lists in another order, and a key that
occurs twice counts twice, because parsers disagree about which one they read.

- `compute_digest(definition)` returns `sha256:<64 hexadecimal digits>` of a definition: the bytes of a JSON object,
  or the text of instructions.
- `canonicalize(definition)` returns the bytes that are hashed.
- `list_definitions(catalog)` yields each `PinnedDefinition` of a server's catalog, as it is served.
- `hash_definitions(catalog)` returns the digest of each, by `DefinitionKey`: kind and name.

Nothing here stores or compares pins.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from rookery.gateway.provider import Catalog, Kind

PinKind = Literal["tool", "prompt", "template", "instructions", "skill"]

# Kinds of lists whose entries are pinned. Resources are data, and come and go.
PINNED_LISTS: Mapping[Kind, PinKind] = {"tools": "tool", "prompts": "prompt", "templates": "template"}
# Skills are listed among the resources, by URIs of their own.
SKILL_SCHEME = "skill://"
_DIGEST_PREFIX = "sha256:"


class DefinitionKey(NamedTuple):
    """What identifies a definition within one server. The instructions of a server have no name."""

    kind: PinKind
    name: str


class PinnedDefinition(NamedTuple):
    """One definition of a server, as the bytes that are served; instructions as their UTF-8 text in JSON."""

    key: DefinitionKey
    content: bytes


class _Number(str):
    """A number as it is spelled."""


class _Members(tuple[tuple[str, Any], ...]):
    """The members of an object, sorted by key. Those of one key keep their order."""


def canonicalize(definition: bytes | str) -> bytes:
    """Return the canonical form of a JSON object, or of a text.

    What is no JSON in UTF-8 has itself as its form, after a byte that no JSON begins with.
    """
    if isinstance(definition, str):
        return json.dumps(definition).encode()
    try:
        value = json.loads(
            definition.decode(),
            object_pairs_hook=_sort_members,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
        )
        return _encode(_sort_audience(value)).encode()
    except (ValueError, RecursionError):
        return b"\0" + definition


def compute_digest(definition: bytes | str) -> str:
    """Return the SHA-256 of the canonical form."""
    return _DIGEST_PREFIX + hashlib.sha256(canonicalize(definition)).hexdigest()


def list_definitions(catalog: Catalog) -> Iterator[PinnedDefinition]:
    """Yield every definition of a catalog that is pinned."""
    for listed, kind in PINNED_LISTS.items():
        for entry in catalog.entries(listed):
            yield PinnedDefinition(DefinitionKey(kind, entry.name), bytes(entry.raw))
    for entry in catalog.resources:
        if entry.name.startswith(SKILL_SCHEME):
            yield PinnedDefinition(DefinitionKey("skill", entry.name), bytes(entry.raw))
    if catalog.instructions:
        yield PinnedDefinition(DefinitionKey("instructions", ""), json.dumps(catalog.instructions).encode())


def hash_definitions(catalog: Catalog) -> dict[DefinitionKey, str]:
    """Return the digest of each definition of a catalog."""
    return {definition.key: compute_digest(definition.content) for definition in list_definitions(catalog)}


def _sort_members(pairs: list[tuple[str, Any]]) -> _Members:
    return _Members(sorted(pairs, key=_get_key))


def _get_key(pair: tuple[str, Any]) -> str:
    return pair[0]


def _sort_audience(value: Any) -> Any:
    """Return a definition with the audience of its annotations sorted: it is a set, spelled as a list."""
    if not isinstance(value, _Members):
        return value
    return _Members((key, _map_audience(member) if key == "annotations" else member) for key, member in value)


def _map_audience(annotations: Any) -> Any:
    if not isinstance(annotations, _Members):
        return annotations
    return _Members(
        (key, sorted(cast(list[str], member)) if key == "audience" and _is_text_list(member) else member)
        for key, member in annotations
    )


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is str for item in cast(list[Any], value))


def _encode(value: Any) -> str:
    if isinstance(value, _Members):
        return "{" + ",".join(f"{json.dumps(key)}:{_encode(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encode, cast(list[Any], value))) + "]"
    return value if isinstance(value, _Number) else json.dumps(value)
