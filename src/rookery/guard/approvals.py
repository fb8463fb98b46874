"""What the user has approved, by content. What cannot be read, or was not left so by us, counts as not approved."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rookery.guard.seal import Seal, mark_of
from rookery.guard.subject import Key, Subject
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.store import Store

logger = logging.getLogger("rookery.guard")

State = Literal["approved", "new", "changed"]


class Approval(msgspec.Struct, frozen=True):
    kind: str
    place: str
    name: str
    digest: str
    content: str
    at: float

    @property
    def key(self) -> Key:
        return Key(self.kind, self.place, self.name)


class _Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


class Approvals:
    """Kept in the store, with a seal beside it; held in memory for whoever asks."""

    def __init__(self, store: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock
        self._seal = Seal(store.path.with_name("approvals.seal"))
        self._known: Mapping[Key, list[Approval]] | None = None
        self._changing = asyncio.Lock()
        self._changes = 0

    async def state(self, subject: Subject) -> State:
        """Whether this very content is approved, another of this name is, or none."""
        known = (await self._all()).get(subject.key, [])
        if not subject.problem and any(one.digest == subject.digest for one in known):
            return "approved"
        return "changed" if known else "new"

    async def may_count(self, key: Key, content: str) -> bool:
        """Whether this was approved with whichever files: if not, there is no need to look at any file."""
        return any(f"{one.content}\n".startswith(f"{content}\n") for one in (await self._all()).get(key, []))

    async def last(self, key: Key) -> Approval | None:
        """What was approved last under this name."""
        return max((await self._all()).get(key, []), key=lambda one: one.at, default=None)

    async def approve(self, subject: Subject, digest: str) -> None:
        """Approve what has this digest; refused if that is no longer what is there. Kept when this returns."""
        if subject.problem:
            raise RookeryError("needs-approval", f"{subject.name} cannot be approved: {subject.problem}")
        if digest != subject.digest:
            raise RookeryError(
                "needs-approval",
                f"{subject.name} has changed since it was shown, and was not approved",
                f"look at it again: rookery guard approve {subject.name}",
            )
        row = (*subject.key, digest, subject.shown, self._clock.wall())
        await self._change(lambda db: db.execute("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?)", row))
        logger.info("approved: %s %s of %s (%s)", subject.kind, subject.name, subject.place, digest[:12])

    async def revoke(self, key: Key) -> bool:
        """Take back all approvals of a name; whether there were any."""
        if not (await self._all()).get(key):
            return False
        await self._change(
            lambda db: db.execute("DELETE FROM approvals WHERE (kind, place, name) = (?, ?, ?)", tuple(key))
        )
        logger.info("revoked: %s %s of %s", key.kind, key.name, key.place)
        return True

    async def _all(self) -> Mapping[Key, list[Approval]]:
        if self._known is not None:
            return self._known
        changes = self._changes
        try:
            found = await self._store.read(self._load)
        except Exception:
            logger.exception("the approvals cannot be read; nothing counts as approved")
            return {}
        if changes == self._changes:
            self._known = found
        return found

    async def _change(self, edit: Callable[[_Db], object]) -> None:
        def run(db: _Db) -> None:
            if not self._is_ours(rows := _rows(db)):
                db.execute("DELETE FROM approvals")
                rows = []
            edit(db)
            self._seal.write(mark_of(rows), mark_of(_rows(db)))

        async with self._changing:
            try:
                await self._store.write(run)
            finally:
                # Also if this was cancelled: only the store knows whether it happened.
                self._known = None
                self._changes += 1
            await self._all()

    def _load(self, db: _Db) -> Mapping[Key, list[Approval]]:
        rows = _rows(db)
        if not self._is_ours(rows):
            return {}
        if len(self._seal.marks()) > 1:
            self._seal.write(mark_of(rows))
        found: dict[Key, list[Approval]] = {}
        for row in rows:
            one = Approval(*row)
            found.setdefault(one.key, []).append(one)
        return found

    def _is_ours(self, rows: Sequence[tuple[Any, ...]]) -> bool:
        if mark_of(rows) in self._seal.marks():
            return True
        problem = f"the approvals in {self._store.path} were changed from outside: none of them counts any more"
        logger.error("%s", problem)
        if problem not in self._store.problems:
            self._store.problems.append(problem)
        return False

    # Last, because the name hides the type.
    async def list(self) -> list[Approval]:
        return [one for found in (await self._all()).values() for one in found]


def _rows(db: _Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT kind, place, name, digest, content, at FROM approvals ORDER BY at").fetchall()
