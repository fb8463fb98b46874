"""What people say, and what tools call it: words that a question and a description may use for the same thing."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rookery.gateway.searching_words import stem

_FILE = Path(__file__).with_name("thesaurus.txt")
# What is said in several words or for short, and the words that stand for it.
_SAID = {
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
_PHRASES = re.compile(rf"\b({'|'.join(sorted(map(re.escape, _SAID), key=len, reverse=True))})\b", re.IGNORECASE)


def spelled_out(question: str) -> str:
    """The question with what is said for short in the words that descriptions have."""
    return _PHRASES.sub(lambda found: _SAID[found[0].lower()], question)


@lru_cache(maxsize=1)
def alike() -> Mapping[str, frozenset[str]]:
    """By the stem of a word: the stems of those that may stand for it. Read when somebody first asks."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        group = {stem(word) for word in line.split()} if not line.startswith("#") else set[str]()
        for word in group:
            found[word] |= group - {word}
    return {word: frozenset(others) for word, others in found.items()}
