"""Listings of which there are more pages: kept for a while, so that the next page need not begin anew."""

import asyncio
from dataclasses import dataclass, field

from rookery.files.entries import Row, count, split
from rookery.files.ignoring import Ignoring
from rookery.files.walking import Names, Scope
from rookery.system.ids import new_id

SECONDS = 60.0
_MOST = 8
MOST_BYTES = 50_000_000
_BYTES_EACH = 150


@dataclass
class Pending:
    """A listing whose entries are told up to `told`; those in `ahead` come next, then what comes after `seen`."""

    scope: Scope
    ignoring: Ignoring
    told: Names
    seen: Names
    ahead: list[Row] = field(default_factory=list[Row])
    # How many entries these rows are.
    count: int = 0
    more: bool = True

    @property
    def bytes(self) -> int:
        """About as many as it takes."""
        return self.count * _BYTES_EACH + len(self.ignoring.tracked) * 5

    def add(self, rows: list[Row]) -> None:
        self.ahead += rows
        self.count += count(rows)

    def take(self, most: int) -> list[Row]:
        page, self.ahead = split(self.ahead, most)
        self.count -= min(most, self.count)
        return page


class Paging:
    """One that is left alone or has to make room for others is forgotten; its cursor goes on by name."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Pending, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, pending: Pending) -> str:
        """The token to take it by."""
        if pending.bytes > MOST_BYTES // 2:
            pending.ignoring.forget()
        token = new_id()[:12]
        timer = asyncio.get_running_loop().call_later(SECONDS, self._drop, token)
        self._kept[token] = (pending, timer)
        while len(self._kept) > _MOST or sum(one.bytes for one, _ in self._kept.values()) > MOST_BYTES:
            self._drop(next(iter(self._kept)))
        return token

    def take(self, token: str, scope: Scope, told: Names) -> Pending | None:
        """The one that has been told up to there, once."""
        kept = self._kept.get(token)
        if kept is None or (kept[0].scope, kept[0].told) != (scope, told):
            return None
        self._drop(token)
        return kept[0]

    def clear(self) -> None:
        for token in [*self._kept]:
            self._drop(token)

    def _drop(self, token: str) -> None:
        self._kept.pop(token)[1].cancel()
