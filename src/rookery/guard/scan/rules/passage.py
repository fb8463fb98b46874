"""What the rules for texts read: the sentences of one text, and what the definition around it is about."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from rookery.guard.scan.definition import Role
from rookery.guard.scan.findings import Match, Severity
from rookery.guard.scan.lexicon import Concept as C
from rookery.guard.scan.sentences import Sentence


class Passage(NamedTuple):
    """One text, as it reads after decoding.

    `topic` has the classes of the tool's name and of the first sentence of its description: what the tool says that it
    is for. `decoded` is true if the text had to be decoded to be read.
    """

    text: str
    sentences: list[Sentence]
    role: Role
    kind: str
    topic: int
    decoded: bool

    @property
    def is_prose(self) -> bool:
        """Return whether the text may speak to a reader: not that of a parameter, and not a name."""
        return self.role not in (Role.PARAMETER, Role.PARAMETER_NAME)

    def is_aside(self, sentence: Sentence, position: int = 0) -> bool:
        """Return whether a word comes after what the tool is said to do: in a later sentence or a later clause."""
        if sentence.index or self.decoded or self.role is Role.VALUE:
            return True
        return any(word in _TURNS for word in sentence.words[:position])

    def overlap(self, start: int, end: int) -> Iterator[Sentence]:
        """Yield the sentences that end after `start` and start at `end` or before."""
        for index in range(bisect_right(self.sentences, start, key=_get_end), len(self.sentences)):
            if self.sentences[index].start > end:
                return
            yield self.sentences[index]

    def around(self, sentence: Sentence, reach: int = 2) -> int:
        """Return the classes of a sentence and its neighbours."""
        start = sentence.index - reach
        mask = 0
        for other in self.sentences[max(start, 0) : sentence.index + reach + 1]:
            mask |= other.mask
        return mask


def _get_end(sentence: Sentence) -> int:
    return sentence.end


def match_sentence(rule: str, sentence: Sentence, severity: Severity | None = None) -> Match:
    """Return a match that is one sentence long."""
    return Match(rule, sentence.start, sentence.end, severity)


def find_verbs(sentence: Sentence, concept: int) -> Iterator[int]:
    """Yield the positions of words of a class that are verbs, and not negated."""
    for position in sentence.find(concept):
        if sentence.forms[position] and not sentence.is_negated(position):
            yield position


def forbids(sentence: Sentence) -> bool:
    """Return whether a sentence forbids from its start, as in "never write passwords into a file"."""
    return any(sentence.masks[index] & C.NOT for index in range(min(3, len(sentence.words)))) and not (
        {"but", "instead", "only", "forget", "hesitate", "fail"} & set(sentence.words)
    )


_TURNS = frozenset([";", "\u2014", "\u2013", "--", "which", "also", "additionally", "while", "that", "then", ":"])


def has_all(mask: int, classes: tuple[int, ...]) -> bool:
    """Return whether each of these classes is in a mask."""
    for concept in classes:  # noqa: SIM110 - a generator costs twice as much, and this runs most often
        if not mask & concept:
            return False
    return True


_ACTS = (
    C.DISREGARD
    | C.SEND
    | C.READ
    | C.TELL
    | C.CONCEAL
    | C.SECRECY
    | C.PERSONA
    | C.OBEY
    | C.CHANGE
    | C.WITHOUT
    | C.INVOKE
    | C.INCLUDE
)


def weigh_commands(passage: Passage, start: int, reach: int = 300) -> int:
    """Return how much the text from `start` on speaks to the model: 1 for a command, 2 for a risky one."""
    found = 0
    for sentence in passage.overlap(start, start + reach):
        risky = sentence.mask & (C.SECRET | C.CONVERSATION | C.GUIDANCE | C.PERSONA | C.SECRECY | C.OUTSIDE | C.ADDRESS)
        for position in sentence.find(_ACTS):
            if sentence.forms[position] and sentence.command(position):
                if risky:
                    return 2
                found = 1
                break
        if sentence.foreign and sentence.mask & _ACTS and risky:
            return 2
    return found
