"""Finds the tools that a question in plain words is about. Pure: what goes in is definitions, what comes out is names."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec

from rookery.gateway.searching_words import words

# How much a word counts where it stands, and how much the length of what it stands in takes away from that.
_NAME, _SERVER, _DESCRIPTION, _ARGUMENT, _ABOUT_ARGUMENT = 3.0, 1.0, 1.0, 0.5, 0.25
_SHORTER_IS_BETTER = 0.75
# How soon a word that is repeated says no more.
_ENOUGH = 1.2
# A description may be a book; what a tool is for stands at its beginning.
_LONGEST_TEXT = 4096
_MOST_ARGUMENTS = 100


@dataclass(frozen=True)
class Listed:
    """One tool, as it is looked for. `definition` is the JSON of what its server says of it."""

    public: str
    server: str
    name: str
    definition: bytes


class Index:
    """The tools of one view at one moment; those that were there before are not read again."""

    def __init__(self, tools: Sequence[Listed]) -> None:
        self._publics = [one.public for one in tools]
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        weights = [_weights(one.server, one.name, one.definition) for one in tools]
        lengths = [sum(one.values()) for one in weights]
        usual = sum(lengths) / len(lengths) if lengths else 1.0
        for number, (found, length) in enumerate(zip(weights, lengths, strict=True)):
            room = _ENOUGH * (1 - _SHORTER_IS_BETTER + _SHORTER_IS_BETTER * length / (usual or 1.0))
            for word, weight in found.items():
                self._postings[word].append((number, weight * (_ENOUGH + 1) / (weight + room)))

    def find(self, query: str, limit: int) -> list[str]:
        """The public names that fit best, the best first; none that has no word in common with the question."""
        scores: dict[int, float] = defaultdict(float)
        for word, count in Counter(words(query)).items():
            for number, weight in self._postings.get(word, ()):
                scores[number] += count * weight * self._rareness(word)
        best = sorted(scores, key=lambda number: (-scores[number], self._publics[number]))
        return [self._publics[number] for number in best[:limit]]

    def _rareness(self, word: str) -> float:
        having = len(self._postings[word])
        return math.log(1 + (len(self._publics) - having + 0.5) / (having + 0.5))


class _Definition(msgspec.Struct):
    title: Any = None
    description: Any = None
    inputSchema: Any = None


@lru_cache(maxsize=8192)
def _weights(server: str, name: str, definition: bytes) -> Mapping[str, float]:
    """The words of a tool, and how much each of them says of it."""
    told = msgspec.json.decode(definition, type=_Definition)
    found: Counter[str] = Counter()
    _count(found, name, _NAME)
    _count(found, server, _SERVER)
    _count(found, told.title, _DESCRIPTION)
    _count(found, told.description, _DESCRIPTION)
    for argument, about in _arguments(told.inputSchema):
        _count(found, argument, _ARGUMENT)
        _count(found, about, _ABOUT_ARGUMENT)
    return found


def _count(found: Counter[str], text: Any, weight: float) -> None:
    if isinstance(text, str):
        for word in words(text[:_LONGEST_TEXT]):
            found[word] += weight  # pyright: ignore[reportArgumentType] - a Counter counts in any numbers


def _arguments(schema: Any) -> Iterable[tuple[str, Any]]:
    properties = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        for name, said in list(cast(dict[str, Any], properties).items())[:_MOST_ARGUMENTS]:
            yield name, cast(dict[str, Any], said).get("description") if isinstance(said, dict) else None
