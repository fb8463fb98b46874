"""The pins in the store: what each server was first seen with, and what the user decided since.

A seal beside the store covers them. Pins that another program changed or removed do not count: then nothing is pinned
by itself any more, and every definition waits for the user.

- `PinStore.find(owner)` returns the pins of a server from memory.
- `PinStore.record(owner, ...)` adds what was pinned and what waits.
- `approve`, `block`, `trust` and `forget` are the decisions; `list_servers` returns everything.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from rookery.guard.pins.definition import DefinitionKey, compute_digest
from rookery.guard.pins.records import Pin, PinnedBy, PinnedServer, PinOwner, SeenDefinition, WithheldReason
from rookery.guard.seal import Seal, compute_mark
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.system.text import escape_invisible

logger = logging.getLogger("rookery.guard")

T = TypeVar("T")

SEAL_FILE = "pins.seal"
# A definition may have several contents that are pinned, such as one for each account. Older ones are dropped.
_MOST_CONTENTS = 16
_MOST_NAME = 80
_ELLIPSIS = "\u2026"


class _Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


class PinChanges(NamedTuple):
    """What a listing changes: contents to pin, contents that wait, and definitions for which none waits any more."""

    pinned: "list[SeenDefinition]"
    waiting: "list[tuple[SeenDefinition, WithheldReason]]"
    settled: "list[DefinitionKey]"


@dataclass
class ServerPins:
    """The pins of one server, to compare its definitions with.

    `at` is when it was first listed, 0 if the next listing is the first. `pinned` has who pinned each digest, `waiting`
    the digest and why it waits.
    """

    at: float
    additions: bool = False
    blocked: bool = False
    pinned: dict[DefinitionKey, dict[str, str]] = field(default_factory=dict[DefinitionKey, dict[str, str]])
    waiting: dict[DefinitionKey, tuple[str, str]] = field(default_factory=dict[DefinitionKey, tuple[str, str]])
    blocked_definitions: set[DefinitionKey] = field(default_factory=set[DefinitionKey])


class PinStore:
    """The pins, protected by a seal beside the store and cached in memory without their contents."""

    def __init__(self, store: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock
        self._seal = make_seal(store.path)
        self._servers: dict[PinOwner, ServerPins] | None = None
        self._lost = False
        self._problem = (
            f"the pins of MCP servers in {store.path}, or their seal {self._seal.path}, were lost or changed from"
            " outside: all definitions of all servers are withheld until you approve them: rookery guard approve --all"
        )
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the pins into memory."""
        await self._get_all()

    def get_loaded(self, owner: PinOwner) -> ServerPins | None:
        """Return the pins of a server from memory; None if it has never been listed, or nothing is loaded."""
        return self._servers.get(owner) if self._servers is not None else None

    def list_tools(self) -> dict[str, frozenset[str]]:
        """Return the names of the pinned tools of each server, by its name."""
        tools: dict[str, frozenset[str]] = {}
        for owner, server in (self._servers or {}).items():
            names = frozenset(key.name for key in server.pinned if key.kind == "tool")
            tools[owner.name] = tools.get(owner.name, frozenset()) | names
        return tools

    async def find(self, owner: PinOwner) -> ServerPins | None:
        """Return the pins of a server; None if it has never been listed. Raise if the pins cannot be read."""
        return (await self._get_all()).get(owner)

    async def are_lost(self) -> bool:
        """Return whether the pins were lost or changed from outside, so that no first listing can be trusted."""
        await self._get_all()
        return self._lost

    async def list_servers(self) -> list[PinnedServer]:
        """Return all servers with their pins and the contents. A content that does not fit its digest is left out."""

        def read(db: _Db) -> list[PinnedServer]:
            if not self._matches_seal(db, _read_sealed_rows(db)):
                return []
            pins: dict[PinOwner, list[Pin]] = {}
            for row in db.execute(
                "SELECT name, place, program, kind, definition, digest, state, by, reason, version, at, content"
                " FROM pins ORDER BY kind, definition, at"
            ).fetchall():
                pin = Pin(*row[3:])
                if pin.state == "blocked" or compute_digest(pin.content) == pin.digest:
                    pins.setdefault(PinOwner(*row[:3]), []).append(pin)
            return [
                _read_server(row, pins.get(PinOwner(*row[:3]), []))
                for row in db.execute(
                    "SELECT name, place, program, at, additions, blocked FROM pinned_servers ORDER BY name, place, at"
                ).fetchall()
            ]

        return await self._store.read(read)

    async def record(self, owner: PinOwner, changes: PinChanges, *, version: str, by: PinnedBy = "first") -> None:
        """Record what a server listed: what is pinned from now on, and what waits. It replaces what waited before."""
        now = self._clock.wall()

        def run(db: _Db) -> None:
            _add_server(db, owner, now)
            for seen in changes.pinned:
                _pin(db, owner, seen, by, version, now)
            for seen, reason in changes.waiting:
                _drop_waiting(db, owner, seen.key)
                _insert(db, owner, seen, "waiting", "", reason, version, now)
            for key in changes.settled:
                _drop_waiting(db, owner, key)

        await self._change(run)

    async def approve(
        self, owner: PinOwner, digests: Mapping[DefinitionKey, str], *, server: bool = False
    ) -> list[DefinitionKey]:
        """Pin the waiting contents with these digests, and unblock these definitions; with `server` also the server.

        Return what was released. Raise `needs-approval` if another content waits than the one that was shown.
        """
        now = self._clock.wall()

        def run(db: _Db) -> list[DefinitionKey]:
            if server:
                db.execute("UPDATE pinned_servers SET blocked = 0 WHERE (name, place, program) = (?, ?, ?)", owner)
            for key, digest in digests.items():
                row = db.execute(
                    "SELECT content, version FROM pins WHERE (name, place, program) = (?, ?, ?)"
                    " AND kind = ? AND definition = ? AND digest = ?"
                    " AND state = 'waiting'",
                    (*owner, *key, digest),
                ).fetchone()
                unblocked = db.execute(
                    "DELETE FROM pins WHERE (name, place, program) = (?, ?, ?)"
                    " AND kind = ? AND definition = ? AND state = 'blocked'",
                    (*owner, *key),
                )
                if row is None and not unblocked.rowcount:
                    raise RookeryError(
                        "needs-approval",
                        f"{describe_key(key)} of {owner.name} has changed since it was shown",
                        f"look at it again: rookery guard diff {owner.name}",
                    )
                if row is not None:
                    _pin(db, owner, SeenDefinition(key, digest, row[0]), "terminal", row[1], now)
            return list(digests)

        released = await self._change(run)
        logger.info("approved: %d definitions of %s", len(released), owner.name)
        return released

    async def block(self, owner: PinOwner, keys: Collection[DefinitionKey] | None) -> None:
        """Withhold these definitions whatever they contain; with None the whole server."""
        now = self._clock.wall()

        def run(db: _Db) -> None:
            _add_server(db, owner, 0.0)
            if keys is None:
                db.execute("UPDATE pinned_servers SET blocked = 1 WHERE (name, place, program) = (?, ?, ?)", owner)
            for key in keys or ():
                _insert(db, owner, SeenDefinition(key, "", b""), "blocked", "terminal", "", "", now)

        await self._change(run)
        logger.info("blocked: %s of %s", "all" if keys is None else ", ".join(map(describe_key, keys)), owner.name)

    async def trust(self, owner: PinOwner, *, additions: bool) -> None:
        """Decide whether new definitions of a server are pinned without asking."""

        def run(db: _Db) -> None:
            _add_server(db, owner, 0.0)
            db.execute(
                "UPDATE pinned_servers SET additions = ? WHERE (name, place, program) = (?, ?, ?)",
                (int(additions), *owner),
            )

        await self._change(run)

    async def forget(self, owner: PinOwner) -> None:
        """Forget what a server listed, so that the next listing pins again. What is blocked stays blocked."""

        def run(db: _Db) -> None:
            db.execute("DELETE FROM pins WHERE (name, place, program) = (?, ?, ?) AND state != 'blocked'", owner)
            db.execute(
                "DELETE FROM pinned_servers WHERE (name, place, program) = (?, ?, ?)"
                " AND blocked = 0 AND additions = 0 AND NOT EXISTS"
                " (SELECT 1 FROM pins WHERE pins.name = pinned_servers.name AND pins.place = pinned_servers.place"
                " AND pins.program = pinned_servers.program)",
                owner,
            )
            db.execute("UPDATE pinned_servers SET at = 0 WHERE (name, place, program) = (?, ?, ?)", owner)

        await self._change(run)

    async def accept_loss(self) -> None:
        """Pin first listings by themselves again, after the pins were lost."""
        await self._change(lambda db: db.execute("DELETE FROM pin_losses") and None)
        if self._problem in self._store.problems:
            self._store.problems.remove(self._problem)

    # Store and memory

    async def _get_all(self) -> dict[PinOwner, ServerPins]:
        if self._servers is None:
            async with self._lock:
                if self._servers is None:
                    self._lost, self._servers = await self._store.write(self._load)
        return self._servers

    async def _change(self, edit: Callable[[_Db], T]) -> T:
        """Run `edit` in a transaction, seal the result, and read it into memory."""

        def run(db: _Db) -> T:
            self._discard_if_lost(db)
            before = compute_mark(_read_sealed_rows(db))
            result = edit(db)
            after = compute_mark(_read_sealed_rows(db))
            if after != before:
                self._seal.write(before, after)
            return result

        async with self._lock:
            try:
                result = await self._store.write(run)
                self._lost, self._servers = await self._store.write(self._load, durable=False)
            except BaseException:
                # Also after a cancellation: only the store knows whether the change was made.
                self._servers = None
                raise
        return result

    def _load(self, db: _Db) -> tuple[bool, dict[PinOwner, ServerPins]]:
        self._discard_if_lost(db)
        if len(self._seal.read_marks() or []) != 1:
            self._seal.write(compute_mark(_read_sealed_rows(db)))
        return _read(db)

    def _discard_if_lost(self, db: _Db) -> None:
        if self._matches_seal(db, _read_sealed_rows(db)):
            return
        logger.error("%s", self._problem)
        if self._problem not in self._store.problems:
            self._store.problems.append(self._problem)
        db.execute("DELETE FROM pins")
        db.execute("DELETE FROM pinned_servers")
        db.execute("INSERT OR REPLACE INTO pin_losses VALUES (?)", (self._clock.wall(),))
        self._seal.write(compute_mark(_read_sealed_rows(db)))

    def _matches_seal(self, db: _Db, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Return whether the tables match their seal. A store of an earlier version has neither pins nor a seal."""
        marks = self._seal.read_marks()
        if marks is None:
            return "pins" in self._store.applied_migrations and not rows
        return compute_mark(rows) in marks


def make_seal(store: Path) -> Seal:
    """Return the seal of the pins in the store at this path."""
    return Seal(store.with_name(SEAL_FILE))


def describe_key(key: DefinitionKey) -> str:
    """Return a definition as messages name it. A name may be long, and may hide something."""
    if not key.name:
        return key.kind
    name = escape_invisible(key.name)
    return f"{key.kind} '{name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + _ELLIPSIS}'"


def _read_server(row: Sequence[Any], pins: Sequence[Pin]) -> PinnedServer:
    name, place, program, at, additions, blocked = row
    return PinnedServer(name, place, program, at, bool(additions), bool(blocked), pins)


def _read(db: _Db) -> tuple[bool, dict[PinOwner, ServerPins]]:
    lost = db.execute("SELECT 1 FROM pin_losses").fetchone() is not None
    servers = {
        PinOwner(*row[:3]): ServerPins(row[3], bool(row[4]), bool(row[5]))
        for row in db.execute("SELECT name, place, program, at, additions, blocked FROM pinned_servers").fetchall()
    }
    for row in db.execute(
        "SELECT name, place, program, kind, definition, digest, state, by, reason FROM pins"
    ).fetchall():
        server = servers.get(PinOwner(*row[:3]))
        key = DefinitionKey(*row[3:5])
        if server is None:
            continue
        digest, state, by, reason = row[5:]
        if state == "pinned":
            server.pinned.setdefault(key, {})[digest] = by
        elif state == "waiting":
            server.waiting[key] = digest, reason
        else:
            server.blocked_definitions.add(key)
    return lost, servers


def _read_sealed_rows(db: _Db) -> list[tuple[Any, ...]]:
    """Return all sealed rows. What waits is not sealed: it is served to nobody, and approved by its digest."""
    servers = db.execute("SELECT name, place, program, additions, blocked FROM pinned_servers").fetchall()
    pins = db.execute(
        "SELECT name, place, program, kind, definition, digest, state, by FROM pins WHERE state != 'waiting'"
    ).fetchall()
    losses = db.execute("SELECT at FROM pin_losses").fetchall()
    return [
        *(("server", *row) for row in servers),
        *(("pin", *row) for row in pins),
        *(("loss", *row) for row in losses),
    ]


def _add_server(db: _Db, owner: PinOwner, now: float) -> None:
    """Add a server that was listed `now`; 0 if it was not listed yet."""
    db.execute(
        "INSERT INTO pinned_servers (name, place, program, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET at = excluded.at WHERE at = 0",
        (*owner, now),
    )


def _insert(
    db: _Db, owner: PinOwner, seen: SeenDefinition, state: str, by: str, reason: str, version: str, now: float
) -> None:
    values = (*owner, *seen.key, seen.digest, state, by, reason, version, now, seen.content)
    db.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _drop_waiting(db: _Db, owner: PinOwner, key: DefinitionKey) -> None:
    db.execute(
        "DELETE FROM pins WHERE (name, place, program) = (?, ?, ?)"
        " AND kind = ? AND definition = ? AND state = 'waiting'",
        (*owner, *key),
    )


def _pin(db: _Db, owner: PinOwner, seen: SeenDefinition, by: str, version: str, now: float) -> None:
    _drop_waiting(db, owner, seen.key)
    _insert(db, owner, seen, "pinned", by, "", version, now)
    old = db.execute(
        "SELECT digest FROM pins WHERE (name, place, program) = (?, ?, ?)"
        " AND kind = ? AND definition = ? AND state = 'pinned' ORDER BY at DESC LIMIT -1 OFFSET ?",
        (*owner, *seen.key, _MOST_CONTENTS),
    ).fetchall()
    for (digest,) in old:
        db.execute(
            "DELETE FROM pins WHERE (name, place, program) = (?, ?, ?) AND kind = ? AND definition = ? AND digest = ?",
            (*owner, *seen.key, digest),
        )
