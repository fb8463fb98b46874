"""Events for plugins about an agent's sessions: each once, when it has happened."""

from typing import Any

import msgspec
import pytest

from rookery.agents.opencode.events import (
    AskAnswered,
    AskOpened,
    SessionDeleted,
    SessionStatusChanged,
    SessionUpdated,
    ToastShown,
    TurnFailed,
)
from rookery.agents.opencode.records import Session, SessionStatus, TurnError
from rookery.plugins.api import AskEvent, SessionEvent, ToastEvent
from tests.support.plugins.agent_events import BUSY, CHILD, HIDDEN, IDLE, ONE, PERMISSION, ObservedAgent, names


def test_a_session_is_told_from_its_making_to_its_end_with_its_place() -> None:
    agent = ObservedAgent()
    assert agent.renews() == []
    told = agent.says(
        SessionUpdated(ONE),
        SessionUpdated(msgspec.structs.replace(ONE, title="Another title")),
        SessionStatusChanged("ses_1", BUSY),
        SessionStatusChanged("ses_1", SessionStatus("retry", 1)),
        # OpenCode says twice that one is idle.
        SessionStatusChanged("ses_1", IDLE),
        SessionStatusChanged("ses_1", IDLE),
        SessionDeleted("ses_1"),
        SessionDeleted("ses_1"),
    )
    hooks = ["session.created", "session.busy", "session.idle", "session.closed"]
    assert names(told) == [(hook, "ses_1") for hook in hooks]
    place: dict[str, Any] = {"at": 1000.0, "project": "app-1", "workspace": "fix", "path": "/work/fix"}
    assert told[-1] == SessionEvent(hook="session.closed", session_id="ses_1", title="Another title", **place)


def test_one_that_is_put_away_is_closed_and_one_for_tools_is_nobodys_business() -> None:
    agent = ObservedAgent()
    agent.renews(ONE)
    away = msgspec.structs.replace(ONE, time=msgspec.structs.replace(ONE.time, archived=5.0))
    assert names(agent.says(SessionUpdated(away))) == [("session.closed", "ses_1")]
    assert agent.says(SessionUpdated(HIDDEN), SessionStatusChanged("ses_3", BUSY), SessionDeleted("ses_3")) == []


def test_what_was_there_before_is_told_as_found_and_what_was_missed_as_it_is_now() -> None:
    agent = ObservedAgent()
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
    late = agent.happenings.current_events(2000.0)
    assert [(one.hook, one.at, getattr(one, "found", False)) for one in late] == [("session.idle", 2000.0, True)]


def test_an_ask_of_a_child_belongs_to_its_parent_and_ends_with_its_answer_or_turn() -> None:
    agent = ObservedAgent()
    agent.renews(ONE, CHILD, busy=("ses_1", "ses_2"))
    (asked,) = agent.says(AskOpened(PERMISSION))
    assert isinstance(asked, AskEvent)
    assert (asked.session_id, asked.ask.asked_by, asked.ask.text) == ("ses_1", "ses_2", "bash: rm")
    assert agent.happenings.current_events(0.0)[-1].hook == "ask.opened"
    assert names(agent.says(AskAnswered("ses_2", "per_1"), AskAnswered("ses_2", "per_1"))) == [
        ("ask.answered", "ses_1")
    ]
    agent.says(AskOpened(PERMISSION))
    told = agent.says(SessionStatusChanged("ses_2", IDLE))
    assert ("ask.answered", "ses_1") in names(told)


@pytest.mark.parametrize(("name", "aborted"), [("MessageAbortedError", True), ("APIError", False)])
def test_a_turn_that_failed_is_told_with_whether_somebody_ended_it(name: str, aborted: bool) -> None:
    agent = ObservedAgent()
    agent.renews(ONE)
    (told,) = agent.says(TurnFailed("ses_1", TurnError(name, {"message": "no more"})))
    assert isinstance(told, SessionEvent) and (told.hook, told.error, told.aborted) == (
        "session.error",
        "no more",
        aborted,
    )
    # OpenCode does not always say whose it was.
    assert agent.says(TurnFailed("", TurnError(name))) == []


def test_a_toast_belongs_to_its_workspace() -> None:
    (told,) = ObservedAgent().says(ToastShown("done", None, "success", 2000))
    assert isinstance(told, ToastEvent)
    assert (told.workspace, told.toast.message, told.toast.expires_at) == ("fix", "done", 3000.0)
