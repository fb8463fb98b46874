"""The findings in definitions, each scanned once: from memory, from the store, or from the scanner in a thread.

- `ReportStore.get(server, definitions, tools)` returns the findings of each definition, by its digest.

Rules that are switched off are scanned too, and their findings are left out by the caller: switching one on or off
needs no scan.
"""

import asyncio
import functools
import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rookery.guard.scan.definition import Definition, Kind
from rookery.guard.scan.findings import ScanFinding
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.store import Store

logger = logging.getLogger("rookery.guard")

_MOST_SECONDS = 10.0
_KEPT_SECONDS = 60 * 86_400.0
_findings = msgspec.json.Decoder(tuple[ScanFinding, ...])


class ScannedDefinition(NamedTuple):
    """A definition to scan, as JSON, with the digest that it is known by."""

    kind: Kind
    name: str
    digest: str
    content: bytes


class ReportStore:
    """Findings by server and digest. `most_seconds` limits the scan of one listing; what is beyond it is severe."""

    def __init__(self, store: Store, clock: Clock = SYSTEM_CLOCK, most_seconds: float = _MOST_SECONDS) -> None:
        self._store = store
        self._clock = clock
        self._most_seconds = most_seconds
        # One listing at a time: the same server may start in many workspaces at once.
        self._lock = asyncio.Lock()
        self._reports: dict[tuple[str, str], tuple[ScanFinding, ...]] = {}
        # How many definitions were scanned since the start.
        self.scanned = 0

    async def get(
        self, server: str, definitions: Sequence[ScannedDefinition], tools: Mapping[str, frozenset[str]]
    ) -> Mapping[str, Sequence[ScanFinding]]:
        """Return the findings of each definition, by digest. `tools` are those of all known servers, by their name."""
        async with self._lock:
            return await self._get(server, definitions, tools)

    async def _get(
        self, server: str, definitions: Sequence[ScannedDefinition], tools: Mapping[str, frozenset[str]]
    ) -> Mapping[str, Sequence[ScanFinding]]:
        await self._load(server, [item.digest for item in definitions if (server, item.digest) not in self._reports])
        missing = {item.digest: item for item in definitions if (server, item.digest) not in self._reports}
        unread: Mapping[str, Sequence[ScanFinding]] = {}
        if missing:
            scanned, unread = await asyncio.to_thread(
                _scan, server, list(missing.values()), tools, self._clock, self._most_seconds
            )
            self.scanned += len(scanned)
            self._reports |= {(server, digest): findings for digest, findings in scanned.items()}
            await self._save(server, scanned)
        return {
            item.digest: unread[item.digest] if item.digest in unread else self._reports[server, item.digest]
            for item in definitions
        }

    async def prune(self) -> None:
        """Delete reports that were made long ago. Definitions that are still listed are scanned once more."""
        before = self._clock.wall() - _KEPT_SECONDS
        await self._store.write(lambda db: db.execute("DELETE FROM scans WHERE at < ?", (before,)), durable=False)

    async def _load(self, server: str, digests: Sequence[str]) -> None:
        if not digests:
            return
        rules = compute_rules_version()
        query = "SELECT report FROM scans WHERE server = ? AND digest = ? AND rules = ?"
        try:
            rows = await self._store.read(
                lambda db: [db.execute(query, (server, digest, rules)).fetchone() for digest in digests]
            )
            for digest, row in zip(digests, rows, strict=True):
                if row is not None:
                    self._reports[server, digest] = _findings.decode(row[0])
        except (RookeryError, msgspec.DecodeError) as error:
            # They are scanned again.
            logger.warning("the findings of earlier scans cannot be read: %s", error)

    async def _save(self, server: str, scanned: Mapping[str, tuple[ScanFinding, ...]]) -> None:
        rules = compute_rules_version()
        now = self._clock.wall()
        rows = [(server, digest, rules, msgspec.json.encode(findings), now) for digest, findings in scanned.items()]
        statement = "INSERT OR REPLACE INTO scans VALUES (?, ?, ?, ?, ?)"
        try:
            await self._store.write(lambda db: db.executemany(statement, rows) and None, durable=False)
        except RookeryError as error:
            logger.warning("the findings of a scan cannot be stored: %s", error.message)


@functools.cache
def compute_rules_version() -> str:
    """Return a hash of the scanner's code and words: what another version found is not trusted."""
    hashed = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".txt")):
        hashed.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


def _scan(
    server: str,
    definitions: Sequence[ScannedDefinition],
    tools: Mapping[str, frozenset[str]],
    clock: Clock,
    most_seconds: float,
) -> tuple[dict[str, tuple[ScanFinding, ...]], dict[str, Sequence[ScanFinding]]]:
    """Return the findings by digest, and those of definitions that the time did not suffice for."""
    # Loaded on first use: the scanner's words and patterns take a while, and most starts need none of them.
    from rookery.guard.scan.scanner import Scanner

    scanner = Scanner(tools=tools)
    end = clock.monotonic() + most_seconds
    scanned: dict[str, tuple[ScanFinding, ...]] = {}
    unread: dict[str, Sequence[ScanFinding]] = {}
    for item in definitions:
        if clock.monotonic() > end:
            excerpt = f"the server lists more than can be scanned within {most_seconds:g} s"
            unread[item.digest] = [ScanFinding("limit", "severe", "", excerpt)]
            continue
        scanned[item.digest] = tuple(scanner.scan(_read(server, item)).findings)
    return scanned, unread


def _read(server: str, item: ScannedDefinition) -> Definition:
    import json

    try:
        value = json.loads(item.content.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        return Definition(item.kind, server, item.name, None, unread=f"the definition cannot be read: {error}")
    return Definition(item.kind, server, item.name, value)
