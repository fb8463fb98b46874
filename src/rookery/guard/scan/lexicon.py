"""The vocabulary of the scanner: which classes of concepts a word or phrase belongs to, and its grammatical form.

`concepts.txt` has the words. English verbs are stored in all their forms, so that "send" (a command), "sends" (a
description) and "sent" (a participle) can be told apart without a parser.
"""

import re
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple


class Concept:
    """The classes of concepts, as bits of a number.

    Those up to `GRANTED` are sections of `concepts.txt`; the others are kinds of tokens.
    """

    DISREGARD = 1 << 0
    RULES = 1 << 1
    GUIDANCE = 1 << 2
    PRIOR = 1 << 3
    SAFETY = 1 << 4
    SEND = 1 << 5
    READ = 1 << 6
    INCLUDE = 1 << 7
    TELL = 1 << 8
    SECRECY = 1 << 9
    CONCEAL = 1 << 10
    MODEL = 1 << 11
    YOU = 1 << 12
    USER = 1 << 13
    CONFIRM = 1 << 14
    WITHOUT = 1 << 15
    NOT = 1 << 16
    SECRET = 1 << 17
    PRIVATE = 1 << 18
    CONVERSATION = 1 << 19
    OUTSIDE = 1 << 20
    TOOL = 1 << 21
    OTHERS = 1 << 22
    INVOKE = 1 << 23
    CHANGE = 1 << 24
    OBEY = 1 << 25
    PERSONA = 1 << 26
    PRIORITY = 1 << 27
    URGENT = 1 << 28
    THREAT = 1 << 29
    COVER = 1 << 30
    ALSO = 1 << 31
    CONDITION = 1 << 32
    MODAL = 1 << 33
    EXAMPLE = 1 << 34
    KNOW = 1 << 35
    REPLY = 1 << 36
    DECEIVE = 1 << 37
    PROCEED = 1 << 38
    GRANTED = 1 << 39
    # Of tokens.
    BREAK = 1 << 40
    ADDRESS = 1 << 41
    PATH = 1 << 42
    IDENTIFIER = 1 << 43
    QUOTE = 1 << 44


class Form:
    """The form of an English verb, as bits of a number."""

    BASE = 1
    THIRD = 2
    PARTICIPLE = 4
    PAST = 8


class Entry(NamedTuple):
    """What is known of a word: its classes, its forms as a verb, and the phrases that start with it."""

    mask: int
    forms: int
    phrases: tuple[tuple[tuple[str, ...], int, int], ...] = ()


class Vocabulary:
    """The words of one or several languages."""

    def __init__(self) -> None:
        self.words: dict[str, tuple[int, int]] = {}
        self.phrases: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {}
        self.stems: dict[str, int] = {}
        self.parts: dict[str, int] = {}

    def add_word(self, text: str, mask: int, form: int = 0) -> None:
        first, *rest = text.split()
        if rest:
            phrases = self.phrases.setdefault(first, {})
            before = phrases.get(tuple(rest), (0, 0))
            phrases[tuple(rest)] = (before[0] | mask, before[1] | form)
        else:
            before = self.words.get(first, (0, 0))
            self.words[first] = (before[0] | mask, before[1] | form)

    def find(self, word: str) -> Entry:
        """Return what is known of a word, also by its stem."""
        mask, forms = self.words.get(word, (0, 0))
        if self.stems:
            for length in range(2, min(len(word), self._longest_stem) + 1):
                mask |= self.stems.get(word[:length], 0)
        if self.parts and word and ord(word[0]) > 0x2E7F:
            for part, concept in self.parts.items():
                if part in word:
                    mask |= concept
        phrases = self.phrases.get(word)
        if phrases is None:
            return Entry(mask, forms)
        ordered = sorted(phrases.items(), key=lambda item: -len(item[0]))
        return Entry(mask, forms, tuple((rest, found[0], found[1]) for rest, found in ordered))

    @cached_property
    def _longest_stem(self) -> int:
        return max(map(len, self.stems))


@cache
def _read_words() -> dict[str, frozenset[str]]:
    groups: dict[str, frozenset[str]] = {}
    name = ""
    for line in files("rookery.guard.scan").joinpath("words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line and not line.startswith("#"):
            groups[name] = groups.get(name, frozenset()) | {word.strip() for word in line.split(",") if word.strip()}
    return groups


def load_words(group: str) -> frozenset[str]:
    """Return a group of words from `words.txt`, which a single rule asks for."""
    return _read_words()[group]


_TERM = re.compile(r"(?P<word>[^/:]+?)(?P<kind>/vv?|/n)?(?P<irregular>(?::[^:]+)*)")
_VOWELS = "aeiou"
_ACTS = (
    Concept.DISREGARD
    | Concept.SEND
    | Concept.READ
    | Concept.INCLUDE
    | Concept.TELL
    | Concept.CONCEAL
    | Concept.INVOKE
    | Concept.CHANGE
    | Concept.OBEY
    | Concept.PERSONA
    | Concept.KNOW
    | Concept.DECEIVE
    | Concept.PROCEED
)


@cache
def load_vocabularies() -> tuple[Vocabulary, Vocabulary]:
    """Return the English vocabulary, and that of the other languages."""
    english = Vocabulary()
    foreign = Vocabulary()
    concept = 0
    for line in files("rookery.guard.scan").joinpath("concepts.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            concept = getattr(Concept, line.strip("[]").upper())
        elif line.startswith("@"):
            for term in line[1:].split(","):
                _add_foreign(foreign, term.strip().lower(), concept)
        else:
            for term in filter(None, map(str.strip, line.split(","))):
                _add_english(english, term, concept)
    return english, foreign


def _add_foreign(vocabulary: Vocabulary, term: str, concept: int) -> None:
    if not term:
        return
    if ord(term[0]) > 0x2E7F:
        vocabulary.parts[term] = vocabulary.parts.get(term, 0) | concept
    elif term.endswith("*"):
        # A stem inside a phrase counts as a word of its own.
        for part in term.split():
            if part.endswith("*"):
                vocabulary.stems[part[:-1]] = vocabulary.stems.get(part[:-1], 0) | concept
    else:
        vocabulary.add_word(term, concept)


def _add_english(vocabulary: Vocabulary, term: str, concept: int) -> None:
    match = _TERM.fullmatch(term)
    assert match is not None, term
    word = match["word"]
    kind = match["kind"]
    irregular = match["irregular"]
    if kind is None:
        # A phrase in a class of acts starts with a verb, in the form of a command; other words have no form.
        vocabulary.add_word(word, concept, Form.BASE if " " in word and concept & _ACTS else 0)
        return
    if kind == "/n":
        vocabulary.add_word(word, concept)
        for plural in irregular.split(":")[1:] or [_make_plural(word)]:
            vocabulary.add_word(plural, concept)
        return
    for form, inflected in _inflect(word, kind == "/vv"):
        vocabulary.add_word(inflected, concept, form)
    for past in irregular.split(":")[1:]:
        vocabulary.add_word(past, concept, Form.PAST)


def _make_plural(word: str) -> str:
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) else "s")


def _inflect(word: str, doubled: bool) -> Iterator[tuple[int, str]]:
    yield Form.BASE, word
    yield Form.THIRD, _make_plural(word) if not word.endswith("o") else word + "es"
    stem = word + word[-1] if doubled else word
    if word.endswith("y") and word[-2] not in _VOWELS:
        yield Form.PAST, word[:-1] + "ied"
    else:
        yield Form.PAST, stem + ("d" if word.endswith("e") else "ed")
    yield Form.PARTICIPLE, (word[:-1] if word.endswith("e") and not word.endswith("ee") else stem) + "ing"


class Lookup(dict[str, Entry]):
    """The entries of one vocabulary that were asked for, found once; bounded, since words come from strangers."""

    _MOST = 20_000

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, word: str) -> Entry:
        if len(self) >= self._MOST:
            self.clear()
        entry = self[word] = self._vocabulary.find(word)
        return entry


@cache
def load_lookups() -> tuple[Lookup, Lookup]:
    """Return the lookups of the English vocabulary and of the others."""
    english, foreign = load_vocabularies()
    return Lookup(english), Lookup(foreign)
