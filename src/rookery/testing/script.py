"""The script of a model: conversations, their turns, and the steps of each.

A script with a step that could never be played is refused. Scripts are plain values, read from a file with `load.py` or
created in Python.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct, field

Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Count = Annotated[int, Meta(ge=1)]


class Regex(Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression that is searched in a text."""

    regex: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"{self.regex!r} is not a regular expression: {error}") from None


When = str | Regex


def matches_condition(when: When, text: str) -> bool:
    """Return whether a text contains a string, or matches a regular expression."""
    return when in text if isinstance(when, str) else re.search(when.regex, text) is not None


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool."""

    call: Annotated[str, Meta(min_length=1)]
    arguments: dict[str, Any] = field(name="with", default_factory=dict[str, Any])


class Usage(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of tokens that a reply is reported to have used."""

    input: Annotated[int, Meta(ge=0)]
    output: Annotated[int, Meta(ge=0)] = 0


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One reply of the model: text, calls or both, or a failure."""

    say: str | None = None
    call: Annotated[str, Meta(min_length=1)] | None = None
    arguments: dict[str, Any] | None = field(name="with", default=None)
    parallel: tuple[Call, ...] = ()
    delay: Seconds = 0
    pace: Seconds = 0
    hold: str | None = None
    expect: str | tuple[str, ...] = ()
    expect_tools: tuple[str, ...] = ()
    expect_no_tools: tuple[str, ...] = ()
    usage: Usage | None = None
    error: Annotated[int, Meta(ge=400, le=599)] | None = None
    message: str | None = None
    retry_after: Seconds | None = None
    disconnect: bool = False
    times: Count | None = None

    def __post_init__(self) -> None:
        if problem := next(_problems(self), None):
            raise ValueError(problem)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls of the step, single or parallel."""
        return (Call(self.call, self.arguments or {}),) if self.call else self.parallel

    @property
    def is_failure(self) -> bool:
        return self.error is not None or self.disconnect

    @property
    def expected(self) -> tuple[str, ...]:
        """The texts that the request must contain."""
        return (self.expect,) if isinstance(self.expect, str) else self.expect

    def __str__(self) -> str:
        if self.error is not None:
            return f"error {self.error}"
        parts = ["call " + ", ".join(call.call for call in self.calls)] if self.calls else []
        parts = [f"say {shorten(self.say)}", *parts] if self.say is not None else parts
        return " and ".join(["disconnect", *parts] if self.disconnect else parts)


def _problems(step: Step) -> Iterator[str]:
    """Yield why a step is invalid."""
    has_reply = step.say is not None or bool(step.calls)
    if not has_reply and not step.is_failure:
        yield "a step needs one of `say`, `call`, `parallel`, `error` and `disconnect`"
    if step.call and step.parallel:
        yield "`call` and `parallel` cannot be combined; put all calls into `parallel`"
    if step.arguments is not None and not step.call:
        yield "`with` requires `call`"
    if step.error is not None and (has_reply or step.disconnect):
        yield "`error` cannot be combined with `say`, `call`, `parallel` or `disconnect`"
    if step.error is None and (step.message is not None or step.retry_after is not None):
        yield "`message` and `retry_after` require `error`"
    if step.disconnect and step.calls:
        yield "`disconnect` can be combined with `say` only: a call that is cut off is never made"
    if step.times is not None and not step.is_failure:
        yield "`times` requires `error` or `disconnect`"


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps of the model after one message of the user."""

    step: Annotated[tuple[Step, ...], Meta(min_length=1)]
    when: When | None = None

    def __post_init__(self) -> None:
        last_number = len(self.step)
        for number, step in enumerate(self.step, 1):
            if number < last_number and step.is_failure and step.times is None:
                reason = f"step {number} always fails; give it `times`"
            elif number < last_number and not step.is_failure and not step.calls:
                reason = f"step {number} calls no tool, so the turn ends with it; text and calls can be one step"
            elif number == last_number and step.times is not None:
                raise ValueError(f"after step {number} has failed {step.times} times, another step must follow")
            else:
                continue
            raise ValueError(f"step {number + 1} can never be played: {reason}")


class Conversation(Struct, frozen=True, forbid_unknown_fields=True):
    """The turns of the model in one session."""

    turn: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    name: str | None = None
    when: When | None = None
    session: Count | None = None

    def __post_init__(self) -> None:
        if self.when is not None and self.session is not None:
            raise ValueError("a conversation has either `when` or `session`, not both")

    @property
    def is_default(self) -> bool:
        return self.when is None and self.session is None


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """All conversations of the model."""

    conversation: Annotated[tuple[Conversation, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        defaults = [number for number, conversation in enumerate(self.conversation, 1) if conversation.is_default]
        if len(defaults) > 1:
            raise ValueError(
                f"conversation {defaults[1]} can never be played: conversation {defaults[0]} already matches "
                "every session; give one of them `when` or `session`"
            )

    def count(self) -> dict[str, int]:
        """Return the number of conversations, turns and steps."""
        turns = [turn for conversation in self.conversation for turn in conversation.turn]
        steps = sum(len(turn.step) for turn in turns)
        return {"conversations": len(self.conversation), "turns": len(turns), "steps": steps}


def shorten(text: str | None, limit: int = 60) -> str:
    """Return text in quotation marks and in one line, truncated to `limit` characters."""
    line = " ".join((text or "").split())
    return f'"{line}"' if len(line) <= limit else f'"{line[:limit]}…"'
