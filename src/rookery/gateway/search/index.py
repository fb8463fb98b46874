"""Finds the tools that a question in plain words is about. Pure: definitions go in, names come out."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec

from rookery.gateway.searching_thesaurus import alike, spelled_out
from rookery.gateway.searching_words import words

# By where a word stands: how much it counts there, and how much the length of the place takes away from that.
_PLACES = {
    "name": (3.0, 0.5),
    "server": (2.5, 0.0),
    "description": (1.0, 0.6),
    "argument": (0.2, 0.6),
    "about": (0.1, 0.8),
}
# How soon a word that is repeated says no more.
_ENOUGH = 2.0
# What a word counts that is only like the one that was asked for, or only begins like it.
_LIKE, _BEGINS = 0.5, 0.7
_SHORTEST_BEGINNING = 4
# A description may be a book; what a tool is for stands at its beginning.
_LONGEST_TEXT = 2048
_MOST_ARGUMENTS = 100

Words = Mapping[str, Mapping[str, int]]


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
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        read = [_words_of(one.server, one.name, one.definition) for one in tools]
        for place, (counts, shorter) in _PLACES.items():
            lengths = [sum(one[place].values()) for one in read]
            usual = (sum(lengths) / len(lengths) if lengths else 0) or 1.0
            for number, (one, length) in enumerate(zip(read, lengths, strict=True)):
                each = counts / (1 - shorter + shorter * length / usual)
                for word, times in one[place].items():
                    postings = self._postings[word]
                    postings[number] = postings.get(number, 0.0) + each * times
        self._vocabulary = sorted(self._postings)

    def find(self, query: str, limit: int) -> list[str]:
        """The public names that fit best, the best first; none that has no word in common with the question."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words(spelled_out(query))):
            best: dict[int, float] = {}
            for other, surely in self._meant(word):
                rare = surely * self._rareness(other)
                for number, weight in self._postings[other].items():
                    best[number] = max(best.get(number, 0.0), rare * weight / (weight + _ENOUGH))
            for number, score in best.items():
                scores[number] += score
        ranked = sorted(scores, key=lambda number: (-scores[number], self._publics[number]))
        return [self._publics[number] for number in ranked[:limit]]

    def _meant(self, word: str) -> Iterator[tuple[str, float]]:
        """The words of the tools that one of the question may stand for, and how surely."""
        if word in self._postings:
            yield word, 1.0
        for other in alike().get(word, ()):
            if other in self._postings:
                yield other, _LIKE
        if len(word) >= _SHORTEST_BEGINNING:
            for at in range(bisect_left(self._vocabulary, word), len(self._vocabulary)):
                if not self._vocabulary[at].startswith(word):
                    break
                yield self._vocabulary[at], _BEGINS
            for end in range(max(_SHORTEST_BEGINNING, len(word) - 3), len(word)):
                if word[:end] in self._postings:
                    yield word[:end], _BEGINS

    def _rareness(self, word: str) -> float:
        having = len(self._postings[word])
        return math.log(1 + (len(self._publics) - having + 0.5) / (having + 0.5))


class _Definition(msgspec.Struct):
    title: Any = None
    description: Any = None
    inputSchema: Any = None


@lru_cache(maxsize=8192)
def _words_of(server: str, name: str, definition: bytes) -> Words:
    """How often each word stands in each place of a definition."""
    try:
        told = msgspec.json.decode(definition, type=_Definition)
    except (msgspec.DecodeError, RecursionError):
        told = _Definition()  # one that cannot be read keeps nobody from finding the others, and has a name
    arguments = dict(_arguments(told.inputSchema))
    texts = {
        "name": [name],
        "server": [server],
        "description": [told.title, told.description],
        "argument": list(arguments),
        "about": list(arguments.values()),
    }
    return {place: _counted(given) for place, given in texts.items()}


def _counted(texts: Sequence[Any]) -> Mapping[str, int]:
    return Counter(word for text in texts if isinstance(text, str) for word in words(text[:_LONGEST_TEXT]))


def _arguments(schema: Any) -> Iterator[tuple[str, Any]]:
    properties = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        for name, said in list(cast(dict[str, Any], properties).items())[:_MOST_ARGUMENTS]:
            yield name, cast(dict[str, Any], said).get("description") if isinstance(said, dict) else None
