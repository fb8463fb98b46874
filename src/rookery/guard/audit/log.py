"""The audit of the daemon: records are buffered, and written together by one task.

To record something costs a call an entry in a list. A disk that is full or gone stops nothing: records wait in memory,
up to a limit, and those beyond it are counted. A crash loses what was recorded in the last second.
"""

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rookery.gateway.audit import CallEvent, CallOrigin, CallVerdict
from rookery.guard.audit.archive import SERIES, Archive, ChainCheck, Db, note_settings, search
from rookery.guard.audit.chain import AuditKeys, NewRecord, Origin
from rookery.guard.audit.records import (
    DECISIONS,
    NO_DETAIL,
    AuditFilter,
    AuditPage,
    AuditRecord,
    AuditVerification,
    Decision,
)
from rookery.system import metrics
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.fs import atomic, paths
from rookery.system.store import Store
from rookery.system.tasks import TaskSet

logger = logging.getLogger("rookery.audit")

RECORDED = metrics.counter("rookery_audit_records_total", "Audit records that were written.")
LOST = metrics.counter("rookery_audit_records_lost_total", "Audit records that could not be written, and were dropped.")

_SCHEMA = Path(__file__).with_name("schema")
# Calls are written this often, and sooner while somebody waits for them. Decisions are written at once.
WRITE_SECONDS = 1.0
_FOLLOWED_SECONDS = 0.1
# After a failed write.
_RETRY_SECONDS = 5.0
# How many records wait in memory at most.
_MAX_WAITING = 20_000
# Longer arguments are hashed at once, and not kept until the records are written.
_MAX_KEPT_BYTES = 1024
# How often records are removed by age.
_PRUNE_SECONDS = 3600.0
_DAY_SECONDS = 86_400.0
_SECRET_BYTES = 32
# Beyond every id, and within the integers of SQLite.
_BEYOND = 2**62
_MAX_TEXT = 1024

# An answered tool call: its origin, start and end by the monotonic clock, its arguments or their hash, their size, and
# that of the result.
_AnsweredCall = tuple[CallOrigin, float, float, bytes | str, int, int]
_Row = tuple[Origin, NewRecord]


class AuditLimits(msgspec.Struct, frozen=True):
    """Whether calls are recorded, and for how long they are kept: by age, and by the size of all records."""

    calls: bool = True
    days: float = 90.0
    max_bytes: int = 268_435_456


class AuditLog:
    """Records calls and decisions. A service of the daemon."""

    name = "audit"
    needs: Sequence[str] = ("children",)

    def __init__(self, state: Path, limits: AuditLimits | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limits = limits if limits is not None else AuditLimits()
        self._clock = clock
        self._now = clock.monotonic
        self._key_file = paths.audit_key_file(state)
        self._store = Store(paths.audit_file(state), clock=clock, schema=_SCHEMA)
        self._keys: AuditKeys | None = None
        self._archive: Archive | None = None
        self._answered: list[_AnsweredCall] = []
        self._calls: list[_Row] = []
        self._decisions: list[_Row] = []
        self._records_calls = self._limits.calls
        self._is_waiting = False
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        # Followers wait for the next write.
        self._written: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        self._tasks = TaskSet("audit")
        self._writer: asyncio.Task[None] | None = None
        self._running = False
        # Whether this process has begun the audit.
        self.is_new = False
        # How often something was written.
        self._writes = 0
        self._lost = 0
        self._failure: str | None = None
        self._problems: list[str] = []
        self._pruned_at = float("-inf")

    # Service

    async def start(self) -> None:
        """Open the file, and begin to write. A failure is reported and tried again; it does not raise."""
        self._running = True
        async with self._lock:
            await self._try_open()
        self._writer = self._tasks.keep_running(self._write_repeatedly, "write")

    async def stop(self) -> None:
        """Write what waits, and close the file."""
        self._running = False
        self._wake.set()
        self._hurry.set()
        if self._writer is not None:
            await self._writer
        await self._flush()
        if waiting := self._count_waiting():
            logger.error("%d audit records could not be written and are lost", waiting)
        await self._tasks.close()
        await self._store.close()

    @property
    def problems(self) -> list[str]:
        """What the user has to know, for status and doctor."""
        failing = (
            [] if self._failure is None else [f"the audit cannot be written: {self._failure}{self._describe_waiting()}"]
        )
        return [*self._store.problems, *self._problems, *failing]

    def _describe_waiting(self) -> str:
        lost = f", {self._lost} were dropped" if self._lost else ""
        return f"; {self._count_waiting()} records wait in memory{lost}. Nothing else is affected"

    def _count_waiting(self) -> int:
        return len(self._answered) + len(self._calls) + len(self._decisions)

    # Recording

    def record_answered(self, origin: CallOrigin, started: float, arguments: Raw, result_bytes: int) -> None:
        """Record an allowed tool call that has its result. Each call on the fast path passes here."""
        if not self._records_calls:
            return
        answered = self._answered
        size = len(arguments)
        kept = bytes(arguments) if size <= _MAX_KEPT_BYTES else self._hash(arguments)
        answered.append((origin, started, self._now(), kept, size, result_bytes))
        if not self._is_waiting:
            self._is_waiting = True
            self._wake.set()
        elif len(answered) > _MAX_WAITING:
            answered.pop()
            self._count_as_lost()

    def record_call(
        self,
        event: CallEvent,
        verdict: CallVerdict,
        outcome: str,
        origin: CallOrigin,
        started: float,
        arguments: Raw | None = None,
        result_bytes: int | None = None,
    ) -> None:
        """Record any other call, or a question to the user about one."""
        if not self._records_calls:
            return
        if len(self._calls) >= _MAX_WAITING:
            self._count_as_lost()
            return
        now = self._now()
        size, hash_ = (None, None) if arguments is None else (len(arguments), self._hash(arguments))
        time = self._clock.wall() - (now - started)
        ms = round((now - started) * 1000, 3)
        fields = (round(time, 3), event, verdict, outcome, ms, size, result_bytes, hash_)
        self._calls.append((_as_tuple(origin), fields))
        self._wake_writer()

    def record(
        self,
        event: Decision,
        verdict: str,
        *,
        principal: str = "owner",
        workspace: str | None = None,
        session: str | None = None,
        server: str | None = None,
        tool: str | None = None,
        detail: Mapping[str, str] = NO_DETAIL,
        time: float | None = None,
    ) -> None:
        """Record a decision. One of the user is written at once, and is not removed by age."""
        is_decision = event in DECISIONS
        rows = self._decisions if is_decision else self._calls
        if len(rows) >= _MAX_WAITING:
            self._count_as_lost()
            return
        at = round(self._clock.wall() if time is None else time, 3)
        shown = {key: value[:_MAX_TEXT] for key, value in detail.items() if value}
        fields = (at, event, verdict, "", None, None, None, None, shown or None)
        rows.append(((principal, workspace, session, server, tool), fields))
        self._wake_writer()
        if is_decision:
            self._hurry.set()

    async def record_settings(self, values: Mapping[str, Any]) -> None:
        """Record the settings that changed since the last time, also while the daemon was stopped.

        Values are recorded only if they are single ones; tables may contain anything.
        """
        encoded = {key: msgspec.json.encode(value) for key, value in values.items()}
        try:
            async with self._lock:
                keys = await self._try_open()
                if keys is None:
                    return
                hashes = {key: keys.link("setting", key, value).hex() for key, value in encoded.items()}
                changed = await self._store.write(lambda db: note_settings(db, hashes))
        except RookeryError as error:
            self._report_failure(error)
            return
        for key in changed or ():
            value = values[key]
            shown = encoded[key].decode() if isinstance(value, str | int | float | bool) else "(a table)"
            self.record("setting", "changed", detail={"key": key, "value": shown})

    def _hash(self, arguments: Raw) -> str:
        return self._keys.hash_arguments(bytes(arguments)) if self._keys is not None else ""

    def _wake_writer(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._wake.set()

    def _count_as_lost(self, count: int = 1) -> None:
        self._lost += count
        LOST.add(by=count)

    # Reading

    async def find(
        self, wanted: AuditFilter, limit: int, *, after: int | None = None, before: int | None = None
    ) -> AuditPage:
        """Return the records after an id, or the last ones before an id or at all; in the order of their ids."""
        await self.flush()
        async with self._lock:
            if await self._try_open() is None:
                raise self._make_failure()
        if after is None:
            found, _, done = await self._search(wanted, limit, _BEYOND if before is None else before, backwards=True)
            found.reverse()
            return AuditPage(found, found[-1].id if found else 0, not done)
        found, position, done = await self._search(wanted, limit, after, backwards=False)
        return AuditPage(found, position, not done)

    async def _search(
        self, wanted: AuditFilter, limit: int, position: int, *, backwards: bool
    ) -> tuple[list[AuditRecord], int, bool]:
        """Search step by step, so that records are written meanwhile."""
        found: list[AuditRecord] = []
        done = False
        while not done and len(found) < limit:
            read = functools.partial(
                search, wanted=wanted, position=position, limit=limit - len(found), backwards=backwards
            )
            step = await self._store.read(read)
            found += step.records
            position = step.position
            done = step.done
        return found, position, done

    async def wait(self, wanted: AuditFilter, limit: int, after: int, seconds: float) -> AuditPage:
        """Return the records after an id; if there are none yet, wait for one for a limited time."""
        page = AuditPage([], after, False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not page.records:
                    writes = self._writes
                    page = await self.find(wanted, limit, after=page.last)
                    if not page.records and writes == self._writes:
                        await self._wait_for_write()
        return page

    async def _wait_for_write(self) -> None:
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
            # Records are written sooner from now on.
            self._hurry.set()
        await asyncio.shield(self._written)

    async def verify(self) -> AuditVerification:
        """Check that the kept records are those that were written."""
        await self.flush()
        async with self._lock:
            keys = await self._try_open()
            if keys is None:
                raise self._make_failure()
            checks = [ChainCheck(keys, series) for series in SERIES]
            for check in checks:
                while not await self._store.read(check.step):
                    pass
        faults = [fault for check in checks for fault in check.faults]
        records, removed = (sum(getattr(check, field) for check in checks) for field in ("records", "removed"))
        return AuditVerification(intact=not faults, records=records, removed=removed, lost=self._lost, faults=faults)

    def _make_failure(self) -> RookeryError:
        why = self._failure or "it is not open"
        return RookeryError("store-failed", f"the audit cannot be read: {why}", "see: rookery doctor")

    # Writing

    async def flush(self) -> None:
        """Write everything that waits. Return also if that failed: it is reported, and tried again later."""
        if self._answered or self._calls or self._decisions or self._lock.locked():
            # In a task of its own: a caller that is cancelled must not leave a write half done.
            await asyncio.shield(self._tasks.start(self._flush(), "flush"))

    async def _flush(self, *, prune: bool = False) -> None:
        async with self._lock:
            self._wake.clear()
            self._hurry.clear()
            self._is_waiting = False
            if not (self._answered or self._calls or self._decisions or prune):
                return
            if not await self._write():
                return
        self._writes += 1
        if self._written is not None:
            self._written.set_result(None)
            self._written = None

    async def _write_repeatedly(self) -> None:
        while self._running:
            if not await _wait_for(self._wake, _PRUNE_SECONDS):
                await self._flush(prune=True)
                continue
            seconds = WRITE_SECONDS if self._failure is None else _RETRY_SECONDS
            if self._running:
                await _wait_for(self._hurry, _FOLLOWED_SECONDS if self._written is not None else seconds)
            await self._flush()

    async def _write(self) -> bool:
        """Write what waits, and return whether that succeeded."""
        keys = await self._try_open()
        answered = self._answered
        calls = self._calls
        decisions = self._decisions
        self._answered = []
        self._calls = []
        self._decisions = []
        lost = self._lost
        offset = self._clock.wall() - self._now()
        if keys is None or self._archive is None:
            self._keep_waiting(answered, calls, decisions)
            return False
        archive = self._archive
        has_gap = bool(lost) or self._failure is not None
        if has_gap:
            decisions.insert(0, self._describe_gap(lost))
        now = self._now()
        is_due = now - self._pruned_at >= _PRUNE_SECONDS
        oldest = self._clock.wall() - self._limits.days * _DAY_SECONDS if is_due else None

        def run(db: Db) -> tuple[Archive, bool]:
            # Replaced in the list, so that a failed write does not keep arguments.
            calls.extend(_complete(keys, answered, offset))
            answered.clear()
            # The chain goes on from what was written last, so that a change from outside stays visible.
            if changed := not archive.is_current(db):
                decisions.append(_describe_change(self._clock.wall()))
            after = archive
            for series, rows in zip(SERIES, (calls, decisions), strict=True):
                after = after.append(db, series, rows)
                after.prune(db, series, oldest if series == "calls" else None, self._limits.max_bytes)
            return after, changed

        try:
            self._archive, changed = await self._store.write(run, durable=bool(decisions))
        except RookeryError as error:
            if has_gap:
                del decisions[0]
            self._report_failure(error)
            self._keep_waiting(answered, calls, decisions)
            return False
        if is_due:
            self._pruned_at = now
        RECORDED.add(by=len(calls) + len(decisions))
        if has_gap:
            logger.warning("the audit is written again; %d records were lost", lost)
            self._failure = None
            self._lost = self._lost - lost
        if changed:
            self._add_problem(
                "another program changed the audit while it was in use; see: rookery guard audit --verify"
            )
        return True

    def _keep_waiting(self, answered: list[_AnsweredCall], calls: list[_Row], decisions: list[_Row]) -> None:
        """Keep records that could not be written before those that came meanwhile, and drop what is too much."""
        self._answered = answered + self._answered
        self._calls = calls + self._calls
        self._decisions = decisions + self._decisions
        for waiting in (self._answered, self._calls, self._decisions):
            self._count_as_lost(max(0, len(waiting) - _MAX_WAITING))
            del waiting[_MAX_WAITING:]
        self._wake_writer()

    def _describe_gap(self, lost: int) -> _Row:
        detail = {"records": str(lost), "why": (self._failure or "")[:_MAX_TEXT]}
        fields = (round(self._clock.wall(), 3), "audit", "lost", "", None, None, None, None, detail)
        return ("owner", None, None, None, None), fields

    def _report_failure(self, error: RookeryError) -> None:
        if self._failure is None:
            logger.error("the audit cannot be written: %s; calls go on, and their records wait", error.message)
        self._failure = error.message

    def _add_problem(self, problem: str) -> None:
        if problem not in self._problems:
            logger.error("%s", problem)
            self._problems.append(problem)

    # Opening

    async def _try_open(self) -> AuditKeys | None:
        """Open the file and its key, if that is still to be done. Return None if it cannot be."""
        if self._archive is not None or not self._running:
            return self._keys if self._archive is not None else None
        try:
            keys = await asyncio.to_thread(self._load_keys)
            await self._store.open()
            archive = Archive(keys)
            broken = await self._store.read(archive.load)
            is_begun = archive.is_begun
            if not is_begun:
                await self._store.write(archive.begin)
        except (RookeryError, OSError) as error:
            self._report_failure(error if isinstance(error, RookeryError) else RookeryError("store-failed", str(error)))
            return None
        self._keys = keys
        self._archive = archive
        if broken:
            files = f"{self._store.path.name} or {self._key_file.name}"
            self._add_problem(f"the audit was changed from outside, in {files}; see: rookery guard audit --verify")
            self._decisions.append(_describe_change(self._clock.wall()))
        if not self.is_new and not is_begun:
            self._add_problem(f"the audit in {self._store.path} was removed or replaced; a new one has begun")
            self.record("audit", "restarted", detail={"why": "the file was removed, replaced or damaged"})
        return keys

    def _load_keys(self) -> AuditKeys:
        """Read the key, or create it: then there is no audit yet."""
        secret = atomic.read_secret(self._key_file)
        if secret is None or len(secret) < _SECRET_BYTES:
            secret = secrets.token_bytes(_SECRET_BYTES)
            atomic.write_secret(self._key_file, secret)
            self.is_new = True
        return AuditKeys(secret[:_SECRET_BYTES])


async def _wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, and return whether it came in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _as_tuple(origin: CallOrigin) -> Origin:
    return origin.principal, origin.workspace, origin.session, origin.server, origin.tool


def _describe_change(time: float) -> _Row:
    detail = {"why": "another program changed the file"}
    return ("owner", None, None, None, None), (round(time, 3), "audit", "changed", "", None, None, None, None, detail)


def _complete(keys: AuditKeys, answered: Sequence[_AnsweredCall], offset: float) -> list[_Row]:
    """Return the rows of answered calls. `offset` is the wall clock less the monotonic one."""
    hash_arguments = keys.hash_arguments
    origins: dict[int, Origin] = {}
    rows: list[_Row] = []
    for origin, started, ended, arguments, size, result_bytes in answered:
        known = origins.get(id(origin))
        if known is None:
            known = origins[id(origin)] = _as_tuple(origin)
        hash_ = arguments if isinstance(arguments, str) else hash_arguments(arguments)
        ms = round((ended - started) * 1000, 3)
        rows.append((known, (round(started + offset, 3), "call", "allowed", "answered", ms, size, result_bytes, hash_)))
    return rows
