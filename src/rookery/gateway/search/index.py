"""Find the tools that a question in plain words is about, by their definitions. Has no side effects."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import msgspec

from rookery.gateway.search.words import expand_phrases, load_synonyms, split_words

# By field of a definition: the weight of a word, and how much the length of the field reduces it.
_FIELD_WEIGHTS = {
    "name": (3.0, 0.5),
    "server": (2.5, 0.0),
    "description": (1.0, 0.6),
    "argument": (0.2, 0.6),
    "about": (0.1, 0.8),
}
# How soon the repetition of a word stops adding to the score.
_SATURATION = 2.0
# The weight of a synonym of the requested word, and of a word with the same beginning.
_SYNONYM_WEIGHT = 0.5
_PREFIX_WEIGHT = 0.7
_MIN_PREFIX_LENGTH = 4
# A description may be very long; its beginning says what the tool is for.
_MAX_TEXT_LENGTH = 2048
_MAX_ARGUMENTS = 100

Words = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class IndexedTool:
    """One tool of the index. `definition` is its definition as JSON."""

    public: str
    server: str
    name: str
    definition: bytes


class ToolIndex:
    """The tools of one view at one moment. Definitions that were indexed before are not parsed again."""

    def __init__(self, tools: Sequence[IndexedTool]) -> None:
        self._publics = [tool.public for tool in tools]
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        words_by_tool = [_count_words_by_field(tool.server, tool.name, tool.definition) for tool in tools]
        for field, (weight, length_penalty) in _FIELD_WEIGHTS.items():
            lengths = [sum(words[field].values()) for words in words_by_tool]
            average = (sum(lengths) / len(lengths) if lengths else 0) or 1.0
            for number, (words, length) in enumerate(zip(words_by_tool, lengths, strict=True)):
                word_weight = weight / (1 - length_penalty + length_penalty * length / average)
                for word, count in words[field].items():
                    postings = self._postings[word]
                    postings[number] = postings.get(number, 0.0) + word_weight * count
        self._vocabulary = sorted(self._postings)

    def find(self, query: str, limit: int) -> list[str]:
        """Return the public names of the best matches, best first. Each has a word in common with the question."""
        scores: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(split_words(expand_phrases(query))):
            best: dict[int, float] = {}
            for term, similarity in self._expand(word):
                term_weight = similarity * self._inverse_frequency(term)
                for number, weight in self._postings[term].items():
                    best[number] = max(best.get(number, 0.0), term_weight * weight / (weight + _SATURATION))
            for number, score in best.items():
                scores[number] += score
        ranked = sorted(scores, key=lambda number: (-scores[number], self._publics[number]))
        return [self._publics[number] for number in ranked[:limit]]

    def _expand(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the words of the index that a word of the question may stand for, with their similarity."""
        if word in self._postings:
            yield word, 1.0
        for synonym in load_synonyms().get(word, ()):
            if synonym in self._postings:
                yield synonym, _SYNONYM_WEIGHT
        if len(word) >= _MIN_PREFIX_LENGTH:
            for at in range(bisect_left(self._vocabulary, word), len(self._vocabulary)):
                if not self._vocabulary[at].startswith(word):
                    break
                yield self._vocabulary[at], _PREFIX_WEIGHT
            for end in range(max(_MIN_PREFIX_LENGTH, len(word) - 3), len(word)):
                if word[:end] in self._postings:
                    yield word[:end], _PREFIX_WEIGHT

    def _inverse_frequency(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        count = len(self._postings[word])
        return math.log(1 + (len(self._publics) - count + 0.5) / (count + 0.5))


class _Definition(msgspec.Struct):
    title: Any = None
    description: Any = None
    inputSchema: Any = None


@lru_cache(maxsize=8192)
def _count_words_by_field(server: str, name: str, definition: bytes) -> Words:
    """Return how often each word occurs in each field of a definition."""
    try:
        decoded = msgspec.json.decode(definition, type=_Definition)
    except (msgspec.DecodeError, RecursionError):
        decoded = _Definition()  # an unreadable definition is still found by its name, and does not affect others
    arguments = dict(_arguments(decoded.inputSchema))
    texts = {
        "name": [name],
        "server": [server],
        "description": [decoded.title, decoded.description],
        "argument": list(arguments),
        "about": list(arguments.values()),
    }
    return {field: _count_words(values) for field, values in texts.items()}


def _count_words(texts: Sequence[Any]) -> Mapping[str, int]:
    return Counter(word for text in texts if isinstance(text, str) for word in split_words(text[:_MAX_TEXT_LENGTH]))


def _arguments(schema: Any) -> Iterator[tuple[str, Any]]:
    properties = cast(dict[str, Any], schema).get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        for name, property_schema in list(cast(dict[str, Any], properties).items())[:_MAX_ARGUMENTS]:
            yield (
                name,
                cast(dict[str, Any], property_schema).get("description") if isinstance(property_schema, dict) else None,
            )
