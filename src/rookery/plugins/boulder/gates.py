"""The gates that hold boulder back, in their order. Touches nothing outside; time is what the caller says it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from rookery.plugins.boulder.kept import Kept

Name = Literal[
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

# Beyond this a pause that doubles grows no longer.
_MOST_DOUBLINGS = 16


class Gate(msgspec.Struct, frozen=True):
    """Something that holds it back. `until` is when that ends by itself, in seconds; None where it does not."""

    gate: Name
    reason: str
    until: float | None = None


@dataclass(frozen=True)
class Limits:
    """In seconds; `budget` is how many enforcements a session gets that has no budget of its own."""

    idle: float = 30.0
    cooldown: float = 30.0
    abort: float = 3.0
    failures: int = 5
    budget: int = 5


@dataclass(frozen=True)
class Work:
    """What a look at the work has shown. `left` is None where it cannot be told, and `why` tells the reason."""

    left: bool | None
    why: str


@dataclass(frozen=True)
class Facts:
    """How a session is now. `touched`: something has happened in it since boulder was switched on for it.

    `work` is None as long as nobody has looked.
    """

    on: bool = False
    touched: bool = True
    running: bool = False
    idle_since: float = 0
    tool: str | None = None
    asks: int = 0
    aborted_at: float | None = None
    enforcing: bool = False
    work: Work | None = None


def gates(kept: Kept, now: float, facts: Facts, limits: Limits) -> Iterator[Gate]:
    """Those that are closed."""
    yield from _of_the_owner(kept, facts)
    yield from _of_the_session(kept, now, facts, limits)
    yield from _of_what_was_done(kept, now, limits)
    if facts.work is not None and facts.work.left is None:
        yield Gate("check", f"whether work is left cannot be told: {facts.work.why}")
    if kept.complete is not None:
        yield Gate("complete", f"{kept.complete}; somebody has to say something, or reset it")
    elif facts.work is not None and facts.work.left is False:
        yield Gate("complete", facts.work.why)


def _of_the_owner(kept: Kept, facts: Facts) -> Iterator[Gate]:
    if not facts.on:
        yield Gate("off", "it is not switched on for this session")
    elif not facts.touched:
        yield Gate("untouched", "nothing has happened in this session since it was switched on")
    if kept.paused:
        yield Gate("paused", "it is paused; resume it")
    if kept.stop_requested:
        yield Gate("stopped", "it was told to stop; resume or reset it")


def _of_the_session(kept: Kept, now: float, facts: Facts, limits: Limits) -> Iterator[Gate]:
    if kept.enforced:
        yield Gate("enforced", "it has enforced in this idle period, and the session has done nothing since")
    if facts.running:
        yield Gate("busy", "a turn runs")
    elif (until := _after(facts.idle_since, limits.idle, now)) is not None:
        yield Gate("idle", f"the session has not been idle for {limits.idle:g} s", until)
    if facts.tool is not None:
        yield Gate("tool", f"the tool {facts.tool} runs")
    if facts.asks:
        yield Gate("asks", f"{facts.asks} asked of you in this session: rookery session asks")
    if facts.aborted_at is not None and (until := _after(facts.aborted_at, limits.abort, now)) is not None:
        yield Gate("aborted", "somebody has just ended a turn", until)


def _of_what_was_done(kept: Kept, now: float, limits: Limits) -> Iterator[Gate]:
    if kept.attempted is not None:
        pause = limits.cooldown * 2 ** min(kept.failures, _MOST_DOUBLINGS)
        if (until := _after(kept.attempted, pause, now)) is not None:
            told = f" after {kept.failures} failures" if kept.failures else ""
            yield Gate("cooldown", f"{pause:g} s have to pass between two enforcements{told}", until)
    if kept.failures >= limits.failures:
        yield Gate("failures", f"{kept.failures} in a row have failed; say something, or resume or reset it")
    budget = budget_of(kept, limits)
    if kept.iteration >= budget:
        yield Gate("budget", f"all {budget} enforcements are spent; set a budget, or reset it")


def _after(moment: float, pause: float, now: float) -> float | None:
    """When the pause that began at `moment` is over; None if it is."""
    until = moment + pause
    return until if until > now else None


def budget_of(kept: Kept, limits: Limits) -> int:
    return limits.budget if kept.budget is None else kept.budget
