"""The words of a text as a search compares them: split, stemmed, without stop words, with synonyms.

The synonyms are in `thesaurus.txt`, which is read on first use.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path

_WORD = re.compile(r"[^\W\d_]+|[0-9]+")
# Where one word of a name ends and the next begins, as in `readTextFile` and `HTTPRequest`.
_CASE_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Words that occur in every question and every description.
_STOP_WORDS = frozenset(
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
_MAX_WORD_LENGTH = 64

# Phrases and abbreviations, and the words that replace them.
_PHRASE_REPLACEMENTS = {
    "api": "api endpoint",
    "app": "application app",
    "ci": "ci check status build",
    "config": "configuration config",
    "db": "database",
    "dir": "directory",
    "docs": "documentation",
    "env": "environment",
    "get rid of": "delete",
    "go to": "navigate",
    "how big": "size",
    "how long": "duration time",
    "how many": "count number",
    "how much": "amount size",
    "js": "javascript",
    "k8s": "kubernetes",
    "log in": "login",
    "log out": "logout",
    "look at": "view",
    "look for": "search",
    "look up": "search",
    "mr": "merge request",
    "ocr": "text image recognize",
    "pic": "picture",
    "popup": "dialog",
    "pr": "pull request",
    "prs": "pull requests",
    "repo": "repository",
    "repos": "repositories",
    "set up": "create",
    "sign in": "login",
    "sign up": "register",
    "step by step": "sequential steps",
    "take out": "remove",
    "todo": "task",
    "ts": "typescript",
    "up to date": "update latest",
    "who wrote": "author",
}
_PHRASES = re.compile(
    rf"\b({'|'.join(sorted(map(re.escape, _PHRASE_REPLACEMENTS), key=len, reverse=True))})\b", re.IGNORECASE
)


def split_words(text: str) -> Iterator[str]:
    """Return the stems of the words in a text, in their order."""
    return chain.from_iterable(map(_stems, _WORD.findall(text)))


@lru_cache(maxsize=65_536)
def _stems(word: str) -> tuple[str, ...]:
    """Return the stems of one word, or of each word of a name. Cached, since the same few thousand words recur."""
    parts = [part.lower()[:_MAX_WORD_LENGTH] for part in _CASE_BOUNDARY.split(word)]
    return tuple(stem(part) for part in parts if part not in _STOP_WORDS)


def stem(word: str) -> str:
    """Return the word without its grammatical ending, so that `files`, `filed` and `filing` are one word."""
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


_FILE = Path(__file__).with_name("thesaurus.txt")


def expand_phrases(question: str) -> str:
    """Replace phrases and abbreviations in a question with the words that descriptions use."""
    return _PHRASES.sub(lambda match: _PHRASE_REPLACEMENTS[match[0].lower()], question)


@lru_cache(maxsize=1)
def load_synonyms() -> Mapping[str, frozenset[str]]:
    """Return the stems of the synonyms of each stem. The file is read on first use."""
    synonyms: dict[str, set[str]] = defaultdict(set)
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        group = {stem(word) for word in line.split()} if not line.startswith("#") else set[str]()
        for word in group:
            synonyms[word] |= group - {word}
    return {word: frozenset(others) for word, others in synonyms.items()}
