"""What plugins are told of an agent's events: each thing once, when it has happened."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rookery.agents.events import (
    Answered,
    Asked,
    DoingChanged,
    Event as AgentEvent,
    Renewed,
    SessionGone,
    SessionSeen,
    TurnFailed,
)
from rookery.agents.message_events import MessageSeen, PartSeen, ToastShown
from rookery.agents.records import Doing, Fault, MessageInfo, MessageTimes, Permission, Session
from rookery.agents.status import SessionState, Snapshot, StatusBook
from rookery.plugins.events import AskEvent, Event, MessageEvent, SessionEvent, ToastEvent, ToolEvent
from rookery.plugins.happenings import Happenings
from rookery.sessions.hidden import TITLE
from rookery.workspaces.projects import Project
from rookery.workspaces.record import Workspace

WORKSPACE = Workspace(Project("app-1", "app", "/work/app"), "fix", Path("/work/fix"), "fix", False, "ready")
ONE, CHILD = Session("ses_1", "/work/fix", "One"), Session("ses_2", "/work/fix", "Child", parent="ses_1")
HIDDEN = Session("ses_3", "/work/fix", TITLE, parent="ses_1")
BUSY, IDLE = Doing("busy"), Doing("idle")
PERMISSION = Permission("per_1", "ses_2", "bash", ("rm",))


@dataclass
class Agent:
    """Knows of its sessions what its events say, as a watcher does."""

    wanted: set[str] = field(default_factory=lambda: {"message.added", "tool.started", "tool.finished"})

    def __post_init__(self) -> None:
        self.book = StatusBook("/work/fix")
        self.happenings = Happenings(WORKSPACE, lambda *hooks: bool(self.wanted & {*hooks}))

    @property
    def sessions(self) -> tuple[SessionState, ...]:
        return self.book.sessions()

    def session(self, id_: str) -> Session | None:
        return self.book.session(id_)

    def says(self, *events: AgentEvent) -> list[Event]:
        told: list[Event] = []
        for event in events:
            self.book.hear(event)
            told += self.happenings.hear(event, self, 1000.0)
        return told

    def renews(self, *sessions: Session, busy: tuple[str, ...] = (), asks: tuple[Permission, ...] = ()) -> list[Event]:
        self.book.renew(Snapshot(sessions, dict.fromkeys(busy, BUSY), asks))
        return self.says(Renewed())


def names(events: list[Event]) -> list[tuple[str, str]]:
    return [(one.hook, getattr(one, "session_id", "")) for one in events]


def part(**more: Any) -> PartSeen:
    whole = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", **more}
    return PartSeen("ses_1", msgspec.Raw(json.dumps(whole).encode()))


def test_a_session_is_told_from_its_making_to_its_end_with_its_place() -> None:
    agent = Agent()
    assert agent.renews() == []
    told = agent.says(
        SessionSeen(ONE),
        SessionSeen(msgspec.structs.replace(ONE, title="Another title")),
        DoingChanged("ses_1", BUSY),
        DoingChanged("ses_1", Doing("retry", 1)),
        # OpenCode says twice that one is idle.
        DoingChanged("ses_1", IDLE),
        DoingChanged("ses_1", IDLE),
        SessionGone("ses_1"),
        SessionGone("ses_1"),
    )
    hooks = ["session.created", "session.busy", "session.idle", "session.closed"]
    assert names(told) == [(hook, "ses_1") for hook in hooks]
    place: dict[str, Any] = {"at": 1000.0, "project": "app-1", "workspace": "fix", "path": "/work/fix"}
    assert told[-1] == SessionEvent(hook="session.closed", session_id="ses_1", title="Another title", **place)


def test_one_that_is_put_away_is_closed_and_one_for_tools_is_nobodys_business() -> None:
    agent = Agent()
    agent.renews(ONE)
    away = msgspec.structs.replace(ONE, time=msgspec.structs.replace(ONE.time, archived=5.0))
    assert names(agent.says(SessionSeen(away))) == [("session.closed", "ses_1")]
    assert agent.says(SessionSeen(HIDDEN), DoingChanged("ses_3", BUSY), SessionGone("ses_3")) == []


def test_what_was_there_before_is_told_as_found_and_what_was_missed_as_it_is_now() -> None:
    agent = Agent()
    first = agent.renews(ONE, CHILD, busy=("ses_1", "ses_2"), asks=(PERMISSION,))
    assert [(one.hook, getattr(one, "found", None)) for one in first] == [("session.busy", True), ("ask.opened", True)]
    two = Session("ses_4", "/work/fix", "Two")
    again = agent.renews(ONE, two)
    assert sorted(names(again)) == [
        ("ask.answered", "ses_1"),
        ("session.created", "ses_4"),
        ("session.idle", "ses_1"),
        ("session.idle", "ses_4"),
    ]
    assert not any(getattr(one, "found", False) for one in again)
    assert agent.renews(ONE, two) == []
    assert names(agent.renews(two)) == [("session.closed", "ses_1")]
    late = agent.happenings.as_they_are(2000.0)
    assert [(one.hook, one.at, getattr(one, "found", False)) for one in late] == [("session.idle", 2000.0, True)]


def test_an_ask_of_a_child_is_its_parents_and_is_over_when_it_is_answered_or_the_turn_ends() -> None:
    agent = Agent()
    agent.renews(ONE, CHILD, busy=("ses_1", "ses_2"))
    (asked,) = agent.says(Asked(PERMISSION))
    assert isinstance(asked, AskEvent)
    assert (asked.session_id, asked.ask.asked_by, asked.ask.text) == ("ses_1", "ses_2", "bash: rm")
    assert agent.happenings.as_they_are(0.0)[-1].hook == "ask.opened"
    assert names(agent.says(Answered("ses_2", "per_1"), Answered("ses_2", "per_1"))) == [("ask.answered", "ses_1")]
    agent.says(Asked(PERMISSION))
    told = agent.says(DoingChanged("ses_2", IDLE))
    assert ("ask.answered", "ses_1") in names(told)


@pytest.mark.parametrize(("name", "aborted"), [("MessageAbortedError", True), ("APIError", False)])
def test_a_turn_that_failed_is_told_with_whether_somebody_ended_it(name: str, aborted: bool) -> None:
    agent = Agent()
    agent.renews(ONE)
    (told,) = agent.says(TurnFailed("ses_1", Fault(name, {"message": "no more"})))
    assert isinstance(told, SessionEvent) and (told.hook, told.error, told.aborted) == (
        "session.error",
        "no more",
        aborted,
    )
    # OpenCode does not always say whose it was.
    assert agent.says(TurnFailed("", Fault(name))) == []


def test_a_message_is_told_once_when_it_is_whole() -> None:
    agent = Agent()
    agent.renews(ONE)
    user = MessageInfo("msg_1", "user", "ses_1")
    (asked,) = agent.says(MessageSeen("ses_1", user), part(type="text", text="hello"), MessageSeen("ses_1", user))
    assert isinstance(asked, MessageEvent) and (asked.role, asked.content) == ("user", "hello")
    reply = MessageInfo("msg_2", "assistant", "ses_1", MessageTimes(1.0))
    text = {"type": "text", "messageID": "msg_2"}
    assert agent.says(MessageSeen("ses_1", reply), part(**text, id="prt_2", text="go")) == []
    assert agent.says(part(**text, id="prt_2", text="good"), part(**text, id="prt_3", text="bye")) == []
    whole = msgspec.structs.replace(reply, time=MessageTimes(1.0, 2.0))
    (said,) = agent.says(MessageSeen("ses_1", whole), MessageSeen("ses_1", whole))
    assert isinstance(said, MessageEvent) and (said.role, said.content) == ("assistant", "good\nbye")


def test_a_tool_is_told_when_it_starts_and_when_it_ends_and_not_while_it_runs() -> None:
    agent = Agent()
    agent.renews(ONE)

    def tool(status: str, **more: Any) -> PartSeen:
        return part(type="tool", tool="bash", state={"status": status, "input": {"command": "ls"}, **more})

    told = agent.says(
        tool("pending"), tool("running"), tool("running"), tool("completed", output="a"), tool("completed")
    )
    assert [(one.hook, one.run.tool, one.run.output) for one in told if isinstance(one, ToolEvent)] == [
        ("tool.started", "bash", None),
        ("tool.finished", "bash", "a"),
    ]
    # One that was over before anybody heard of it has still begun.
    at_once = part(id="prt_9", type="tool", tool="read", state={"status": "error", "error": "no such file"})
    assert [one.hook for one in agent.says(at_once, at_once)] == ["tool.started", "tool.finished"]
    assert agent.says(PartSeen("ses_1", msgspec.Raw(b'{"id": 1}'))) == []


def test_what_nobody_wants_to_know_of_messages_is_not_even_read() -> None:
    agent = Agent(wanted=set())
    agent.renews(ONE)
    assert agent.says(PartSeen("ses_1", msgspec.Raw(b"no JSON at all"))) == []


def test_a_toast_belongs_to_its_workspace() -> None:
    (told,) = Agent().says(ToastShown("done", None, "success", 2000))
    assert isinstance(told, ToastEvent)
    assert (told.workspace, told.toast.message, told.toast.expires_at) == ("fix", "done", 3000.0)
