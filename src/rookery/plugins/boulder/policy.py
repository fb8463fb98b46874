"""Decide whether boulder enforces now: the gates in their order, and the checks for work that is left. No I/O.

The caller passes the time.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from rookery.plugins.boulder.state import BoulderState
from rookery.system.errors import RookeryError
from rookery.system.text import remove_invisible

GateName = Literal[
    "off",
    "untouched",
    "paused",
    "stopped",
    "enforced",
    "busy",
    "idle",
    "tool",
    "asks",
    "aborted",
    "cooldown",
    "failures",
    "budget",
    "check",
    "complete",
]

# A pause that doubles with each failure grows no longer after this many doublings.
_MAX_DOUBLINGS = 16

_CHECK_SYNTAX = "todos, plan:<file> or just:<task>"
_MAX_SHOWN = 5
_MAX_CHARS = 200
_BOX = re.compile(r"^[ \t]*(?:[-*+]|\d+[.)]) \[(.)\](.*)$")
_FENCE = re.compile(r"^[ \t]*(```|~~~)")


class Gate(msgspec.Struct, frozen=True):
    """A closed gate prevents an enforcement. `until` is when it opens by itself, in seconds; None if it does not."""

    gate: GateName
    reason: str
    until: float | None = None


@dataclass(frozen=True)
class BoulderLimits:
    """Times in seconds. `budget` is the number of enforcements for a session without a budget of its own."""

    idle: float = 30.0
    cooldown: float = 30.0
    abort: float = 3.0
    failures: int = 5
    budget: int = 5


@dataclass(frozen=True)
class WorkLeft:
    """Result of a check. `left` is None if the check could not decide; `why` is the reason for the result."""

    left: bool | None
    why: str


@dataclass(frozen=True)
class SessionFacts:
    """Current facts about a session. `touched`: it was active since boulder was switched on for it.

    `work` is None until the checks have run.
    """

    on: bool = False
    touched: bool = True
    running: bool = False
    idle_since: float = 0
    tool: str | None = None
    asks: int = 0
    aborted_at: float | None = None
    enforcing: bool = False
    work: WorkLeft | None = None


def list_gates(state: BoulderState, now: float, facts: SessionFacts, limits: BoulderLimits) -> Iterator[Gate]:
    """Yield the closed gates."""
    yield from _owner_gates(state, facts)
    yield from _session_gates(state, now, facts, limits)
    yield from _history_gates(state, now, limits)
    if facts.work is not None and facts.work.left is None:
        yield Gate("check", f"it cannot determine whether work is left: {facts.work.why}")
    if state.complete is not None:
        yield Gate("complete", f"{state.complete}; send a message, or reset it")
    elif facts.work is not None and facts.work.left is False:
        yield Gate("complete", facts.work.why)


def _owner_gates(state: BoulderState, facts: SessionFacts) -> Iterator[Gate]:
    if not facts.on:
        yield Gate("off", "it is not switched on for this session")
    elif not facts.touched:
        yield Gate("untouched", "nothing has happened in this session since it was switched on")
    if state.paused:
        yield Gate("paused", "it is paused; resume it")
    if state.stop_requested:
        yield Gate("stopped", "it was stopped; resume or reset it")


def _session_gates(state: BoulderState, now: float, facts: SessionFacts, limits: BoulderLimits) -> Iterator[Gate]:
    if state.enforced:
        yield Gate("enforced", "it has enforced in this idle period, and the session has done nothing since")
    if facts.running:
        yield Gate("busy", "a turn is running")
    elif (until := _pause_end(facts.idle_since, limits.idle, now)) is not None:
        yield Gate("idle", f"the session has not been idle for {limits.idle:g} s", until)
    if facts.tool is not None:
        yield Gate("tool", f"the tool {facts.tool} is running")
    if facts.asks:
        yield Gate("asks", f"open asks in this session: {facts.asks}; answer them: rookery session asks")
    if facts.aborted_at is not None and (until := _pause_end(facts.aborted_at, limits.abort, now)) is not None:
        yield Gate("aborted", "a turn was aborted a moment ago", until)


def _history_gates(state: BoulderState, now: float, limits: BoulderLimits) -> Iterator[Gate]:
    if state.attempted is not None:
        pause = limits.cooldown * 2 ** min(state.failures, _MAX_DOUBLINGS)
        if (until := _pause_end(state.attempted, pause, now)) is not None:
            suffix = f" after {state.failures} failures" if state.failures else ""
            yield Gate("cooldown", f"{pause:g} s must pass between two enforcements{suffix}", until)
    if state.failures >= limits.failures:
        yield Gate(
            "failures", f"{state.failures} enforcements in a row have failed; send a message, or resume or reset it"
        )
    budget = effective_budget(state, limits)
    if state.iteration >= budget:
        yield Gate("budget", f"all {budget} enforcements are used; set a budget, or reset it")


def _pause_end(moment: float, pause: float, now: float) -> float | None:
    """Return when the pause that began at `moment` ends, or None if it has ended."""
    until = moment + pause
    return until if until > now else None


def effective_budget(state: BoulderState, limits: BoulderLimits) -> int:
    return limits.budget if state.budget is None else state.budget


BoulderStatus = Literal["OFF", "PAUSED", "STOPPED", "ENFORCING", "COMPLETE", "EXHAUSTED", "CONTINUOUS"]


@dataclass(frozen=True)
class Enforce:
    """All gates are open, and work is left."""

    why: str


@dataclass(frozen=True)
class LookFirst:
    """All gates are open; the checks have to run to find out whether work is left."""


@dataclass(frozen=True)
class WaitUntil:
    """All closed gates open by themselves, the last one at `until`."""

    until: float
    gates: tuple[Gate, ...]


@dataclass(frozen=True)
class HeldBack:
    """At least one gate opens only when something happens."""

    gates: tuple[Gate, ...]


Decision = Enforce | LookFirst | WaitUntil | HeldBack


def decide(state: BoulderState, now: float, facts: SessionFacts, limits: BoulderLimits) -> Decision:
    """Return whether to enforce, to run the checks first, to wait, or to do nothing."""
    closed = tuple(list_gates(state, now, facts, limits))
    ends = [gate.until for gate in closed if gate.until is not None]
    if len(ends) < len(closed):
        return HeldBack(closed)
    if closed:
        return WaitUntil(max(ends), closed)
    if facts.work is None:
        return LookFirst()
    return Enforce(facts.work.why)


def session_status(state: BoulderState, facts: SessionFacts, limits: BoulderLimits) -> BoulderStatus:
    """Return one word for the state of a session; orders of the owner come first."""
    if not facts.on:
        return "OFF"
    if state.stop_requested:
        return "STOPPED"
    if state.paused:
        return "PAUSED"
    if facts.enforcing:
        return "ENFORCING"
    if state.complete is not None:
        return "COMPLETE"
    spent = state.iteration >= effective_budget(state, limits) or state.failures >= limits.failures
    return "EXHAUSTED" if spent else "CONTINUOUS"


class Todo(msgspec.Struct, frozen=True):
    """An entry of the todo list that OpenCode keeps for a session."""

    content: str = ""
    status: str = ""


@dataclass(frozen=True)
class CompletionChecks:
    """The declared checks. Without any, the assistant's last message decides."""

    todos: bool = False
    plans: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [*(["todos"] if self.todos else []), *(f"plan:{plan}" for plan in self.plans)]
        return ", ".join([*parts, *(f"just:{task}" for task in self.tasks)])


def read_checks(text: str) -> CompletionChecks:
    """Parse checks from settings or arguments, where commas separate them."""
    todos = False
    plans = list[str]()
    tasks = list[str]()
    for word in filter(None, (part.strip() for part in text.split(","))):
        kind, _, target = word.partition(":")
        target = target.strip()
        if word == "todos":
            todos = True
        elif kind == "plan" and target:
            plans.append(target)
        elif kind == "just" and target and not target.startswith("-"):
            tasks.append(target)
        else:
            raise RookeryError("invalid-input", f"{word!r} is not a check of boulder", f"give {_CHECK_SYNTAX}")
    return CompletionChecks(todos, tuple(plans), tuple(tasks))


def check_todos(todos: Sequence[Todo]) -> WorkLeft | None:
    """Check the todos of a session. No todos give no result."""
    if not todos:
        return None
    return _describe_open([todo.content for todo in todos if todo.status not in ("completed", "cancelled")], "todo", "")


def check_boxes(text: str, plan: str) -> WorkLeft:
    """Check the boxes of a plan: only `- [ ]` is open. Boxes in code blocks are ignored."""
    boxes = list(_boxes(text))
    if not boxes:
        return WorkLeft(None, f"{plan} has no boxes")
    return _describe_open([words for mark, words in boxes if mark == " "], "box", f" in {plan}")


def check_task(task: str, *, passed: bool, outcome: str) -> WorkLeft:
    return WorkLeft(not passed, f"just {task} {'passes' if passed else outcome}")


def combine_checks(results: Iterable[WorkLeft | None]) -> WorkLeft | None:
    """Combine results: work is left if one says so, and none only if all say so. Return None without any result."""
    results = [result for result in results if result is not None]
    for left in (True, None, False):
        reasons = [result.why for result in results if result.left is left]
        if reasons:
            return WorkLeft(left, "; ".join(reasons))
    return None


def _describe_open(open_: Sequence[str], noun: str, where: str) -> WorkLeft:
    plural = "boxes" if noun == "box" else f"{noun}s"
    if not open_:
        return WorkLeft(False, f"no {noun} is open{where}")
    examples = ", ".join(f'"{_quote_safe(words)}"' for words in open_[:_MAX_SHOWN])
    more = f" and {len(open_) - _MAX_SHOWN} more" if len(open_) > _MAX_SHOWN else ""
    verb = f"{len(open_)} {noun} is" if len(open_) == 1 else f"{len(open_)} {plural} are"
    return WorkLeft(True, f"{verb} open{where}: {examples}{more}")


def _quote_safe(words: str) -> str:
    """Return the words in one line, without hidden characters, and without quotes that would end those around them."""
    plain = " ".join(remove_invisible(words).replace('"', "'").split())
    return plain if len(plain) <= _MAX_CHARS else f"{plain[: _MAX_CHARS - 1]}…"


def _boxes(text: str) -> Iterable[tuple[str, str]]:
    """Yield the mark and the text of each box outside of code blocks."""
    fence = ""
    for line in text.splitlines():
        if (mark := _FENCE.match(line)) is not None:
            fence = "" if fence == mark[1] else fence or mark[1]
        elif not fence and (box := _BOX.match(line)) is not None:
            yield box[1], box[2].strip()
