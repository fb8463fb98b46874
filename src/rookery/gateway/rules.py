"""Decide whether a tool is shown and may be called: filters, switches and policy.

Switches turn servers and tools on and off at run time, per project, workspace, session of a client and conversation of
an agent; all but those of a client's sessions survive restarts.

Wildcards are OpenCode's: `*` is any text, `?` any one character, and the whole name has to match.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.store import Store


def matches_wildcard(pattern: str, name: str) -> bool:
    """Return whether `pattern` covers `name`. A backslash counts as a slash, and ` *` at the end may be missing."""
    return _compiled(pattern).fullmatch(name.replace("\\", "/")) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    pattern = pattern.replace("\\", "/")
    alternatives = [pattern, pattern[:-2]] if pattern.endswith(" *") else [pattern]
    return re.compile("|".join(map(_expression, alternatives)), re.DOTALL)


def _expression(pattern: str) -> str:
    """Return a regular expression that searches each part between two stars once, and never backtracks."""
    first, *rest = ["".join("." if char == "?" else re.escape(char) for char in part) for part in pattern.split("*")]
    if not rest:
        return first
    return first + "".join(f"(?>.*?{part})" for part in rest[:-1] if part) + ".*" + rest[-1]


Level = Literal["app", "project", "workspace", "session", "conversation"]

# The narrowest level with a switch decides.
LEVELS: Sequence[Level] = ("app", "project", "workspace", "session", "conversation")


class Switch(msgspec.Struct, frozen=True):
    """`pattern` is a server's name, or `<server>/<tool>` with wildcards. `subject` is a path or a session's id.

    `workspace` is the workspace of a conversation.
    """

    level: Level
    subject: str
    pattern: str
    enabled: bool
    workspace: str = ""


# For one caller: the subject of each level.
Subjects = Mapping[Level, str]


class Switches:
    """All switches. They are read from memory, and written through to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._all: dict[tuple[Level, str, str], Switch] = {}

    async def load(self) -> None:
        rows = await self._store.read(
            lambda db: db.execute(
                "SELECT level, subject, pattern, enabled, workspace FROM switches ORDER BY at"
            ).fetchall()
        )
        switches = [
            Switch(level, subject, pattern, bool(enabled), workspace)
            for level, subject, pattern, enabled, workspace in rows
        ]
        self._all = {(switch.level, switch.subject, switch.pattern): switch for switch in switches}
        for switch in switches:
            if switch.level == "conversation" and not Path(switch.workspace).is_dir():
                await self._delete((switch.level, switch.subject, switch.pattern))

    async def set(self, switch: Switch) -> None:
        """Set a switch. Those of a client's sessions are not stored."""
        if switch.level != "session":
            row = (switch.level, switch.subject, switch.pattern, int(switch.enabled), SYSTEM_CLOCK.wall())
            values = *row, switch.workspace
            await self._store.write(
                lambda db: db.execute("INSERT OR REPLACE INTO switches VALUES (?, ?, ?, ?, ?, ?)", values)
            )
        key = (switch.level, switch.subject, switch.pattern)
        # The switch that was set last comes last, and wins.
        self._all.pop(key, None)
        self._all[key] = switch

    async def forget(self, pattern: str, subjects: Subjects) -> None:
        """Remove the switches of a server that is removed, also those of conversations that could use it."""
        for key, switch in list(self._all.items()):
            if switch.level == "conversation":
                is_concerned = subjects.get("workspace", switch.workspace) == switch.workspace
            else:
                is_concerned = subjects.get(switch.level) == switch.subject
            if is_concerned and switch.pattern.partition("/")[0] == pattern:
                await self._delete(key)

    async def _delete(self, key: tuple[Level, str, str]) -> None:
        del self._all[key]
        await self._store.write(
            lambda db: db.execute("DELETE FROM switches WHERE level = ? AND subject = ? AND pattern = ?", key)
        )

    def end_session(self, session: str) -> None:
        for key in [key for key in self._all if key[:2] == ("session", session)]:
            del self._all[key]

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions that have switches of their own."""
        return frozenset(subject for level, subject, _ in self._all if level == "session")

    def conversations(self, workspace: str) -> frozenset[str]:
        """Return the conversations in a workspace that have switches of their own."""
        switches = [switch for switch in self._all.values() if switch.level == "conversation"]
        return frozenset(switch.subject for switch in switches if switch.workspace == workspace)

    def find_conversation(self, session: str) -> str | None:
        """Return the workspace of a conversation that has switches of its own."""
        switches = [switch for switch in self._all.values() if switch.level == "conversation"]
        return next((switch.workspace for switch in switches if switch.subject == session), None)

    def server(self, name: str, subjects: Subjects) -> bool | None:
        """Return whether a server was switched on or off, or None if it was not switched."""
        return self._last_value(subjects, lambda pattern: pattern == name)

    def tool(self, server: str, tool: str, subjects: Subjects) -> bool | None:
        """Return whether a tool was switched on or off, or None if it was not switched."""
        return self._last_value(
            subjects, lambda pattern: "/" in pattern and matches_wildcard(pattern, f"{server}/{tool}")
        )

    def _last_value(self, subjects: Subjects, matches: Callable[[str], bool]) -> bool | None:
        for level in reversed(LEVELS):
            subject = subjects.get(level)
            switches = [switch for switch in self._all.values() if switch.level == level and switch.subject == subject]
            values = [switch.enabled for switch in switches if matches(switch.pattern)]
            if values:
                return values[-1]
        return None


Action = Literal["allow", "ask", "deny"]

# Wildcards and whether what they match is shown; the last match wins.
ToolFilter = Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Verdict:
    """The policy's decision on one tool; `why` is the reason for a caller that is refused."""

    action: Action
    why: str = ""


ALLOWED = Verdict("allow")

ToolPolicy = Callable[[str, str, str], Verdict]


class Rules(Protocol):
    """The filters, switches and policy of one view. `public` is a tool's name at the gateway itself."""

    def is_shown(self, server: str, tool: str, public: str) -> bool: ...

    def verdict(self, server: str, tool: str, public: str) -> Verdict: ...


@dataclass(frozen=True)
class ViewRules:
    """Rules of a view. `of_server` filters by a tool's own name, `of_view` by its public one or `<server>/<tool>`.

    All filters of a server have to show a tool.
    """

    of_server: Mapping[str, Sequence[ToolFilter]]
    of_view: ToolFilter
    switches: Switches
    subjects: Subjects
    policy: ToolPolicy

    def is_shown(self, server: str, tool: str, public: str) -> bool:
        switched = self.switches.tool(server, tool, self.subjects)
        if switched is not None:
            return switched
        if not all(_last_match(tool_filter, (tool,)) for tool_filter in self.of_server.get(server, ())):
            return False
        return _last_match(self.of_view, (public, f"{server}/{tool}"))

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        return self.policy(server, tool, public)


@dataclass(frozen=True)
class CombinedRules:
    """Rules of a view that shows what any of several others shows. They differ only in what is switched."""

    parts: Sequence[Rules]

    def is_shown(self, server: str, tool: str, public: str) -> bool:
        return any(part.is_shown(server, tool, public) for part in self.parts)

    def verdict(self, server: str, tool: str, public: str) -> Verdict:
        return self.parts[0].verdict(server, tool, public)


def _last_match(tool_filter: ToolFilter, names: Sequence[str]) -> bool:
    return next(
        (
            visible
            for pattern, visible in reversed(tool_filter)
            if any(matches_wildcard(pattern, name) for name in names)
        ),
        True,
    )
