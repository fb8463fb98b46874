"""What boulder keeps of a session over restarts, and how that changes. Moments are in seconds since the epoch."""

import msgspec
from msgspec.structs import replace


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """`iteration` counts the enforcements since the last reset; `judged` is the one whose turn was looked at last.

    `enforced`: there was one in this idle period. `complete` tells why nothing is left to do. `attempted` is when one
    was last tried, `last_enforcement` when one was sent.
    """

    iteration: int = 0
    judged: int = 0
    last_activity: float = 0
    last_enforcement: float | None = None
    attempted: float | None = None
    failures: int = 0
    enforced: bool = False
    paused: bool = False
    stop_requested: bool = False
    complete: str | None = None
    budget: int | None = None


def works(kept: Kept, now: float) -> Kept:
    """A turn runs."""
    return replace(kept, last_activity=now)


def rests(kept: Kept, now: float) -> Kept:
    """A turn has ended: an idle period begins."""
    return replace(kept, last_activity=now, enforced=False)


def found(kept: Kept) -> Kept:
    """It is idle, and nobody knows since when: a turn that had begun has ended meanwhile."""
    begun = kept.enforced and kept.last_activity > (kept.last_enforcement or 0)
    return replace(kept, enforced=False) if begun else kept


def spoken_to(kept: Kept, now: float) -> Kept:
    """Somebody else than boulder has said something: there is new work, and somebody who looks after it."""
    return replace(kept, last_activity=now, enforced=False, complete=None, failures=0, judged=kept.iteration)


def judged(kept: Kept, *, failed: bool) -> Kept:
    """Its last turn was looked at, which counts once, and only if an enforcement has begun it."""
    if kept.judged >= kept.iteration:
        return kept
    return replace(kept, failures=kept.failures + 1 if failed else 0, judged=kept.iteration)


def completed(kept: Kept, why: str) -> Kept:
    return replace(kept, complete=why)


def enforced(kept: Kept, now: float) -> Kept:
    """One is about to be sent. It is counted before: what is spent must not be forgotten by a crash."""
    return replace(kept, iteration=kept.iteration + 1, last_enforcement=now, attempted=now, enforced=True)


def unsent(kept: Kept, before: float | None, now: float) -> Kept:
    """The one that was about to be sent was not; `before` is when the last one was."""
    return replace(taken_back(kept, before), failures=kept.failures + 1, attempted=now)


def taken_back(kept: Kept, before: float | None) -> Kept:
    """The one that was about to be sent is not wanted any more."""
    return replace(kept, iteration=max(kept.iteration - 1, 0), last_enforcement=before, enforced=False)


# ---- what the owner asks for


def paused(kept: Kept) -> Kept:
    return replace(kept, paused=True)


def resumed(kept: Kept) -> Kept:
    """After a pause, a stop, or too many failures."""
    return replace(kept, paused=False, stop_requested=False, failures=0, judged=kept.iteration)


def stopped(kept: Kept) -> Kept:
    return replace(kept, stop_requested=True)


def reset(kept: Kept) -> Kept:
    """As at the beginning; the budget stays as it was set."""
    return Kept(last_activity=kept.last_activity, budget=kept.budget)


def budgeted(kept: Kept, budget: int | None) -> Kept:
    return replace(kept, budget=budget)
