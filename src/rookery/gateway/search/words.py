"""The words of a text as a search compares them: names taken apart, endings cut off, and what says nothing left out."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

_WORD = re.compile(r"[^\W\d_]+|[0-9]+")
# Where one word of a name ends and the next begins, as in `readTextFile` and `HTTPRequest`.
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Words that stand in every question and every description.
_SILENT = frozenset(
    [
        "a",
        "about",
        "all",
        "also",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "being",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "doing",
        "for",
        "from",
        "had",
        "has",
        "have",
        "here",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "please",
        "should",
        "so",
        "some",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "us",
        "use",
        "used",
        "using",
        "want",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
_LONGEST = 64


def words(text: str) -> Iterator[str]:
    """The stems of what a text says, in its order."""
    return chain.from_iterable(map(_stems, _WORD.findall(text)))


@lru_cache(maxsize=65_536)
def _stems(found: str) -> tuple[str, ...]:
    """Of one word, or of each word of a name; the same few thousand come again and again."""
    parts = [part.lower()[:_LONGEST] for part in _HUMP.split(found)]
    return tuple(stem(part) for part in parts if part not in _SILENT)


def stem(word: str) -> str:
    """The word without the ending that only grammar wants, so that `files`, `filed` and `filing` are one word."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and _has_vowel(word[: -len(ending)]):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _has_vowel(word: str) -> bool:
    return any(letter in "aeiouy" for letter in word)
