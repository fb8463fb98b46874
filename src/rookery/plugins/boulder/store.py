"""Boulder's tables: switches, the state of sessions, and a log of its actions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rookery.plugins.boulder.state import BoulderState, BoulderSwitch, SwitchLevel
from rookery.system.store import Store

# The oldest entries are deleted first.
MAX_SESSIONS = 2000
MAX_LOG_LINES = 10_000

LogKind = Literal["enforced", "failed", "complete", "on", "off", "pause", "resume", "stop", "reset", "budget"]


class LogLine(msgspec.Struct, frozen=True, rename="camel"):
    """An action: its time in milliseconds since the epoch, `who` did it, in which session, and `why`."""

    at: float
    what: LogKind
    who: str
    session_id: str
    workspace: str
    iteration: int
    why: str


class _Db(Protocol):
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...


class BoulderStore:
    """Boulder's tables. `on_log` is called with every line of the log, once it is stored."""

    def __init__(self, store: Store, on_log: Callable[[LogLine], None]) -> None:
        self._store = store
        self._on_log = on_log

    async def switches(self) -> list[BoulderSwitch]:
        sql = "SELECT level, subject, enabled, checks, at FROM boulder_switches ORDER BY at"
        rows = await self._store.read(lambda db: db.execute(sql).fetchall())
        return [
            BoulderSwitch(level, subject, bool(enabled), checks, at) for level, subject, enabled, checks, at in rows
        ]

    async def sessions(self) -> Mapping[str, tuple[str, BoulderState]]:
        """Return the workspace's folder and the stored state of each session, by session id."""
        rows = await self._store.read(
            lambda db: db.execute("SELECT session, workspace, kept FROM boulder_sessions").fetchall()
        )
        return {
            session: (workspace, msgspec.json.decode(state, type=BoulderState)) for session, workspace, state in rows
        }

    async def save_switch(self, switch: BoulderSwitch, line: LogLine) -> None:
        row = (switch.level, switch.subject, int(switch.enabled), switch.checks, switch.at)

        def work(db: _Db) -> None:
            db.execute("INSERT OR REPLACE INTO boulder_switches VALUES (?, ?, ?, ?, ?)", row)
            _log(db, line)

        await self._store.write(work)
        self._on_log(line)

    async def delete_switch(self, level: SwitchLevel, subject: str, line: LogLine) -> None:
        def work(db: _Db) -> None:
            db.execute("DELETE FROM boulder_switches WHERE level = ? AND subject = ?", (level, subject))
            _log(db, line)

        await self._store.write(work)
        self._on_log(line)

    async def save_session(
        self, session: str, workspace: str, state: BoulderState, at: float, line: LogLine | None = None
    ) -> None:
        """Store the state of a session. With a line of the log the write is durable: no budget is spent twice."""
        row = (session, workspace, msgspec.json.encode(state).decode(), at)

        def work(db: _Db) -> None:
            db.execute("INSERT OR REPLACE INTO boulder_sessions VALUES (?, ?, ?, ?)", row)
            if line is not None:
                _log(db, line)
            db.execute(
                "DELETE FROM boulder_sessions WHERE session IN "
                "(SELECT session FROM boulder_sessions ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (MAX_SESSIONS,),
            )

        await self._store.write(work, durable=line is not None)
        if line is not None:
            self._on_log(line)

    async def logged_sessions(self, workspace: str | None = None) -> list[str]:
        """Return the ids of the sessions that have lines in the log."""
        sql = "SELECT DISTINCT session FROM boulder_log WHERE ?1 IS NULL OR workspace = ?1"
        return [id_ for (id_,) in await self._store.read(lambda db: db.execute(sql, (workspace,)).fetchall()) if id_]

    async def read_log(self, limit: int, session: str | None = None, workspace: str | None = None) -> list[LogLine]:
        """Return the newest lines in the order in which they were written, of one session or workspace if given."""
        sql = (
            "SELECT at, what, who, session, workspace, iteration, why FROM boulder_log "
            "WHERE (?1 IS NULL OR session = ?1) AND (?2 IS NULL OR workspace = ?2) ORDER BY number DESC LIMIT ?3"
        )
        rows = await self._store.read(lambda db: db.execute(sql, (session, workspace, limit)).fetchall())
        return [LogLine(*row) for row in reversed(rows)]


def _log(db: _Db, line: LogLine) -> None:
    row = (line.at, line.what, line.who, line.session_id, line.workspace, line.iteration, line.why)
    db.execute(
        "INSERT INTO boulder_log (at, what, who, session, workspace, iteration, why) VALUES (?, ?, ?, ?, ?, ?, ?)", row
    )
    db.execute("DELETE FROM boulder_log WHERE number <= (SELECT max(number) FROM boulder_log) - ?", (MAX_LOG_LINES,))
