"""Pins as they are stored, and as interfaces show them."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from rookery.guard.pins.definition import DefinitionKey, PinKind

# `waiting` content is withheld until the user decides; `blocked` withholds every content of a definition.
PinState = Literal["pinned", "waiting", "blocked"]
# Who pinned it: the first listing, a server that is trusted to add, the user at a terminal, or a lock file. What the
# user pinned is served even if the scanner has severe findings. A lock file has digests only: its texts were not shown.
PinnedBy = Literal["first", "trusted", "terminal", "lock"]
DECIDED: frozenset[str] = frozenset({"terminal"})
# Why a definition is withheld: its server or itself is blocked, it changed, it is new, the scanner has severe findings,
# the pins were lost, or it was first listed other than the lock file has it.
WithheldReason = Literal["blocked", "changed", "new", "severe", "lost", "unlocked"]


class PinOwner(NamedTuple):
    """The server that pins belong to.

    `place` is empty for a server of the user's own files, the real path of the main checkout for one of a repository,
    and `added` for one that was added while Rookery runs. `program` tells apart several under one name and place: it is
    empty for a server of the user's own files, whose pins hold also if its command changes.
    """

    name: str
    place: str = ""
    program: str = ""


class SeenDefinition(NamedTuple):
    """A definition as a server listed it."""

    key: DefinitionKey
    digest: str
    content: bytes


class LockedPins(NamedTuple):
    """The pins that a lock file has for a server. `is_approved`: the user approved this content of the file."""

    digests: Mapping[DefinitionKey, str]
    is_approved: bool = False

    def contains(self, seen: SeenDefinition) -> bool:
        return self.digests.get(seen.key) == seen.digest


class Pin(msgspec.Struct, frozen=True):
    """One row: the content of a definition with this digest, and what holds for it."""

    kind: PinKind
    definition: str
    digest: str
    state: PinState
    by: str
    reason: str
    version: str
    at: float
    content: bytes

    @property
    def key(self) -> DefinitionKey:
        return DefinitionKey(self.kind, self.definition)


class PinnedServer(msgspec.Struct, frozen=True):
    """A server whose definitions are pinned. `additions`: its new definitions are pinned without asking."""

    name: str
    place: str
    program: str
    at: float
    additions: bool
    blocked: bool
    pins: Sequence[Pin]

    @property
    def owner(self) -> PinOwner:
        return PinOwner(self.name, self.place, self.program)
