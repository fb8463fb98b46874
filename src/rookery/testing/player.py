"""Which step of the script answers a request.

The place in the script follows from the messages of the request, so that a server that was started anew plays on where
the other one was, and sessions never mix. Remembered is only what they do not tell: the order in which sessions came,
how often a step has failed already, and the conversation of a session whose beginning was replaced by a summary.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, Protocol

from rookery.testing.asked import Asked
from rookery.testing.filling import fill
from rookery.testing.place import Place, Unforeseen, most_like, written
from rookery.testing.script import Call, Conversation, Script, Step, Turn, fits, shortened

Kind = Literal["step", "title", "summary"]

_TITLE_WORDS = 6
_SUMMARY_LETTERS = 300
_RESULT_LETTERS = 300


@dataclass(frozen=True)
class Reply:
    """What the model says and calls, and the step that this is from; titles and summaries are from none.

    `ids` are those of the calls; without them they follow from the request.
    """

    text: str
    calls: tuple[Call, ...]
    step: Step
    place: Place | None = None
    kind: Kind = "step"
    ids: tuple[str, ...] = ()


class Answers(Protocol):
    """Whoever knows what the model says."""

    def answer(self, asked: Asked) -> Reply:
        """The reply to a request; `Unforeseen` if there is none."""
        ...


class Player:
    """Plays a script for any number of sessions. It may be changed for another script at any time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._sessions: dict[str, int] = {}
        self._chosen: dict[str, Conversation] = {}
        self._failures: Counter[tuple[str, int, Place]] = Counter()

    def answer(self, asked: Asked) -> Reply:
        """The reply to a request; `Unforeseen` if the script has none."""
        number = self._sessions.setdefault(asked.session, len(self._sessions) + 1)
        if kind := asked.housekeeping:
            return housekeeping(kind, asked)
        if not asked.said:
            raise Unforeseen("the request has no message of a user")
        conversation, place = self._conversation(asked, number)
        self._chosen[asked.session] = conversation
        turn, place = _turn(asked, conversation, place)
        step, place = self._step(asked, turn, place)
        _check(asked, step, place)
        try:
            text, calls = fill(step, asked)
        except LookupError as error:
            raise Unforeseen(f"{place} refers to {error.args[0]}, and there is no such result", place) from None
        if step.fails:
            self._failures[asked.session, len(asked.said), place] += 1
        return Reply(text, calls, step, place)

    def _conversation(self, asked: Asked, number: int) -> tuple[Conversation, Place]:
        first = asked.said[0]
        all_ = [(one, Place(at, one.name)) for at, one in enumerate(self.script.conversation, 1)]
        chosen = [found for found in all_ if found[0] is self._chosen.get(asked.session)]
        own = [(one, at) for one, at in all_ if one.session == number or (one.when and fits(one.when, first))]
        default = [(one, at) for one, at in all_ if one.is_default]
        for found in (*chosen, *own, *default):
            return found
        index = most_like(first, [one.when for one in self.script.conversation])
        near = self.script.conversation[index]
        begins = f"sessions that begin with {shortened(written(near.when))}"
        place = Place(index + 1, near.name).at_turn(1).at_step(1)
        raise Unforeseen(
            f"no conversation of the script is for session {number}, which begins with {shortened(first)}. "
            f"The nearest step is {place}, for {f'session {near.session}' if near.session else begins}",
            place,
        )

    def _step(self, asked: Asked, turn: Turn, at: Place) -> tuple[Step, Place]:
        """The step after as many that answered as there are replies, and after those that have failed often enough."""
        left = asked.replies
        for number, step in enumerate(turn.step, 1):
            place = at.at_step(number)
            if not step.fails:
                if not left:
                    return step, place
                left -= 1
            elif not left and not self._is_over(step, asked, place):
                return step, place
        last = at.at_step(len(turn.step))
        raise Unforeseen(
            f"{at} is over: the model has replied {asked.replies} times to {shortened(asked.said[-1])}, and was asked "
            f"for more. The nearest step is {last} ({turn.step[-1]})",
            last,
        )

    def _is_over(self, step: Step, asked: Asked, place: Place) -> bool:
        return step.times is not None and self._failures[asked.session, len(asked.said), place] >= step.times


def _turn(asked: Asked, conversation: Conversation, at: Place) -> tuple[Turn, Place]:
    """The first turn that is for this very message, else the next one of those that are for any."""
    last = asked.said[-1]
    turns = list(enumerate(conversation.turn, 1))

    def own(text: str) -> tuple[int, Turn] | None:
        return next(((number, turn) for number, turn in turns if turn.when and fits(turn.when, text)), None)

    found = own(last)
    if found is None:
        before = sum(own(text) is None for text in asked.said[:-1])
        found = next(iter([(number, turn) for number, turn in turns if not turn.when][before:]), None)
    if found is not None:
        return found[1], at.at_turn(found[0])
    index = most_like(last, [turn.when for turn in conversation.turn])
    place = at.at_turn(index + 1).at_step(1)
    raise Unforeseen(
        f"{at} has no turn for message {len(asked.said)} of the user, {shortened(last)}. "
        f"The nearest step is {place} ({conversation.turn[index].step[0]})",
        place,
    )


def _check(asked: Asked, step: Step, place: Place) -> None:
    """That the model was sent what the step expects."""
    where, sent = ("the results", asked.results) if asked.replies else ("the user's message", asked.said[-1:])
    for text in step.expected:
        if not any(text in one for one in sent):
            got = ", ".join(shortened(one, _RESULT_LETTERS) for one in sent) or "none"
            raise Unforeseen(f"{place} expects {shortened(text)} in {where}. What came: {got}", place)
    if missing := [name for name in step.expect_tools if name not in asked.tools]:
        offered = ", ".join(asked.tools) or "none"
        raise Unforeseen(f"{place} expects the tool {missing[0]} to be offered. What is offered: {offered}", place)
    if present := [name for name in step.expect_no_tools if name in asked.tools]:
        raise Unforeseen(f"{place} expects the tool {present[0]} not to be offered, and it is", place)


def housekeeping(kind: Literal["title", "summary"], asked: Asked) -> Reply:
    """A title or a summary, made from what the user has said."""
    words = (asked.said[-1] if asked.said else "nothing").split()
    text = " ".join(words[:_TITLE_WORDS]) if kind == "title" else f"So far: {' '.join(words)[:_SUMMARY_LETTERS]}"
    return Reply(text, (), Step(say=text), kind=kind)
