"""What one provider offers, kept as the bytes it came in."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

Kind = Literal["tools", "prompts", "resources", "templates"]

# By kind: the method that lists it, the key of the list in the result, and the member by which an item is known.
LISTS: Mapping[Kind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "name"),
    "prompts": ("prompts/list", "prompts", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
}
CAPABILITY: Mapping[Kind, str] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}

_LONGEST_NAME = 1024
_object = msgspec.json.Decoder(dict[str, Raw])
_text = msgspec.json.Decoder(str)


class Entry(msgspec.Struct, frozen=True):
    """One definition. `name` is what its provider knows it by, a URI where it is a resource."""

    name: str
    raw: Raw

    def renamed(self, kind: Kind, name: str) -> bytes:
        """The same definition under another name; everything else stays as it came."""
        if name == self.name:
            return bytes(self.raw)
        members: dict[str, Any] = dict(_object.decode(self.raw))
        members[LISTS[kind][2]] = name
        return msgspec.json.encode(members)


class Catalog(msgspec.Struct, frozen=True):
    """Everything that a provider offers, and what it says of itself."""

    tools: Sequence[Entry] = ()
    prompts: Sequence[Entry] = ()
    resources: Sequence[Entry] = ()
    templates: Sequence[Entry] = ()
    capabilities: Mapping[str, Any] = {}
    info: Mapping[str, Any] = {}
    instructions: str | None = None
    # For how many seconds a list may be kept; what its server tells changes of is kept until it does.
    lives: Mapping[Kind, float] = {}

    def of(self, kind: Kind) -> Sequence[Entry]:
        return getattr(self, kind)


def entries(kind: Kind, listed: Sequence[Raw]) -> tuple[list[Entry], list[str]]:
    """The definitions of a list, each name once, and what was left out for which reason."""
    found: dict[str, Entry] = {}
    problems: list[str] = []
    key = LISTS[kind][2]
    for raw in listed:
        try:
            name = _text.decode(_object.decode(raw)[key])
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError):
            problems.append(f"one of {kind} has no {key}")
            continue
        if not name or len(name) > _LONGEST_NAME:
            problems.append(f"one of {kind} has a {key} of {len(name)} characters")
        elif name in found:
            problems.append(f"{kind} has {name!r} twice; the first counts")
        else:
            found[name] = Entry(name, Raw(bytes(raw)))
    return list(found.values()), problems
