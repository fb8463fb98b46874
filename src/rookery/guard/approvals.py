"""Approvals of the user, by content.

Content that cannot be read, and approvals that another program changed, do not count as approved.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from rookery.guard.audit.records import RecordDecision, ignore_decision
from rookery.guard.records import Approval, By, State
from rookery.guard.seal import Seal, compute_mark
from rookery.guard.subject import Key, Subject
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.store import Store

logger = logging.getLogger("rookery.guard")

T = TypeVar("T")

_REGISTERED_BEFORE = "the project was registered before"
_STORE_LOST = "the store of approvals was lost or changed from outside at some time"


class _Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


class Approvals:
    """The approvals in the store, protected by a seal beside it and cached in memory.

    `digests` are approved in advance, each with the file or variable that names it. They are not stored: each is valid
    as long as it is named.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock = SYSTEM_CLOCK,
        digests: Mapping[str, str] = MappingProxyType({}),
        record: RecordDecision = ignore_decision,
    ) -> None:
        self._store = store
        self._clock = clock
        self._digests = digests
        self._record = record
        self._logged_digests: set[tuple[Key, str]] = set()
        self._seal = Seal.for_store(store.path)
        self._approvals: Mapping[Key, list[Approval]] | None = None
        self._lock = asyncio.Lock()
        self._change_count = 0

    async def state(self, subject: Subject) -> State:
        """Return whether this exact content is approved, other content of this name is, or none."""
        approvals = (await self._get_all()).get(subject.key, [])
        if not subject.problem and any(approval.digest == subject.digest for approval in approvals):
            return "approved"
        if self.find_digest_source(subject):
            return "approved"
        return "changed" if approvals else "new"

    def find_digest_source(self, subject: Subject) -> str:
        """Return where the owner named the digest of this content; an empty string if it is not named."""
        source = "" if subject.problem else self._digests.get(subject.sha256, "")
        if source and (subject.key, subject.sha256) not in self._logged_digests:
            self._logged_digests.add((subject.key, subject.sha256))
            text = "approved by digest: %s %s of %s (%s, named in %s)"
            logger.info(text, subject.kind, subject.name, subject.place, subject.sha256, source)
            self._record_decision("approved", subject.key, "digest", subject.digest, source)
        return source

    async def may_be_approved(self, key: Key, content: str) -> bool:
        """Return whether this content was approved with any files: if not, no file needs to be read."""
        if self._digests:
            return True
        return any(
            f"{approval.content}\n".startswith(f"{content}\n") for approval in (await self._get_all()).get(key, [])
        )

    async def find_newest(self, key: Key) -> Approval | None:
        """Return the newest approval under this name."""
        return max((await self._get_all()).get(key, []), key=lambda approval: approval.at, default=None)

    async def check(self) -> None:
        """Compare the store with its seal, so that a loss is reported at the start. A store that matches is sealed."""
        await self._get_all()

    async def register(self, place: str, named: str) -> str:
        """Record that the main checkout at `place` is being registered; `named` is the folder that the user named.

        Return why this approves nothing in the checkout; an empty string at a true first registration. Content inside a
        folder that Rookery has worked in may come from an agent: an agent can replace the `.git` of its workspace, or
        create a repository there.
        """
        state = os.path.realpath(self._store.path.parent)
        real = os.path.realpath(named)

        def run(db: _Db) -> str:
            if db.execute("SELECT 1 FROM approval_losses").fetchone():
                return _STORE_LOST
            used = [row[0] for row in db.execute("SELECT place FROM registrations").fetchall()]
            rows = [place, *([_folder_entry(named)] if real == place and named != place else [])]
            for row in rows:
                db.execute("INSERT INTO registrations VALUES (?, ?) ON CONFLICT DO NOTHING", (row, self._clock.wall()))
            if place in used:
                return _REGISTERED_BEFORE
            containing = (
                folder for path in (place, real, named) for folder in (state, *used) if _is_within(path, folder)
            )
            worked_in = next(containing, None)
            return "" if worked_in is None else f"it is inside {worked_in.rstrip('/')}, where Rookery has worked before"

        return await self._change(run)

    async def note_folder(self, folder: str) -> None:
        """Record that Rookery works in a folder that is no main checkout."""
        row = _folder_entry(folder)
        if _is_within(folder, os.path.realpath(self._store.path.parent)):
            return
        if await self._store.read(
            lambda db: db.execute("SELECT 1 FROM registrations WHERE place = ?", (row,)).fetchone()
        ):
            return
        values = (row, self._clock.wall())
        await self._change(
            lambda db: db.execute("INSERT INTO registrations VALUES (?, ?) ON CONFLICT DO NOTHING", values)
        )

    async def forget(self, place: str) -> list[Key]:
        """Withdraw all approvals of the main checkout at `place`, and return their keys; its registration is kept."""
        approvals = await self._get_all()
        keys = [key for key in approvals if key.place == place]
        if keys:
            await self._change(lambda db: db.execute("DELETE FROM approvals WHERE place = ?", (place,)))
            logger.info("revoked with the project %s: %s", place, ", ".join(f"{key.kind} {key.name}" for key in keys))
        for key in keys:
            self._record_decision("revoked", key, "removing", _list_digests(approvals[key]))
        return keys

    async def approve(self, subject: Subject, digest: str, by: By = "terminal") -> None:
        """Approve the content with this digest, durably. Raise if the content has changed since."""
        if subject.problem:
            raise RookeryError("needs-approval", f"{subject.name} cannot be approved: {subject.problem}")
        if digest != subject.digest:
            raise RookeryError(
                "needs-approval",
                f"{subject.name} was not approved because it has changed since it was shown",
                f"review it again: rookery guard approve {subject.name}",
            )
        row = (*subject.key, digest, subject.text, self._clock.wall(), by)
        await self._change(lambda db: db.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?)", row))
        logger.info("approved by %s: %s %s of %s (%s)", by, subject.kind, subject.name, subject.place, digest[:12])
        self._record_decision("approved", subject.key, by, digest, subject.source)

    async def revoke(self, key: Key) -> bool:
        """Withdraw all approvals of a name; return whether there were any."""
        approvals = (await self._get_all()).get(key)
        if not approvals:
            return False
        await self._change(
            lambda db: db.execute("DELETE FROM approvals WHERE (kind, place, name) = (?, ?, ?)", tuple(key))
        )
        logger.info("revoked: %s %s of %s", key.kind, key.name, key.place)
        self._record_decision("revoked", key, "person", _list_digests(approvals))
        return True

    async def record_all(self) -> None:
        """Record all approvals, for a history that begins after they were given."""
        for approval in await self.list():
            self._record_decision("approved", approval.key, approval.by, approval.digest, time=approval.at)

    def _record_decision(
        self, verdict: str, key: Key, by: str, digest: str, source: str = "", time: float | None = None
    ) -> None:
        detail = {**key._asdict(), "digest": digest, "by": by, "source": source}
        self._record("approval", verdict, workspace=key.place, detail=detail, time=time)

    async def _get_all(self) -> Mapping[Key, list[Approval]]:
        """Return all approvals, from memory if possible; none if the store cannot be read."""
        if self._approvals is not None:
            return self._approvals
        changes = self._change_count
        try:
            approvals = await self._store.read(self._load)
        except Exception:
            logger.exception("the approvals cannot be read; nothing counts as approved")
            return {}
        if changes == self._change_count:
            self._approvals = approvals
        return approvals

    async def _change(self, edit: Callable[[_Db], T]) -> T:
        """Run `edit` in a transaction, and seal the result. Approvals that fail the seal are deleted first."""

        lost: list[Approval] = []

        def run(db: _Db) -> T:
            sealed = _read_sealed_rows(db)
            if not self._matches_seal(db, sealed):
                lost.extend(Approval(*row) for row in _read_approval_rows(db))
                db.execute("DELETE FROM approvals")
                db.execute("INSERT OR REPLACE INTO approval_losses VALUES (?)", (self._clock.wall(),))
                sealed = _read_sealed_rows(db)
            result = edit(db)
            self._seal.write(compute_mark(sealed), compute_mark(_read_sealed_rows(db)))
            return result

        async with self._lock:
            try:
                result = await self._store.write(run)
            finally:
                # Also after a cancellation: only the store knows whether the change was made.
                self._approvals = None
                self._change_count += 1
            await self._get_all()
        for approval in lost:
            self._record_decision("revoked", approval.key, "damage", approval.digest)
        return result

    def _load(self, db: _Db) -> Mapping[Key, list[Approval]]:
        table = _read_sealed_rows(db)
        if not self._matches_seal(db, table):
            return {}
        if len(self._seal.read_marks() or []) != 1 or "registrations" in self._store.applied_migrations:
            self._seal.write(compute_mark(table))
        approvals: dict[Key, list[Approval]] = {}
        for row in _read_approval_rows(db):
            approval = Approval(*row)
            approvals.setdefault(approval.key, []).append(approval)
        return approvals

    def _matches_seal(self, db: _Db, table: Sequence[tuple[Any, ...]]) -> bool:
        """Return whether the table matches its seal; report a problem if it does not."""
        marks = self._seal.read_marks()
        if marks is not None and compute_mark(table) in marks:
            return True
        if "registrations" in self._store.applied_migrations and _fits_earlier_seal(db, marks):
            return True
        problem = (
            f"the approvals in {self._store.path}, or their seal {self._seal.path}, were lost or changed from outside: "
            "they are no longer valid, and adding a project approves nothing"
        )
        logger.error("%s", problem)
        if problem not in self._store.problems:
            self._store.problems.append(problem)
        return False

    # Defined last, because the name hides the type `list`.
    async def list(self) -> list[Approval]:
        return [approval for approvals in (await self._get_all()).values() for approval in approvals]


def _list_digests(approvals: Sequence[Approval]) -> str:
    return " ".join(approval.digest for approval in approvals)


def _folder_entry(path: str) -> str:
    """Return the registration entry of a folder that is no main checkout."""
    return f"{path.rstrip('/')}/"


def _is_within(path: str, folder: str) -> bool:
    return _folder_entry(path).startswith(_folder_entry(folder))


def _read_approval_rows(db: _Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT kind, place, name, digest, content, at, by FROM approvals ORDER BY at").fetchall()


def _read_sealed_rows(db: _Db) -> list[tuple[Any, ...]]:
    """Return all sealed rows: the approvals, all registrations ever made, and the losses."""
    registrations = db.execute("SELECT place, at FROM registrations").fetchall()
    losses = db.execute("SELECT at FROM approval_losses").fetchall()
    return [
        *(("approval", *row) for row in _read_approval_rows(db)),
        *(("registration", *row) for row in registrations),
        *(("loss", *row) for row in losses),
    ]


def _fits_earlier_seal(db: _Db, marks: Sequence[str] | None) -> bool:
    """Return whether the table is as an earlier version left it: without a seal before the first approval."""
    rows = [row[:6] for row in _read_approval_rows(db)]
    return not rows if marks is None else compute_mark(rows) in marks
