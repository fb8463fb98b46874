"""The catalogs of servers in the store, for the first list after a start.

A catalog belongs to one definition with its credentials, in one directory. It is what the server listed last.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.provider import LISTS, Catalog, Kind
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.upstreams.config.definition import Definition
from rookery.wire.client.connect import Era

logger = logging.getLogger("rookery.mcp.servers")

_DAY_SECONDS = 86_400.0
_KEPT_SECONDS = 60 * _DAY_SECONDS

# The name, the digest of program and credentials, and the directory of a server.
CatalogKey = tuple[str, str, str]


class StoredCatalog(msgspec.Struct, frozen=True):
    """What a server listed, and how it described itself. `era` is how it is connected, `revision` is shown as such."""

    tools: Sequence[Raw] = ()
    prompts: Sequence[Raw] = ()
    resources: Sequence[Raw] = ()
    templates: Sequence[Raw] = ()
    capabilities: dict[str, Any] = {}
    info: dict[str, Any] = {}
    instructions: str | None = None
    era: Era | None = None
    revision: str | None = None

    def entries(self, kind: Kind) -> Sequence[Raw]:
        return getattr(self, kind)


def encode_catalog(catalog: Catalog, era: Era | None, revision: str | None) -> bytes:
    """Return a catalog as it is stored."""
    lists: dict[str, Any] = {kind: [entry.raw for entry in catalog.entries(kind)] for kind in LISTS}
    stored = StoredCatalog(
        **lists,
        capabilities=dict(catalog.capabilities),
        info=dict(catalog.info),
        instructions=catalog.instructions,
        era=era,
        revision=revision,
    )
    return msgspec.json.encode(stored)


def catalog_key(definition: Definition, directory: Path) -> CatalogKey:
    return definition.name, definition.digest, str(directory)


class CatalogStore:
    """Loads stored catalogs before their servers are made, and saves what servers list."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks = TaskSet("catalogs")
        # Loaded, and not taken by a server yet.
        self._loaded: dict[CatalogKey, bytes] = {}
        # What the store has of each server that has listed since the start.
        self._saved: dict[CatalogKey, bytes] = {}

    async def prune(self) -> None:
        """Delete the catalogs of servers that have not been used for two months."""
        before = SYSTEM_CLOCK.wall() - _KEPT_SECONDS
        await self._store.write(lambda db: db.execute("DELETE FROM catalogs WHERE at < ?", (before,)))

    async def load(self, keys: Iterable[CatalogKey]) -> None:
        """Load the catalogs with these keys, for `find`. What cannot be read counts as missing."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._loaded]
        if not missing:
            return
        query = "SELECT listed FROM catalogs WHERE name = ? AND digest = ? AND directory = ?"
        try:
            rows = await self._store.read(lambda db: [db.execute(query, key).fetchone() for key in missing])
        except RookeryError as error:
            logger.warning("stored catalogs cannot be read: %s", error.message)
            return
        self._loaded |= {key: row[0] for key, row in zip(missing, rows, strict=True) if row is not None}

    def find(self, key: CatalogKey, *, keep: bool) -> StoredCatalog | None:
        """Return a loaded catalog. Without `keep` it is needed only once."""
        encoded = self._loaded.get(key) if keep else self._loaded.pop(key, None)
        if encoded is None:
            return None
        try:
            return msgspec.json.decode(encoded, type=StoredCatalog)
        except (msgspec.DecodeError, RecursionError):
            logger.warning("the stored catalog of %s cannot be read", key[0])
            return None

    def save(self, key: CatalogKey, catalog: Catalog, era: Era | None, revision: str | None) -> None:
        """Store a catalog in the background, unless the store has it already."""
        encoded = encode_catalog(catalog, era, revision)
        if self._saved.get(key) != encoded:
            self._saved[key] = encoded
            self._tasks.start(self._write(key, encoded), f"save {key[0]}")

    def forget(self, name: str) -> None:
        """Delete all catalogs of a server in the background, because they may belong to another account."""
        for catalogs in (self._loaded, self._saved):
            for key in [key for key in catalogs if key[0] == name]:
                del catalogs[key]
        self._tasks.start(self._delete(name), f"forget {name}")

    async def close(self) -> None:
        await self._tasks.wait_all()

    async def _write(self, key: CatalogKey, encoded: bytes) -> None:
        row = (*key, encoded, SYSTEM_CLOCK.wall())
        await self._change("INSERT OR REPLACE INTO catalogs VALUES (?, ?, ?, ?, ?)", row)

    async def _delete(self, name: str) -> None:
        await self._change("DELETE FROM catalogs WHERE name = ?", (name,))

    async def _change(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            await self._store.write(lambda db: db.execute(statement, values), durable=False)
        except RookeryError as error:
            # The servers work without it; only the next start has to wait for them.
            logger.warning("a catalog cannot be stored: %s", error.message)
