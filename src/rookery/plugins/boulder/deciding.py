"""Whether to enforce now, and one word for how a session stands. Touches nothing outside."""

from dataclasses import dataclass
from typing import Literal

from rookery.plugins.boulder.gates import Facts, Gate, Limits, budget_of, gates
from rookery.plugins.boulder.kept import Kept

Status = Literal["OFF", "PAUSED", "STOPPED", "ENFORCING", "COMPLETE", "EXHAUSTED", "CONTINUOUS"]


@dataclass(frozen=True)
class Enforce:
    """Every gate is open, and there is work left."""

    why: str


@dataclass(frozen=True)
class Look:
    """Every gate is open; whether there is work left has to be looked at."""


@dataclass(frozen=True)
class Wait:
    """The gates that are closed open by themselves."""

    until: float
    gates: tuple[Gate, ...]


@dataclass(frozen=True)
class Held:
    """At least one gate opens only when something happens."""

    gates: tuple[Gate, ...]


Decision = Enforce | Look | Wait | Held


def decide(kept: Kept, now: float, facts: Facts, limits: Limits) -> Decision:
    closed = tuple(gates(kept, now, facts, limits))
    ends = [one.until for one in closed if one.until is not None]
    if len(ends) < len(closed):
        return Held(closed)
    if closed:
        return Wait(max(ends), closed)
    if facts.work is None:
        return Look()
    return Enforce(facts.work.why)


def status(kept: Kept, facts: Facts, limits: Limits) -> Status:
    """One word for it: what the owner wants comes first."""
    if not facts.on:
        return "OFF"
    if kept.stop_requested:
        return "STOPPED"
    if kept.paused:
        return "PAUSED"
    if facts.enforcing:
        return "ENFORCING"
    if kept.complete is not None:
        return "COMPLETE"
    spent = kept.iteration >= budget_of(kept, limits) or kept.failures >= limits.failures
    return "EXHAUSTED" if spent else "CONTINUOUS"
