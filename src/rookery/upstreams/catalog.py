"""What a server offers now: listed when it connects, and anew when it says that a list has changed."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from rookery.gateway.catalog import LISTS, Catalog, Kind
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.listing import Warn, fetch
from rookery.upstreams.pace import Pace
from rookery.wire.client import Client
from rookery.wire.jsonrpc import Notification
from rookery.wire.provider import Change, Changes

if TYPE_CHECKING:
    from asyncio import Task

_CHANGE: Mapping[Kind, Change] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}
_RELISTED: Mapping[str, tuple[Kind, ...]] = {
    f"notifications/{change}/list_changed": tuple(kind for kind in LISTS if _CHANGE[kind] == change)
    for change in set(_CHANGE.values())
}


class _Updated(msgspec.Struct):
    uri: str


class Offer:
    """`fail` is called where a server that was connected can no longer be listed, `warn` where a part of it cannot."""

    def __init__(self, warn: Warn, tasks: TaskSet, fail: Callable[[Client, RookeryError], Awaitable[None]]) -> None:
        self.changes = Changes()
        self.catalog: Catalog | None = None
        self._warn = warn
        self._tasks = tasks
        self._fail = fail
        # What the views were last told of.
        self._shown: Catalog | None = None
        self._client: Client | None = None
        self._stale: set[Kind] = set()
        self._expires: dict[Kind, float] = {}
        self._relisting: Task[bool] | None = None
        self._pace = Pace(self._begin)

    async def list_all(self, client: Client) -> None:
        """A new connection: list everything."""
        self._client = None
        self._stale.clear()
        await self._fetch(client, set(LISTS))

    def refresh(self) -> "Task[bool] | None":
        """Somebody wants it: list anew what may not be kept any longer. What to wait for, None where all is fresh."""
        if self._expires:
            now = SYSTEM_CLOCK.monotonic()
            self._stale |= {kind for kind, until in self._expires.items() if until <= now}
            self._begin()
        return self._relisting if self._relisting is not None and not self._relisting.done() else None

    def stand(self, client: Client | None) -> None:
        """The connection counts from now on, or no longer; what it said before that is caught up with."""
        self._client = client
        if client is None:
            self._pace.close()
        elif self._stale:
            self._pace.ask()

    def heard(self, message: Notification) -> None:
        """What the server says of its own accord, and of no call."""
        if message.method == "notifications/resources/updated":
            self.changes.resource_updated(msgspec.json.decode(message.params, type=_Updated).uri)
        elif kinds := _RELISTED.get(message.method):
            self._stale |= set(kinds)
            self._pace.ask()

    def show(self, *, visible: bool) -> None:
        """Tell the views what has come, gone or become different since they were last told."""
        before, self._shown = self._shown, self.catalog if visible else None
        self._announce(before, self._shown)

    def _announce(self, before: Catalog | None, after: Catalog | None, kinds: Iterable[Kind] = tuple(LISTS)) -> None:
        nothing = Catalog()
        self._tell({kind for kind in kinds if (before or nothing).of(kind) != (after or nothing).of(kind)})

    def _begin(self) -> None:
        if self._stale and self._client is not None and (self._relisting is None or self._relisting.done()):
            self._relisting = self._tasks.start(self._relist(self._client), "list")
            self._relisting.add_done_callback(lambda _: self._stale and self._pace.ask())

    async def _relist(self, client: Client) -> bool:
        kinds, self._stale = self._stale, set()
        expired = kinds & self._expires.keys()
        before = self.catalog
        try:
            await self._fetch(client, kinds)
        except RookeryError as error:
            await self._fail(client, error)
            return False
        if self._shown is not None:
            self._shown = self.catalog
        # What its server did not speak of is only told where it is really another one.
        self._tell(kinds - expired)
        self._announce(before, self.catalog, expired)
        return True

    async def _fetch(self, client: Client, kinds: set[Kind]) -> None:
        catalog = await fetch(self._warn, client, kinds, self.catalog if self._client is not None else None)
        now = SYSTEM_CLOCK.monotonic()
        self._expires = {
            kind: now + seconds if kind in kinds else self._expires[kind] for kind, seconds in catalog.lives.items()
        }
        self.catalog = catalog

    def _tell(self, kinds: set[Kind]) -> None:
        changes: set[Change] = {_CHANGE[kind] for kind in kinds}
        for change in changes:
            self.changes.list_changed(change)
