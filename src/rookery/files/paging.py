"""Keep listings that have more pages for a while, so that the next page need not start from the beginning."""

import asyncio
from dataclasses import dataclass, field

from rookery.files.entries import ListingRow, count_entries, split_rows
from rookery.files.gitignore import IgnoreChecker
from rookery.files.walk import PathNames, WalkScope
from rookery.system.ids import new_id

KEEP_SECONDS = 60.0
_MAX_KEPT = 8
MAX_KEPT_BYTES = 50_000_000
_BYTES_PER_ENTRY = 150


@dataclass
class PendingListing:
    """A listing of which the entries up to `sent_until` were sent.

    The entries in `pending_rows` come next, then those after `walked_until`.
    """

    scope: WalkScope
    ignore_checker: IgnoreChecker
    sent_until: PathNames
    walked_until: PathNames
    pending_rows: list[ListingRow] = field(default_factory=list[ListingRow])
    # The number of entries in these rows.
    count: int = 0
    has_more: bool = True

    @property
    def bytes(self) -> int:
        """About how much memory the listing takes."""
        return self.count * _BYTES_PER_ENTRY + len(self.ignore_checker.tracked) * 5

    def add(self, rows: list[ListingRow]) -> None:
        self.pending_rows += rows
        self.count += count_entries(rows)

    def take(self, limit: int) -> list[ListingRow]:
        """Remove and return the rows of the next page."""
        page, self.pending_rows = split_rows(self.pending_rows, limit)
        self.count -= min(limit, self.count)
        return page


class ListingCache:
    """Keeps pending listings for 60 seconds each.

    A listing that expires or is evicted is dropped; its cursor then continues by name.
    """

    def __init__(self) -> None:
        self._listings: dict[str, tuple[PendingListing, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._listings)

    def keep(self, pending: PendingListing) -> str:
        """Keep a listing and return the token by which to take it."""
        if pending.bytes > MAX_KEPT_BYTES // 2:
            pending.ignore_checker.reset()
        token = new_id()[:12]
        timer = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._drop, token)
        self._listings[token] = (pending, timer)
        while (
            len(self._listings) > _MAX_KEPT
            or sum(listing.bytes for listing, _ in self._listings.values()) > MAX_KEPT_BYTES
        ):
            self._drop(next(iter(self._listings)))
        return token

    def take(self, token: str, scope: WalkScope, sent_until: PathNames) -> PendingListing | None:
        """Remove and return the listing that was sent up to `sent_until`; None if there is none."""
        item = self._listings.get(token)
        if item is None or (item[0].scope, item[0].sent_until) != (scope, sent_until):
            return None
        self._drop(token)
        return item[0]

    def clear(self) -> None:
        for token in [*self._listings]:
            self._drop(token)

    def _drop(self, token: str) -> None:
        self._listings.pop(token)[1].cancel()
