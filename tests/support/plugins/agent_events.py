"""An agent as plugins see it: it knows of its sessions only what its events report."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rookery.agents.opencode.events import AgentEvent, PartUpdated, SnapshotLoaded
from rookery.agents.opencode.records import Permission, Session, SessionStatus
from rookery.agents.status import SessionsSnapshot, SessionState, StatusTracker
from rookery.plugins.api import Event
from rookery.plugins.observe import SessionObserver
from rookery.sessions.conversion import HIDDEN_TITLE
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project

WORKSPACE = Workspace(Project("app-1", "app", "/work/app"), "fix", Path("/work/fix"), "fix", False, "ready")
ONE, CHILD = Session("ses_1", "/work/fix", "One"), Session("ses_2", "/work/fix", "Child", parent="ses_1")
HIDDEN = Session("ses_3", "/work/fix", HIDDEN_TITLE, parent="ses_1")
BUSY, IDLE = SessionStatus("busy"), SessionStatus("idle")
PERMISSION = Permission("per_1", "ses_2", "bash", ("rm",))


@dataclass
class ObservedAgent:
    """Knows of its sessions what its events report, as a watcher does."""

    wanted: set[str] = field(default_factory=lambda: {"message.added", "tool.started", "tool.finished"})

    def __post_init__(self) -> None:
        self.book = StatusTracker("/work/fix")
        self.happenings = SessionObserver(WORKSPACE, lambda *hooks: bool(self.wanted & {*hooks}))

    @property
    def sessions(self) -> tuple[SessionState, ...]:
        return self.book.sessions()

    def session(self, id_: str) -> Session | None:
        return self.book.session(id_)

    def says(self, *events: AgentEvent) -> list[Event]:
        told: list[Event] = []
        for event in events:
            self.book.apply(event)
            told += self.happenings.on_event(event, self, 1000.0)
        return told

    def renews(self, *sessions: Session, busy: tuple[str, ...] = (), asks: tuple[Permission, ...] = ()) -> list[Event]:
        self.book.load_snapshot(SessionsSnapshot(sessions, dict.fromkeys(busy, BUSY), asks))
        return self.says(SnapshotLoaded())


def names(events: list[Event]) -> list[tuple[str, str]]:
    return [(one.hook, getattr(one, "session_id", "")) for one in events]


def part(session: str = "ses_1", **more: Any) -> PartUpdated:
    whole = {"id": "prt_1", "messageID": "msg_1", "sessionID": session, **more}
    return PartUpdated(session, msgspec.Raw(json.dumps(whole).encode()))
