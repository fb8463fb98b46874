"""Choose the step of the script that answers a request.

`{{user}}`, `{{result}}` and `{{result.2}}` in a step are filled in from the request. A request that matches no step
gets an error that names the closest one.
"""

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast

from rookery.testing.request import ModelRequest
from rookery.testing.script import Call, Conversation, Script, Step, Turn, When, matches_condition, shorten

_REFERENCE = re.compile(r"\{\{(user|result)(?:\.(\d+))?\}\}")

_COMPARED_CHARS = 1000
_TITLE_WORDS = 6
_SUMMARY_LETTERS = 300
_RESULT_LETTERS = 300


def fill_references(step: Step, request: ModelRequest) -> tuple[str, tuple[Call, ...]]:
    """Return the text and calls of a step with its references filled in.

    Raise LookupError for a result that does not exist.
    """

    def resolve_reference(match: re.Match[str]) -> str:
        name, number = match.groups()
        if name == "user":
            return request.user_messages[-1]
        # Without a number, the last result is meant.
        index = int(number) - 1 if number else len(request.results) - 1
        if not 0 <= index < len(request.results):
            raise LookupError(match[0])
        return request.results[index]

    def fill(template: Any) -> Any:
        if isinstance(template, str):
            return _REFERENCE.sub(resolve_reference, template)
        if isinstance(template, Mapping):
            return {key: fill(item) for key, item in cast(Mapping[str, Any], template).items()}
        if isinstance(template, Sequence):
            return [fill(item) for item in cast(Sequence[Any], template)]
        return template

    calls = tuple(Call(call.call, fill(call.arguments)) for call in step.calls)
    return fill(step.say or ""), calls


@dataclass(frozen=True)
class ScriptPosition:
    """A conversation, a turn of it, and a step of that. `turn` and `step` are None if the whole is meant."""

    conversation: int
    name: str | None = None
    turn: int | None = None
    step: int | None = None

    def at_turn(self, turn: int) -> "ScriptPosition":
        return replace(self, turn=turn, step=None)

    def at_step(self, step: int) -> "ScriptPosition":
        return replace(self, step=step)

    def __str__(self) -> str:
        text = f'conversation "{self.name}"' if self.name else f"conversation {self.conversation}"
        text += f", turn {self.turn}" if self.turn is not None else ""
        return text + (f", step {self.step}" if self.step is not None else "")


class NoMatchingStep(Exception):
    """Raised if the script has no answer to a request. The message names the request and the nearest step."""

    def __init__(self, message: str, nearest: ScriptPosition | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


def describe_condition(when: When | None) -> str:
    """Return a condition as it is written in the script."""
    if when is None:
        return ""
    return when if isinstance(when, str) else when.regex


def find_closest(text: str, conditions: Sequence[When | None]) -> int:
    """Return the index of the condition that is most similar to a text, or of the last one if none is similar."""
    parts = [describe_condition(when)[:_COMPARED_CHARS] for when in conditions]
    ratios = [difflib.SequenceMatcher(None, text[:_COMPARED_CHARS], part).ratio() for part in parts]
    return max(range(len(ratios)), key=lambda index: (ratios[index], index))


Kind = Literal["step", "title", "summary"]


@dataclass(frozen=True)
class Reply:
    """The text and calls of a reply, and the step that they come from. Titles and summaries come from no step.

    `ids` are the ids of the calls; without them, ids are derived from the request.
    """

    text: str
    calls: tuple[Call, ...]
    step: Step
    position: ScriptPosition | None = None
    kind: Kind = "step"
    ids: tuple[str, ...] = ()


class ReplySource(Protocol):
    """Decides how the model replies."""

    def reply_to(self, request: ModelRequest) -> Reply:
        """Return the reply to a request. Raise `NoMatchingStep` if there is none."""
        ...


class Player:
    """Plays a script for any number of sessions. The script may be replaced at any time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._sessions: dict[str, int] = {}
        self._chosen: dict[str, Conversation] = {}
        self._failures: Counter[tuple[str, int, ScriptPosition]] = Counter()

    def reply_to(self, request: ModelRequest) -> Reply:
        """Return the reply to a request. Raise `NoMatchingStep` if the script has none."""
        number = self._sessions.setdefault(request.session, len(self._sessions) + 1)
        if kind := request.housekeeping:
            return housekeeping_reply(kind, request)
        if not request.user_messages:
            raise NoMatchingStep("the request has no user message")
        conversation, position = self._conversation(request, number)
        self._chosen[request.session] = conversation
        turn, position = _turn(request, conversation, position)
        step, position = self._step(request, turn, position)
        _check(request, step, position)
        try:
            text, calls = fill_references(step, request)
        except LookupError as error:
            raise NoMatchingStep(
                f"{position} refers to {error.args[0]}, but there is no such result", position
            ) from None
        if step.is_failure:
            self._failures[request.session, len(request.user_messages), position] += 1
        return Reply(text, calls, step, position)

    def _conversation(self, request: ModelRequest, number: int) -> tuple[Conversation, ScriptPosition]:
        """Return the conversation of a session: the one chosen before, else one for this session, else the default."""
        first = request.user_messages[0]
        entries = [
            (conversation, ScriptPosition(index, conversation.name))
            for index, conversation in enumerate(self.script.conversation, 1)
        ]
        previous = [entry for entry in entries if entry[0] is self._chosen.get(request.session)]
        own = [
            (conversation, position)
            for conversation, position in entries
            if conversation.session == number or (conversation.when and matches_condition(conversation.when, first))
        ]
        default = [(conversation, position) for conversation, position in entries if conversation.is_default]
        for entry in (*previous, *own, *default):
            return entry
        index = find_closest(first, [conversation.when for conversation in self.script.conversation])
        nearest = self.script.conversation[index]
        description = f"sessions that begin with {shorten(describe_condition(nearest.when))}"
        position = ScriptPosition(index + 1, nearest.name).at_turn(1).at_step(1)
        raise NoMatchingStep(
            f"no conversation of the script matches session {number}, which begins with {shorten(first)}. "
            f"The nearest step is {position}, for {f'session {nearest.session}' if nearest.session else description}",
            position,
        )

    def _step(self, request: ModelRequest, turn: Turn, turn_position: ScriptPosition) -> tuple[Step, ScriptPosition]:
        """Return the next step: skip one for each reply so far, and failing steps that have failed often enough."""
        remaining = request.replies
        for number, step in enumerate(turn.step, 1):
            position = turn_position.at_step(number)
            if not step.is_failure:
                if not remaining:
                    return step, position
                remaining -= 1
            elif not remaining and not self._has_failed_enough(step, request, position):
                return step, position
        last = turn_position.at_step(len(turn.step))
        raise NoMatchingStep(
            f"{turn_position} has no more steps: the model has replied {request.replies} times to "
            f"{shorten(request.user_messages[-1])}, and "
            f"received another request. The nearest step is {last} ({turn.step[-1]})",
            last,
        )

    def _has_failed_enough(self, step: Step, request: ModelRequest, position: ScriptPosition) -> bool:
        return (
            step.times is not None
            and self._failures[request.session, len(request.user_messages), position] >= step.times
        )


def _turn(
    request: ModelRequest, conversation: Conversation, conversation_position: ScriptPosition
) -> tuple[Turn, ScriptPosition]:
    """Return the first turn for this message, else the next of the turns that are for any message."""
    last = request.user_messages[-1]
    turns = list(enumerate(conversation.turn, 1))

    def own(text: str) -> tuple[int, Turn] | None:
        return next(
            ((number, turn) for number, turn in turns if turn.when and matches_condition(turn.when, text)), None
        )

    match = own(last)
    if match is None:
        before = sum(own(text) is None for text in request.user_messages[:-1])
        match = next(iter([(number, turn) for number, turn in turns if not turn.when][before:]), None)
    if match is not None:
        return match[1], conversation_position.at_turn(match[0])
    index = find_closest(last, [turn.when for turn in conversation.turn])
    position = conversation_position.at_turn(index + 1).at_step(1)
    raise NoMatchingStep(
        f"{conversation_position} has no turn for user message {len(request.user_messages)}, {shorten(last)}. "
        f"The nearest step is {position} ({conversation.turn[index].step[0]})",
        position,
    )


def _check(request: ModelRequest, step: Step, position: ScriptPosition) -> None:
    """Raise `NoMatchingStep` if the request does not have what the step expects."""
    location, texts = (
        ("the results", request.results) if request.replies else ("the user's message", request.user_messages[-1:])
    )
    for text in step.expected:
        if not any(text in sent_text for sent_text in texts):
            received = ", ".join(shorten(sent_text, _RESULT_LETTERS) for sent_text in texts) or "none"
            raise NoMatchingStep(f"{position} expects {shorten(text)} in {location}. Received: {received}", position)
    if missing := [name for name in step.expect_tools if name not in request.tools]:
        offered = ", ".join(request.tools) or "none"
        raise NoMatchingStep(f"{position} expects the tool {missing[0]} to be offered. Offered: {offered}", position)
    if present := [name for name in step.expect_no_tools if name in request.tools]:
        raise NoMatchingStep(f"{position} expects the tool {present[0]} not to be offered, but it is", position)


def housekeeping_reply(kind: Literal["title", "summary"], request: ModelRequest) -> Reply:
    """Return a title or a summary, made from the user's messages."""
    words = (request.user_messages[-1] if request.user_messages else "nothing").split()
    text = " ".join(words[:_TITLE_WORDS]) if kind == "title" else f"So far: {' '.join(words)[:_SUMMARY_LETTERS]}"
    return Reply(text, (), Step(say=text), kind=kind)
