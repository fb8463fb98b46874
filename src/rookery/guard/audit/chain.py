"""Blocks of records, and the chain of keyed hashes through them. Has no I/O.

A block is what was written at once. Its link covers it and the link before it, so that a block that was changed,
removed, inserted or moved no longer fits. A seal covers both ends of the chain.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rookery.guard.audit.records import NO_DETAIL, AuditFilter, AuditRecord

_HASH_BYTES = 16
_LINK_BYTES = 32


class AuditKeys:
    """Hashes with the secret of the audit. Without it, nobody can compute a link or guess arguments."""

    def __init__(self, secret: bytes) -> None:
        self._links = hashlib.blake2b(key=secret, digest_size=_LINK_BYTES, person=b"rookery links")
        # Copied for each hash, because setting up a key costs as much as the hash of short arguments.
        self._arguments = hashlib.blake2b(key=secret, digest_size=_HASH_BYTES, person=b"rookery argument")

    def hash_arguments(self, arguments: bytes) -> str:
        """Return the keyed hash of the arguments of a call, exactly as they were sent."""
        state = self._arguments.copy()
        state.update(arguments)
        return state.hexdigest()

    def link(self, *parts: bytes | str | int) -> bytes:
        """Return the keyed hash of these parts."""
        state = self._links.copy()
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            state.update(b"%d:" % len(data))
            state.update(data)
        return state.digest()


class SeriesEnds(msgspec.Struct, frozen=True):
    """Where the kept part of a series begins and ends; `start` is the last link that was removed by the limits."""

    removed: int = 0
    start: bytes = b""
    total: int = 0
    head: bytes = b""

    def seal(self, keys: AuditKeys, series: str) -> bytes:
        return keys.link("seal", series, self.removed, self.start, self.total, self.head)

    def is_sealed(self, keys: AuditKeys, series: str, seal: bytes) -> bool:
        return hmac.compare_digest(self.seal(keys, series), seal)


class Block(msgspec.Struct, frozen=True):
    """A block as it is stored."""

    first: int
    count: int
    since: float
    until: float
    records: bytes
    link: bytes

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def fits(self, keys: AuditKeys, series: str, previous: bytes) -> bool:
        """Return whether this is the block that was written after the link `previous`."""
        data = (self.first, self.count, repr(self.since), repr(self.until), self.records)
        return hmac.compare_digest(keys.link("block", series, previous, *data), self.link)


# principal, workspace, session, server, tool
Origin = tuple[str, str | None, str | None, str | None, str | None]


class _StoredRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record in a block; `origin` is its place in the block's list of origins."""

    origin: int
    time: float
    event: str
    verdict: str
    outcome: str = ""
    ms: float | None = None
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    arguments_hash: str | None = None
    detail: dict[str, str] | None = None


class _StoredBlock(msgspec.Struct, array_like=True, frozen=True):
    origins: list[Origin]
    records: list[_StoredRecord]


_decode_block = msgspec.json.Decoder(_StoredBlock).decode
# A record to be written, in the order of the fields above, with its origin instead of a number.
NewRecord = tuple[Any, ...]


def encode_block(
    keys: AuditKeys, series: str, previous: bytes, first: int, rows: Sequence[tuple[Origin, NewRecord]]
) -> Block:
    """Return the block of these records, whose fields after the origin are given."""
    numbers: dict[Origin, int] = {}
    records = [(numbers.setdefault(origin, len(numbers)), *fields) for origin, fields in rows]
    times: list[float] = [fields[0] for _, fields in rows]
    data = msgspec.json.encode((list(numbers), records))
    since = min(times)
    until = max(times)
    link = keys.link("block", series, previous, first, len(rows), repr(since), repr(until), data)
    return Block(first, len(rows), since, until, data, link)


def decode_records(first: int, data: bytes, wanted: AuditFilter) -> Iterable[AuditRecord]:
    """Yield the records of a block that match. Raise msgspec.DecodeError if it is damaged."""
    block = _decode_block(data)
    matching = [wanted.matches_origin(workspace, server, tool) for _, workspace, _, server, tool in block.origins]
    if not any(matching):
        return
    for number, stored in enumerate(block.records, first):
        if not matching[stored.origin]:
            continue
        if not wanted.matches_event(stored.time, stored.event, stored.verdict, stored.outcome):
            continue
        principal, workspace, session, server, tool = block.origins[stored.origin]
        yield AuditRecord(
            id=number,
            time=stored.time,
            event=stored.event,
            verdict=stored.verdict,
            outcome=stored.outcome,
            principal=principal,
            workspace=workspace,
            session=session,
            server=server,
            tool=tool,
            ms=stored.ms,
            arguments_bytes=stored.arguments_bytes,
            result_bytes=stored.result_bytes,
            arguments_hash=stored.arguments_hash,
            detail=NO_DETAIL if stored.detail is None else stored.detail,
        )
