"""Which workspaces need the user, and why."""

from pathlib import Path
from typing import Any

from rookery.workspaces.model import AgentInfo, Workspace
from rookery.workspaces.overview import list_needs
from rookery.workspaces.projects import Project
from rookery.workspaces.status.cache import GitStatus
from tests.support.requirements import requirement

pytestmark = requirement("ws.daily.attention")


def workspace(state: Any, error: str | None = None, code: str | None = None) -> Workspace:
    return Workspace(Project("a-1", "a", "/a"), "task", Path("/t"), "task", False, state, error, code)


def status(*conflicts: str) -> GitStatus:
    return GitStatus(True, 1, 1, 1, conflicts, "main")


def test_what_goes_on_by_itself_needs_nobody() -> None:
    for state in ("ready", "preparing", "deleting"):
        assert list_needs(workspace(state), status(), AgentInfo()) == []


def test_each_reason_is_told_with_words() -> None:
    found = [
        list_needs(workspace("missing", "/t does not exist")),
        list_needs(workspace("failed", "the setup command ended with 1", "setup-failed")),
        list_needs(workspace("failed", "the setup command is not approved", "needs-approval")),
        list_needs(workspace("ready"), status("a", "b", "c", "d", "e")),
        list_needs(workspace("ready"), None, AgentInfo(state="failed", error="OpenCode did not start")),
    ]
    assert found == [
        [{"reason": "missing", "text": "/t does not exist", "id": ""}],
        [{"reason": "failed", "text": "the setup command ended with 1", "id": ""}],
        [{"reason": "needs-approval", "text": "the setup command is not approved", "id": ""}],
        [{"reason": "conflicts", "text": "it conflicts with main: a, b, c and 2 more", "id": ""}],
        [{"reason": "agent-failed", "text": "OpenCode did not start", "id": ""}],
    ]


def test_several_reasons_are_all_told() -> None:
    needs = list_needs(workspace("failed", "no"), status("a"), AgentInfo(error="none"))
    assert [one["reason"] for one in needs] == ["failed", "conflicts", "agent-failed"]
