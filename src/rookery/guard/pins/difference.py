"""How a definition differs from the one that is pinned: field by field, word by word, with nothing invisible.

- `compare_definitions(old, new)` returns the fields that differ, each as parts that are kept, removed or added.
"""

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import msgspec

from rookery.system.text import escape_invisible

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
# Comparing more words takes too long, and nobody reads it: then the whole text counts as replaced.
_MOST_WORDS = 3_000
_MOST_FIELDS = 500


class DifferencePart(msgspec.Struct, frozen=True):
    """A piece of a text. Invisible and bidirectional characters in it are written as escapes."""

    change: Literal["same", "removed", "added"]
    text: str


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs: its path in the definition, and the parts of both texts."""

    place: str
    parts: Sequence[DifferencePart]


def compare_definitions(old: bytes | None, new: bytes) -> list[FieldDifference]:
    """Return the fields that differ; all of them if there is no old definition."""
    before = _flatten(old) if old is not None else {}
    after = _flatten(new)
    places = [*after, *(place for place in before if place not in after)]
    differences = [
        FieldDifference(escape_invisible(place), compare_words(before.get(place, ""), after.get(place, "")))
        for place in places
        if before.get(place) != after.get(place)
    ]
    if not differences and old is not None and old != new:
        # What JSON parsers make of both is the same, such as with a key that occurs twice.
        return [FieldDifference("", compare_words(_decode(old), _decode(new)))]
    if len(differences) > _MOST_FIELDS:
        more = f"{len(differences) - _MOST_FIELDS} more fields differ"
        return [*differences[:_MOST_FIELDS], FieldDifference("", [DifferencePart("same", more)])]
    return differences


def compare_words(old: str, new: str) -> list[DifferencePart]:
    """Return both texts in one: what is kept, removed and added, in whole words."""
    before = _WORDS.findall(old)
    after = _WORDS.findall(new)
    if len(before) > _MOST_WORDS or len(after) > _MOST_WORDS:
        return [part for part in (_part("removed", [old]), _part("added", [new])) if part.text]
    parts: list[DifferencePart] = []
    for change, start, end, new_start, new_end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        if change == "equal":
            parts.append(_part("same", before[start:end]))
            continue
        if end > start:
            parts.append(_part("removed", before[start:end]))
        if new_end > new_start:
            parts.append(_part("added", after[new_start:new_end]))
    return parts


def _part(change: Literal["same", "removed", "added"], words: Sequence[str]) -> DifferencePart:
    return DifferencePart(change, escape_invisible("".join(words)))


def _decode(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _flatten(content: bytes) -> dict[str, str]:
    """Return the values in a definition by their path; that of instructions is empty."""
    try:
        return dict(_walk("", json.loads(content.decode("utf-8", "surrogateescape"))))
    except (ValueError, RecursionError):
        return {"": _decode(content)}


def _walk(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, member in cast("dict[str, Any]", value).items():
            yield from _walk(f"{place}.{key}" if place else key, member)
    elif isinstance(value, list) and value:
        for number, item in enumerate(cast("list[Any]", value)):
            yield from _walk(f"{place}[{number}]", item)
    else:
        yield place, value if isinstance(value, str) else json.dumps(value)
