"""Who needs the user, and what for."""

from pathlib import Path
from typing import Any

from rookery.workspaces.agent import Agent
from rookery.workspaces.attention import attention_of
from rookery.workspaces.projects import Project
from rookery.workspaces.record import Workspace
from rookery.workspaces.status import Status
from tests.support.requirements import requirement

pytestmark = requirement("ws.daily.attention")


def workspace(state: Any, error: str | None = None, code: str | None = None) -> Workspace:
    return Workspace(Project("a-1", "a", "/a"), "task", Path("/t"), "task", False, state, error, code)


def status(*conflicts: str) -> Status:
    return Status(True, 1, 1, 1, conflicts, "main")


def test_what_goes_on_by_itself_needs_nobody() -> None:
    for state in ("ready", "preparing", "deleting"):
        assert attention_of(workspace(state), status(), Agent()) == []


def test_each_reason_is_told_with_words() -> None:
    found = [
        attention_of(workspace("missing", "/t does not exist")),
        attention_of(workspace("failed", "the setup command ended with 1", "setup-failed")),
        attention_of(workspace("failed", "the setup command is not approved", "needs-approval")),
        attention_of(workspace("ready"), status("a", "b", "c", "d", "e")),
        attention_of(workspace("ready"), None, Agent(state="failed", error="OpenCode did not start")),
    ]
    assert found == [
        [{"reason": "missing", "text": "/t does not exist"}],
        [{"reason": "failed", "text": "the setup command ended with 1"}],
        [{"reason": "needs-approval", "text": "the setup command is not approved"}],
        [{"reason": "conflicts", "text": "it conflicts with main: a, b, c and 2 more"}],
        [{"reason": "agent-failed", "text": "OpenCode did not start"}],
    ]


def test_several_reasons_are_all_told() -> None:
    needs = attention_of(workspace("failed", "no"), status("a"), Agent(error="none"))
    assert [one["reason"] for one in needs] == ["failed", "conflicts", "agent-failed"]
