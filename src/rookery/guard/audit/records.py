"""Records of the audit as interfaces show them, and the filter that selects them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from rookery.gateway.rules import matches_wildcard

# Calls are removed by age and size, decisions only by size.
Series = Literal["calls", "decisions"]
CallKind = Literal["call", "prompt", "resource", "ask"]
Decision = Literal["approval", "withheld", "sign-in", "setting", "operation", "audit"]
Event = Literal[CallKind, Decision]
# Events that only the user causes. What a server or an agent can repeat is kept among the calls, so that it cannot push
# out decisions.
DECISIONS: frozenset[str] = frozenset({"approval", "sign-in", "setting", "audit"})

NO_DETAIL: Mapping[str, str] = {}


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record. `time` is when it began, in seconds since the epoch, and `ms` how long it took.

    `verdict` is what was decided, `outcome` how a call ended. `arguments_hash` is keyed: it shows whether two calls
    had the same arguments, and nothing else about them.
    """

    id: int
    time: float
    event: str
    verdict: str
    outcome: str = ""
    principal: str = ""
    workspace: str | None = None
    session: str | None = None
    server: str | None = None
    tool: str | None = None
    ms: float | None = None
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    arguments_hash: str | None = None
    detail: Mapping[str, str] = {}


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant. Names of servers and tools may have wildcards; a workspace is a path or its end."""

    since: float | None = None
    until: float | None = None
    events: frozenset[str] = frozenset()
    workspace: str | None = None
    server: str | None = None
    tool: str | None = None
    verdict: str | None = None

    def matches_origin(self, workspace: str | None, server: str | None, tool: str | None) -> bool:
        if self.server is not None and not matches_wildcard(self.server, server or ""):
            return False
        if self.tool is not None and not any(
            matches_wildcard(self.tool, name) for name in (tool or "", f"{server}/{tool}")
        ):
            return False
        return self.workspace is None or _is_workspace(self.workspace, workspace)

    def matches_event(self, time: float, event: str, verdict: str, outcome: str) -> bool:
        if (self.since is not None and time < self.since) or (self.until is not None and time > self.until):
            return False
        if self.events and event not in self.events:
            return False
        return self.verdict is None or self.verdict in (verdict, outcome)


def _is_workspace(wanted: str, path: str | None) -> bool:
    if path is None:
        return False
    return path == wanted.rstrip("/") or path.endswith(f"/{wanted.strip('/')}") or Path(path).name == wanted


class AuditPage(msgspec.Struct, frozen=True):
    """Records in the order of their ids. `last` is where to continue; `more` says that there may be further ones."""

    records: Sequence[AuditRecord]
    last: int
    more: bool


class ChainFault(msgspec.Struct, frozen=True):
    """A part of the audit that was changed or removed, with the ids of its first and last record as far as known."""

    series: Series
    first: int
    last: int
    message: str


class AuditVerification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the kept records are those that were written. `removed` counts those that were removed by the limits."""

    intact: bool
    records: int
    removed: int
    lost: int
    faults: Sequence[ChainFault]


class RecordDecision(Protocol):
    """Records a decision, by default as made now. Returns at once, and never raises.

    `detail` must not contain arguments or secrets.
    """

    def __call__(
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
    ) -> None: ...


def ignore_decision(
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
    """Record nothing."""
