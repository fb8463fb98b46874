"""The audit in its SQLite file: append blocks, remove old ones, find records, verify the chain.

All functions run in the thread of the store, within one of its transactions.
"""

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, get_args

import msgspec

from rookery.guard.audit.chain import AuditKeys, Block, NewRecord, Origin, SeriesEnds, decode_records, encode_block
from rookery.guard.audit.records import AuditFilter, AuditRecord, ChainFault, Series

SERIES: tuple[Series, ...] = get_args(Series)
# How much one step of a search or of a verification reads, before others get their turn.
_STEP_BYTES = 4 * 2**20
_MAX_BLOCK_RECORDS = 2000
# What a block costs beside its records.
_BLOCK_BYTES = 100

Rows = Sequence[tuple[Origin, NewRecord]]


class Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


@dataclass
class Archive:
    """Appends to the chains, and keeps them within their limits."""

    keys: AuditKeys
    _next: int = 0
    _bytes: dict[str, int] = field(default_factory=dict[str, int])
    # What this process has written last, to notice changes from outside. Empty before the first look.
    _ends: dict[str, SeriesEnds] = field(default_factory=dict[str, SeriesEnds])

    def load(self, db: Db) -> list[str]:
        """Read where the chains end. Return the series whose ends were not written by us."""
        rows = db.execute("SELECT series, SUM(length(records) + ?) FROM blocks GROUP BY series", (_BLOCK_BYTES,))
        self._bytes = dict(rows.fetchall())
        self._next = db.execute("SELECT COALESCE(MAX(first + count), 1) FROM blocks").fetchone()[0]
        broken: list[str] = []
        for series in SERIES:
            ends, seal = read_ends(db, series)
            if seal is not None and not ends.is_sealed(self.keys, series, seal):
                broken.append(series)
                # The next block is not linked to an end that anybody may have written: the break stays visible.
                ends = msgspec.structs.replace(ends, head=self.keys.link("broken", ends.head))
            if seal is not None:
                self._ends[series] = ends
            self._next = max(self._next, ends.removed + 1)
        return broken

    @property
    def is_begun(self) -> bool:
        """Whether the chains were begun."""
        return len(self._ends) == len(SERIES)

    def begin(self, db: Db) -> None:
        """Write the ends of chains without blocks, so that a file that is removed later is noticed."""
        for series in SERIES:
            if series not in self._ends:
                self._write_ends(db, series, SeriesEnds())

    def is_current(self, db: Db) -> bool:
        """Return whether the ends in the file are those that this process wrote last."""
        return all(read_ends(db, series)[0] == self._ends.get(series, SeriesEnds()) for series in SERIES)

    def append(self, db: Db, series: Series, rows: Rows) -> "Archive":
        """Append records, and return the archive as it is once this is committed."""
        after = Archive(self.keys, self._next, dict(self._bytes), dict(self._ends))
        if not rows:
            return after
        ends = after._ends.get(series, SeriesEnds())
        for start in range(0, len(rows), _MAX_BLOCK_RECORDS):
            part = rows[start : start + _MAX_BLOCK_RECORDS]
            block = encode_block(self.keys, series, ends.head, after._next, part)
            values = (block.first, series, block.count, block.since, block.until, block.records, block.link)
            db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            after._next += block.count
            after._bytes[series] = after._bytes.get(series, 0) + len(block.records) + _BLOCK_BYTES
            ends = SeriesEnds(ends.removed, ends.start, ends.total + block.count, block.link)
        after._write_ends(db, series, ends)
        return after

    def prune(self, db: Db, series: Series, oldest: float | None, max_bytes: int) -> None:
        """Remove the oldest blocks: those that ended before `oldest`, and those beyond `max_bytes`."""
        ends = self._ends.get(series, SeriesEnds())
        size = self._bytes.get(series, 0)
        if size <= max_bytes and oldest is None:
            return
        removed = 0
        start = ends.start
        last = None
        rows = db.execute(
            "SELECT first, count, until, length(records), link FROM blocks WHERE series = ? ORDER BY first", (series,)
        )
        for first, count, until, length, link in rows:
            if size <= max_bytes and (oldest is None or until >= oldest):
                break
            size -= length + _BLOCK_BYTES
            removed = removed + count
            start = link
            last = first
        rows.close()
        if last is None:
            return
        db.execute("DELETE FROM blocks WHERE series = ? AND first <= ?", (series, last))
        self._bytes[series] = size
        self._write_ends(db, series, SeriesEnds(ends.removed + removed, start, ends.total, ends.head))

    def _write_ends(self, db: Db, series: Series, ends: SeriesEnds) -> None:
        self._ends[series] = ends
        row = (series, ends.removed, ends.start, ends.total, ends.head, ends.seal(self.keys, series))
        db.execute("INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?, ?)", row)


def read_ends(db: Db, series: str) -> tuple[SeriesEnds, bytes | None]:
    """Return the ends of a series and their seal; None if nothing was ever written."""
    row = db.execute("SELECT removed, start, total, head, seal FROM series WHERE name = ?", (series,)).fetchone()
    return (SeriesEnds(), None) if row is None else (SeriesEnds(*row[:4]), row[4])


@dataclass
class SearchStep:
    """What one step of a search has found. It has read up to the id `position`, and `done` says that this is all."""

    records: list[AuditRecord]
    position: int
    done: bool


def search(db: Db, wanted: AuditFilter, position: int, limit: int, *, backwards: bool) -> SearchStep:
    """Find up to `limit` records after the id `position`, or before it, within a bounded part of the file."""
    comparison, order = ("first < ?", "DESC") if backwards else ("first + count > ?", "ASC")
    rows = db.execute(
        f"SELECT first, count, records FROM blocks WHERE {comparison} AND until >= ? AND since <= ? "  # noqa: S608
        f"ORDER BY first {order}",
        (
            position if backwards else position + 1,
            wanted.since if wanted.since is not None else float("-inf"),
            wanted.until if wanted.until is not None else float("inf"),
        ),
    )
    found: list[AuditRecord] = []
    size = 0
    reached = position
    try:
        for first, count, data in rows:
            records = _read_records(first, count, data, wanted)
            for record in reversed(records) if backwards else records:
                if record.id < position if backwards else record.id > position:
                    found.append(record)
                    if len(found) == limit:
                        return SearchStep(found, record.id, False)
            reached = first if backwards else first + count - 1
            size += len(data)
            if size >= _STEP_BYTES:
                return SearchStep(found, reached, False)
    finally:
        rows.close()
    return SearchStep(found, reached, True)


def _read_records(first: int, count: int, data: bytes, wanted: AuditFilter) -> list[AuditRecord]:
    """Return the records of a block. One that cannot be read is shown as such; `verify` says more."""
    try:
        return list(decode_records(first, data, wanted))
    except (msgspec.DecodeError, IndexError, RecursionError):
        detail = {"why": f"the records {first} to {first + count - 1} cannot be read"}
        return [AuditRecord(id=first, time=0.0, event="audit", verdict="damaged", principal="unknown", detail=detail)]


@dataclass
class ChainCheck:
    """A verification of one series, step by step."""

    keys: AuditKeys
    series: Series
    records: int = 0
    removed: int = 0
    faults: list[ChainFault] = field(default_factory=list[ChainFault])
    _link: bytes | None = None
    _last: int = 0

    def step(self, db: Db) -> bool:
        """Check a bounded part of the chain; return whether that was the last."""
        ends, seal = read_ends(db, self.series)
        if self._link is None:
            self._link = ends.start
            self.removed = ends.removed
            if seal is not None and not ends.is_sealed(self.keys, self.series, seal):
                self._add(0, 0, "the ends of this series were changed")
        size = 0
        for block in _read_blocks(db, self.series, self._last):
            if not block.fits(self.keys, self.series, self._link):
                self._add(block.first, block.last, "records were changed, removed or inserted here")
            self._link = block.link
            self._last = block.last
            self.records += block.count
            size += len(block.records)
            if size >= _STEP_BYTES:
                return False
        if not hmac.compare_digest(self._link, ends.head) or self.records + self.removed != ends.total:
            self._add(self._last + 1, self._last + 1, "the newest records were removed")
        return True

    def _add(self, first: int, last: int, message: str) -> None:
        self.faults.append(ChainFault(self.series, first, last, message))


def _read_blocks(db: Db, series: str, after: int) -> Iterator[Block]:
    rows = db.execute(
        "SELECT first, count, since, until, records, link FROM blocks WHERE series = ? AND first > ? ORDER BY first",
        (series, after),
    )
    try:
        for row in rows:
            yield Block(*row)
    finally:
        rows.close()


def note_settings(db: Db, hashes: Mapping[str, str]) -> list[str] | None:
    """Store the hashes of the settings in effect, and return the keys that changed; None if there were none before."""
    before: dict[str, str] = dict(db.execute("SELECT key, value FROM settings").fetchall())
    changed = [key for key, value in hashes.items() if before.get(key, "") != value]
    if not changed:
        return []
    db.execute("DELETE FROM settings")
    for row in hashes.items():
        db.execute("INSERT INTO settings VALUES (?, ?)", row)
    return changed if before else None
