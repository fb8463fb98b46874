"""The running servers: one for each definition, directory and session, shared by all of its users."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rookery.system.tasks import TaskSet
from rookery.upstreams.catalog import CatalogReview, ServeAll
from rookery.upstreams.catalog_store import CatalogStore, catalog_key
from rookery.upstreams.config.definition import Definition
from rookery.upstreams.connect import Connector
from rookery.upstreams.oauth.credentials import SignInTarget
from rookery.upstreams.server import Server
from rookery.upstreams.starts import StartQueue

logger = logging.getLogger("rookery.mcp.servers")

# Identifies a server: its name, the digest of program and credentials, the directory and the session.
PoolKey = tuple[str, str, Path, str | None]


class CatalogGuard(Protocol):
    """Decides what of the catalogs of servers is served."""

    async def prepare(self) -> None:
        """Load what is needed to decide about stored catalogs."""
        ...

    def make_review(self, definition: Definition, directory: Path, checkout: Path | None) -> CatalogReview:
        """Return the review of one server in a directory. `checkout` is where it was defined."""
        ...


class NoGuard:
    """Serves everything."""

    async def prepare(self) -> None:
        """Do nothing: nothing is needed."""

    def make_review(self, definition: Definition, directory: Path, checkout: Path | None) -> CatalogReview:
        return ServeAll()


@dataclass
class _PoolEntry:
    server: Server
    users: int = 0


@dataclass
class ServerPool:
    """The running servers, and how many users each has.

    `on_status_changed` is called when the status of a server changes. What servers list is kept in `catalogs`, and what
    of it is served is decided by `guard`.
    """

    connector: Connector
    catalogs: CatalogStore
    on_status_changed: Callable[[Server], None]
    guard: CatalogGuard = field(default_factory=NoGuard)
    _entries: dict[PoolKey, _PoolEntry] = field(default_factory=dict[PoolKey, _PoolEntry])

    def __post_init__(self) -> None:
        self._tasks = TaskSet("pool")
        self._starts = StartQueue()
        self.connector.signins.on_changed = self._on_sign_in_changed

    def __len__(self) -> int:
        return len(self._entries)

    async def load_catalogs(self, servers: Iterable[tuple[Definition, Path]]) -> None:
        """Load the stored catalogs of servers that are taken next, in the given directories."""
        await self.guard.prepare()
        running = {key[:3] for key in self._entries}
        await self.catalogs.load(
            catalog_key(definition, directory)
            for definition, directory in servers
            if _key(definition, directory, None)[:3] not in running
        )

    def take(self, definition: Definition, directory: Path, session: str | None, checkout: Path | None) -> Server:
        """Return the server for these arguments, created on first use. The caller must give it back.

        `checkout` is where the server was defined.
        """
        key = _key(definition, directory, session)
        if key not in self._entries:
            stored_key = catalog_key(definition, directory)
            server = Server(
                definition,
                directory,
                self.connector,
                self.on_status_changed,
                checkout,
                starts=self._starts,
                stored=self.catalogs.find(stored_key, keep=session is not None),
                on_listed=self._save_catalog,
                review=self.guard.make_review(definition, directory, checkout),
            )
            self._entries[key] = _PoolEntry(server)
        entry = self._entries[key]
        entry.users += 1
        return entry.server

    async def review_again(self, name: str | None = None) -> None:
        """Decide again what of the servers with this name is served; with None of all."""
        servers = [entry.server for entry in self._entries.values() if name in (None, entry.server.name)]
        results = await asyncio.gather(*(server.review_again() for server in servers), return_exceptions=True)
        for server, result in zip(servers, results, strict=True):
            if isinstance(result, BaseException):
                logger.error("what is served of %s cannot be decided: %s", server.name, result)

    def find(self, definition: Definition, directory: Path, session: str | None) -> Server | None:
        """Return the server for these arguments, or None. Creates nothing and counts no use."""
        entry = self._entries.get(_key(definition, directory, session))
        return entry.server if entry is not None else None

    def release(self, server: Server, *, retire: bool = False) -> asyncio.Task[None] | None:
        """Release a server. If it has no other user, stop it and return the task that does.

        With `retire`, the server reports no status changes while it stops.
        """
        key = next(key for key, entry in self._entries.items() if entry.server is server)
        self._entries[key].users -= 1
        if not self._entries[key].users:
            del self._entries[key]
            if retire:
                server.retire()
            return self._tasks.start(self._close(server), f"close {server.name}")
        return None

    async def close(self) -> None:
        """Close all servers concurrently. A failure to close one is logged and does not affect the others."""
        for entry in self._entries.values():
            self._tasks.start(self._close(entry.server), f"close {entry.server.name}")
        self._entries.clear()
        await self._tasks.wait_all()
        await self.connector.signins.close()
        await self.catalogs.close()

    def _save_catalog(self, server: Server) -> None:
        if (catalog := server.listed) is not None:
            key = catalog_key(server.definition, server.directory)
            self.catalogs.save(key, catalog, server.connection_era, server.era)

    def _on_sign_in_changed(self, target: SignInTarget, keep_connection: bool) -> None:
        if not keep_connection:
            self.catalogs.forget(target.name)
        for entry in self._entries.values():
            definition = entry.server.definition
            if (definition.name, definition.url) == target:
                self._tasks.start(entry.server.on_sign_in_changed(keep_connection), f"signed {definition.name}")

    async def _close(self, server: Server) -> None:
        try:
            await server.close()
        except Exception:
            logger.exception("%s was not closed properly", server.name)


def _key(definition: Definition, directory: Path, session: str | None) -> PoolKey:
    return definition.name, definition.digest, directory, session
