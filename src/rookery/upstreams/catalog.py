"""The catalog of one server: listed on connect, and again when the server reports a change or a list expires.

Until the first connection it is the stored one, if there is one. A server that reports changes all the time is listed
at growing intervals.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from rookery.gateway.entries import AcceptedEntries, read_entries
from rookery.gateway.provider import CAPABILITY, LISTS, Catalog, Kind
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.catalog_store import StoredCatalog
from rookery.wire.client.client import Client
from rookery.wire.protocol.messages import Notification, WireError
from rookery.wire.protocol.provider import ChangeNotifier, ListKind

if TYPE_CHECKING:
    from asyncio import Task


# Receives a description of a part of a server that cannot be used.
WarnCallback = Callable[[str], None]

_MAX_ENTRIES = 10_000

_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 5.0
_CHANGE_OF_KIND: Mapping[Kind, ListKind] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}


async def fetch_catalog(
    warn: WarnCallback, client: Client, kinds: Iterable[Kind] = tuple(LISTS), old: Catalog | None = None
) -> Catalog:
    """Return a new catalog with `kinds` as the server lists them now, and the rest as in `old`.

    Entries that are private to an authorization may be kept: only callers with the same credentials share a server.
    """
    lists: dict[str, Any] = {kind: old.entries(kind) for kind in LISTS} if old is not None else {}
    lifetimes: dict[Kind, float] = dict(old.lifetimes) if old is not None else {}
    problems: dict[Kind, Sequence[str]] = dict(old.problems) if old is not None else {}
    capabilities = dict(client.capabilities)
    supported: list[Kind] = [kind for kind in kinds if capabilities.get(CAPABILITY[kind]) is not None]
    if "tools" in kinds and "tools" not in supported:
        # Some servers have tools although they declare none, and most clients ask for them all the same.
        undeclared = await _list_undeclared(client)
        if undeclared.entries:
            capabilities["tools"] = {}
            lists["tools"], problems["tools"] = undeclared
    # Concurrently, so that a slow list does not delay the others.
    results = await asyncio.gather(*(_list(warn, client, kind) for kind in supported))
    for kind, (accepted, lifetime) in zip(supported, results, strict=True):
        lists[kind], problems[kind] = accepted
        capability: Any = capabilities[CAPABILITY[kind]]
        if lifetime is not None and not (isinstance(capability, dict) and capability.get("listChanged")):  # pyright: ignore[reportUnknownMemberType]
            lifetimes[kind] = lifetime
    return Catalog(
        **lists,
        capabilities=capabilities,
        info=client.info,
        instructions=client.instructions,
        lifetimes=lifetimes,
        problems=problems,
    )


def restore_catalog(stored: StoredCatalog) -> Catalog:
    """Return a stored catalog. Its lists have no lifetime: they are listed again on the next connection."""
    accepted: dict[Kind, AcceptedEntries] = {kind: read_entries(kind, stored.entries(kind)) for kind in LISTS}
    lists: dict[str, Any] = {kind: entries for kind, (entries, _) in accepted.items()}
    return Catalog(
        **lists,
        capabilities=stored.capabilities,
        info=stored.info,
        instructions=stored.instructions,
        problems={kind: problems for kind, (_, problems) in accepted.items()},
    )


async def _list(warn: WarnCallback, client: Client, kind: Kind) -> tuple[AcceptedEntries, float | None]:
    method, key, _ = LISTS[kind]
    try:
        items = await client.list_all(method, key)
        if len(items) > _MAX_ENTRIES:
            raise RookeryError("upstream-failed", f"it lists {len(items)} {kind}; the limit is {_MAX_ENTRIES}")
    except (RookeryError, WireError) as error:
        if kind == "tools":
            raise RookeryError("upstream-failed", f"Failed to get tools: {error}") from None
        # A server is useful without its prompts or resources; some declare lists that they do not have.
        warn(f"{kind} cannot be listed: {error}")
        return AcceptedEntries([], []), None
    return read_entries(kind, items), items.ttl_seconds


async def _list_undeclared(client: Client) -> AcceptedEntries:
    """Return the tools of a server that declares none. A server without tools may answer anything."""
    method, key, _ = LISTS["tools"]
    try:
        items = await client.list_all(method, key)
    except (RookeryError, WireError):
        return AcceptedEntries([], [])
    entries, problems = read_entries("tools", items[:_MAX_ENTRIES])
    return AcceptedEntries(entries, ["it lists tools, but does not declare the capability `tools`", *problems])


class Throttle:
    """Calls `action` at once when asked, but after growing pauses if it is asked again and again."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._pause = _MIN_PAUSE_SECONDS
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def trigger(self) -> None:
        """Call `action` now, or after the current pause."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now < self._next:
            if self._timer is None:
                self._timer = loop.call_at(self._next, self._on_timer)
            return
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS) if now < self._next + self._pause else _MIN_PAUSE_SECONDS
        self._next = now + self._pause
        self._action()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.trigger()


_KINDS_BY_NOTIFICATION: Mapping[str, tuple[Kind, ...]] = {
    f"notifications/{change}/list_changed": tuple(kind for kind in LISTS if _CHANGE_OF_KIND[kind] == change)
    for change in set(_CHANGE_OF_KIND.values())
}


class _Updated(msgspec.Struct):
    uri: str


class CatalogReview(Protocol):
    """Decides what of the catalogs of one server is served."""

    def review_stored(self, catalog: Catalog) -> Catalog | None:
        """Return what is served of a catalog that was listed before Rookery started; None if that is not known."""
        ...

    async def review(self, catalog: Catalog) -> Catalog:
        """Return what is served of a catalog that was just listed. Raise if that cannot be decided."""
        ...

    def list_findings(self) -> Sequence[str]:
        """Return what was found in the definitions that were listed last, as messages that quote nothing."""
        ...


class ServeAll:
    """Serves everything."""

    def review_stored(self, catalog: Catalog) -> Catalog | None:
        return catalog

    async def review(self, catalog: Catalog) -> Catalog:
        return catalog

    def list_findings(self) -> Sequence[str]:
        return ()


class ServerCatalog:
    """Lists one server and notifies its views.

    `fail` is called if a connected server can no longer be listed, `warn` if only a part of it cannot, `on_listed`
    when a connected server was listed again, `log` for each definition that was repaired or left out. `stored` is what
    the server listed before Rookery started.

    `listed` is what the server listed last, `catalog` what `review` serves of it. Nothing is served that was not
    reviewed, and what was reviewed is what is served: it is not listed a second time in between.
    """

    def __init__(
        self,
        warn: WarnCallback,
        tasks: TaskSet,
        fail: Callable[[Client, RookeryError], Awaitable[None]],
        on_listed: Callable[[], None],
        log: WarnCallback,
        stored: StoredCatalog | None,
        review: CatalogReview,
    ) -> None:
        self.changes = ChangeNotifier()
        self.listed: Catalog | None = None
        self.catalog: Catalog | None = None
        self._review = review
        self._reviewing = asyncio.Lock()
        self._warn = warn
        self._tasks = tasks
        self._fail = fail
        self._on_listed = on_listed
        self._log = log
        if stored is not None:
            restored = restore_catalog(stored)
            if (reviewed := review.review_stored(restored)) is not None:
                self._accept(restored, reviewed)
        # The catalog that the views were last notified of.
        self._published = self.catalog
        self._client: Client | None = None
        self._stale: set[Kind] = set()
        self._expires: dict[Kind, float] = {}
        self._relisting: Task[bool] | None = None
        self._throttle = Throttle(self._start_relisting)

    async def list_all(self, client: Client) -> None:
        """List everything on a new connection."""
        self._client = None
        self._stale.clear()
        await self._fetch(client, set(LISTS))

    def refresh(self) -> "Task[bool] | None":
        """Start to list again what has expired. Return the task to wait for, or None if everything is current."""
        if self._expires:
            now = SYSTEM_CLOCK.monotonic()
            self._stale |= {kind for kind, until in self._expires.items() if until <= now}
            self._start_relisting()
        return self._relisting if self._relisting is not None and not self._relisting.done() else None

    def set_client(self, client: Client | None) -> None:
        """Set the current connection, or None. Changes that it reported before are listed now."""
        self._client = client
        if client is None:
            self._throttle.close()
        elif self._stale:
            self._throttle.trigger()

    def on_notification(self, message: Notification) -> None:
        """Handle a notification of the server that belongs to no call."""
        if message.method == "notifications/resources/updated":
            self.changes.resource_updated(msgspec.json.decode(message.params, type=_Updated).uri)
        elif kinds := _KINDS_BY_NOTIFICATION.get(message.method):
            self._stale |= set(kinds)
            self._throttle.trigger()

    def publish(self, *, visible: bool) -> None:
        """Notify the views of what was added, removed or changed since the last notification."""
        before, self._published = self._published, self.catalog if visible else None
        self._announce(before, self._published)

    async def review_again(self) -> bool:
        """Review what the server listed last after a decision of the user. Return whether something else is served."""
        async with self._reviewing:
            if self.listed is None:
                return False
            before, self.catalog = self.catalog, await self._review.review(self.listed)
        if self._published is None or before == self.catalog:
            return before != self.catalog
        self._published = self.catalog
        self._announce(before, self.catalog)
        return True

    def _announce(self, before: Catalog | None, after: Catalog | None, kinds: Iterable[Kind] = tuple(LISTS)) -> None:
        before = before or Catalog()
        after = after or Catalog()
        changed: set[Kind] = {kind for kind in kinds if before.entries(kind) != after.entries(kind)}
        if before.instructions != after.instructions or before.withheld != after.withheld:
            # No list has them, and views learn of them with the tools.
            changed.add("tools")
        self._notify(changed)

    def _start_relisting(self) -> None:
        if self._stale and self._client is not None and (self._relisting is None or self._relisting.done()):
            self._relisting = self._tasks.start(self._relist(self._client), "list")
            self._relisting.add_done_callback(lambda _: self._stale and self._throttle.trigger())

    async def _relist(self, client: Client) -> bool:
        kinds, self._stale = self._stale, set()
        expired = kinds & self._expires.keys()
        before = self.catalog
        try:
            await self._fetch(client, kinds)
        except RookeryError as error:
            await self._fail(client, error)
            return False
        if self._published is not None:
            self._published = self.catalog
        self._on_listed()
        # Changes that the server reported are always announced; expired lists only if they differ.
        self._notify(kinds - expired)
        self._announce(before, self.catalog, expired)
        return True

    async def _fetch(self, client: Client, kinds: set[Kind]) -> None:
        catalog = await fetch_catalog(self._warn, client, kinds, self.listed if self._client is not None else None)
        async with self._reviewing:
            self._accept(catalog, await self._review.review(catalog))
        now = SYSTEM_CLOCK.monotonic()
        self._expires = {
            kind: now + seconds if kind in kinds else self._expires[kind] for kind, seconds in catalog.lifetimes.items()
        }

    def _accept(self, listed: Catalog, reviewed: Catalog) -> None:
        """Serve what was reviewed of a catalog. Each passes here before it is served or stored."""
        known = {problem for found in self.listed.problems.values() for problem in found} if self.listed else set[str]()
        for problem in (problem for found in listed.problems.values() for problem in found if problem not in known):
            self._log(problem)
        self.listed = listed
        self.catalog = reviewed

    def _notify(self, kinds: set[Kind]) -> None:
        changes: set[ListKind] = {_CHANGE_OF_KIND[kind] for kind in kinds}
        for change in changes:
            self.changes.list_changed(change)
