"""What an agent's sessions need a person for, and what becomes of them when their process ends."""

from collections.abc import Iterable, Iterator

import msgspec

from rookery.agents.status import SessionState
from rookery.workspaces.agent import Need

_RUNNING = ("busy", "retry", "asking")
_SHOWN = 3


def needs_of(sessions: Iterable[SessionState]) -> Iterator[Need]:
    """Each ask by itself, and all turns that were cut off together."""
    cut_off: list[str] = []
    for one in sessions:
        for ask in one.asks:
            yield Need(ask.kind, f"{one.title or one.id} asks: {ask.text}")
        if one.state == "interrupted":
            cut_off.append(one.title or one.id)
    if cut_off:
        more = f" and {len(cut_off) - _SHOWN} more" if len(cut_off) > _SHOWN else ""
        named = ", ".join(cut_off[:_SHOWN])
        yield Need("interrupted", f"cut off in the middle of a turn: {named}{more}; rookery agent resume")


def ended(sessions: Iterable[SessionState]) -> tuple[SessionState, ...]:
    """The sessions of a process that is no more: what ran was cut off, and nobody waits for an answer."""
    return tuple(
        msgspec.structs.replace(one, state="interrupted", asks=(), detail="") if one.state in _RUNNING else one
        for one in sessions
    )
