"""Servers and tools switched on and off at run time, per project, workspace and session; kept over restarts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from rookery.gateway.wildcards import matches
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.store import Store

Level = Literal["app", "project", "workspace", "session"]

# The narrower one decides.
LEVELS: Sequence[Level] = ("app", "project", "workspace", "session")


class Switch(msgspec.Struct, frozen=True):
    """`pattern` is a server's name, or `<server>/<tool>` with wildcards. `subject` is a path or a session's id."""

    level: Level
    subject: str
    pattern: str
    enabled: bool


# For one caller: what each level is about.
Subjects = Mapping[Level, str]


class Switches:
    """Read from memory, written through to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: dict[tuple[Level, str, str], Switch] = {}

    async def load(self) -> None:
        rows = await self._store.read(
            lambda db: db.execute("SELECT level, subject, pattern, enabled FROM switches ORDER BY at").fetchall()
        )
        found = [Switch(level, subject, pattern, bool(enabled)) for level, subject, pattern, enabled in rows]
        self._all = {(one.level, one.subject, one.pattern): one for one in found}

    async def set(self, switch: Switch) -> None:
        if switch.level != "session":
            row = (switch.level, switch.subject, switch.pattern, int(switch.enabled), SYSTEM_CLOCK.wall())
            await self._store.write(
                lambda db: db.execute("INSERT OR REPLACE INTO switches VALUES (?, ?, ?, ?, ?)", row)
            )
        key = (switch.level, switch.subject, switch.pattern)
        # The one set last comes last, and wins.
        self._all.pop(key, None)
        self._all[key] = switch

    async def forget(self, pattern: str, subjects: Subjects) -> None:
        """A server that is removed leaves no switch behind."""
        keys = [key for key in self._all if key[2].partition("/")[0] == pattern and subjects.get(key[0]) == key[1]]
        for key in keys:
            del self._all[key]
            await self._store.write(
                lambda db, key=key: db.execute(
                    "DELETE FROM switches WHERE level = ? AND subject = ? AND pattern = ?", key
                )
            )

    def end_session(self, session: str) -> None:
        for key in [key for key in self._all if key[:2] == ("session", session)]:
            del self._all[key]

    @property
    def sessions(self) -> frozenset[str]:
        """Those that have switches of their own."""
        return frozenset(subject for level, subject, _ in self._all if level == "session")

    def server(self, name: str, subjects: Subjects) -> bool | None:
        """Whether a server was switched on or off; None where nobody did."""
        return self._last(subjects, lambda pattern: pattern == name)

    def tool(self, server: str, tool: str, subjects: Subjects) -> bool | None:
        return self._last(subjects, lambda pattern: "/" in pattern and matches(pattern, f"{server}/{tool}"))

    def _last(self, subjects: Subjects, fits: Callable[[str], bool]) -> bool | None:
        for level in reversed(LEVELS):
            subject = subjects.get(level)
            found = [one for one in self._all.values() if one.level == level and one.subject == subject]
            said = [one.enabled for one in found if fits(one.pattern)]
            if said:
                return said[-1]
        return None
