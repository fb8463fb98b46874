"""What boulder keeps in the store: switches, what it knows of sessions, and a log of all that it did."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rookery.plugins.boulder.kept import Kept
from rookery.plugins.boulder.switches import Level, Switch
from rookery.system.store import Store

# The oldest go first.
MOST_SESSIONS = 2000
MOST_LINES = 10_000

What = Literal["enforced", "failed", "complete", "on", "off", "pause", "resume", "stop", "reset", "budget"]


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """Something that was done: when, in milliseconds, by `who`, to which session, and `why`."""

    at: float
    what: What
    who: str
    session_id: str
    workspace: str
    iteration: int
    why: str


class _Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


class Book:
    """`told` is called with every line of the log, once it is kept."""

    def __init__(self, store: Store, told: Callable[[Line], None]) -> None:
        self._store, self._told = store, told

    async def switches(self) -> list[Switch]:
        sql = "SELECT level, subject, enabled, checks, at FROM boulder_switches ORDER BY at"
        rows = await self._store.read(lambda db: db.execute(sql).fetchall())
        return [Switch(level, subject, bool(enabled), checks, at) for level, subject, enabled, checks, at in rows]

    async def sessions(self) -> Mapping[str, tuple[str, Kept]]:
        """By id: the folder of its workspace, and what is known of it."""
        rows = await self._store.read(
            lambda db: db.execute("SELECT session, workspace, kept FROM boulder_sessions").fetchall()
        )
        return {session: (workspace, msgspec.json.decode(kept, type=Kept)) for session, workspace, kept in rows}

    async def switch(self, switch: Switch, line: Line) -> None:
        row = (switch.level, switch.subject, int(switch.enabled), switch.checks, switch.at)

        def work(db: _Db) -> None:
            db.execute("INSERT OR REPLACE INTO boulder_switches VALUES (?, ?, ?, ?, ?)", row)
            _log(db, line)

        await self._store.write(work)
        self._told(line)

    async def drop(self, level: Level, subject: str, line: Line) -> None:
        def work(db: _Db) -> None:
            db.execute("DELETE FROM boulder_switches WHERE level = ? AND subject = ?", (level, subject))
            _log(db, line)

        await self._store.write(work)
        self._told(line)

    async def keep(self, session: str, workspace: str, kept: Kept, at: float, line: Line | None = None) -> None:
        """With a line of the log it is kept for certain when this returns: what was spent is not spent again."""
        row = (session, workspace, msgspec.json.encode(kept).decode(), at)

        def work(db: _Db) -> None:
            db.execute("INSERT OR REPLACE INTO boulder_sessions VALUES (?, ?, ?, ?)", row)
            if line is not None:
                _log(db, line)
            db.execute(
                "DELETE FROM boulder_sessions WHERE session IN "
                "(SELECT session FROM boulder_sessions ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MOST_SESSIONS,),
            )

        await self._store.write(work, durable=line is not None)
        if line is not None:
            self._told(line)

    async def lines(self, limit: int, session: str | None = None, workspace: str | None = None) -> list[Line]:
        """The newest, in the order in which they were written; of one session, or of one workspace's."""
        sql = (
            "SELECT at, what, who, session, workspace, iteration, why FROM boulder_log "
            "WHERE (?1 IS NULL OR session = ?1) AND (?2 IS NULL OR workspace = ?2) ORDER BY number DESC LIMIT ?3"
        )
        rows = await self._store.read(lambda db: db.execute(sql, (session, workspace, limit)).fetchall())
        return [Line(*row) for row in reversed(rows)]


def _log(db: _Db, line: Line) -> None:
    row = (line.at, line.what, line.who, line.session_id, line.workspace, line.iteration, line.why)
    db.execute(
        "INSERT INTO boulder_log (at, what, who, session, workspace, iteration, why) VALUES (?, ?, ?, ?, ?, ?, ?)", row
    )
    db.execute("DELETE FROM boulder_log WHERE number <= (SELECT max(number) FROM boulder_log) - ?", (MOST_LINES,))
