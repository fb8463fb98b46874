"""Places in a script, as people count them, and the one that is nearest to what the script does not foresee."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rookery.testing.script import When

_COMPARED = 1000


@dataclass(frozen=True)
class Place:
    """A conversation, a turn of it, a step of that; `turn` and `step` are None where a whole is meant."""

    conversation: int
    name: str | None = None
    turn: int | None = None
    step: int | None = None

    def at_turn(self, turn: int) -> "Place":
        return replace(self, turn=turn, step=None)

    def at_step(self, step: int) -> "Place":
        return replace(self, step=step)

    def __str__(self) -> str:
        told = f'conversation "{self.name}"' if self.name else f"conversation {self.conversation}"
        told += f", turn {self.turn}" if self.turn is not None else ""
        return told + (f", step {self.step}" if self.step is not None else "")


class Unforeseen(Exception):
    """The script has no answer to this request: what came, and which step is the nearest."""

    def __init__(self, message: str, nearest: Place | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


def written(when: When | None) -> str:
    """A condition as it stands in the script."""
    if when is None:
        return ""
    return when if isinstance(when, str) else when.regex


def most_like(text: str, conditions: Sequence[When | None]) -> int:
    """The index of the condition that is most like a text; the last one, if none is like it at all."""
    parts = [written(when)[:_COMPARED] for when in conditions]
    alike = [difflib.SequenceMatcher(None, text[:_COMPARED], part).ratio() for part in parts]
    return max(range(len(alike)), key=lambda index: (alike[index], index))
