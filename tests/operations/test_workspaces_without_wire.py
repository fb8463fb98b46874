"""Cases of the workspace tools that a running gateway cannot produce: agents, and removed projects."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rookery.agents.status import SessionState
from rookery.workspaces.model import AgentInfo, AgentProvider, AgentSession, AgentStatus, SessionCounts, Workspace
from rookery.workspaces.operations import WorkspaceOperations
from tests.support.requirements import requirement
from tests.support.workspaces.no_agents import NoAgents
from tests.support.workspaces.service import make_repository, start_workspaces
from tests.support.workspaces.toolset import call_workspace_tool

pytestmark = pytest.mark.anyio


class Working(NoAgents):
    """Agents as those who run them would tell of them."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str | None]] = []

    async def status(self, workspace: Workspace) -> AgentStatus:
        return AgentStatus("mixed", SessionCounts(1, 2, 3))

    async def process(self, workspace: Workspace) -> AgentInfo:
        return AgentInfo("running", 14001, 4711, None)

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return AgentSession(14001, "ses_1")

    def sessions(self, workspace: Workspace) -> list[SessionState]:
        return []

    async def restart(self, workspace: Workspace) -> int:
        return 14001

    def check(self, prompt: str | None) -> None:
        """They take any prompt."""

    async def begin_workspace(self, workspace: Workspace, prompt: str | None) -> None:
        self.begun.append((workspace.name, prompt))


@dataclass
class Room:
    tools: WorkspaceOperations
    app: Path

    async def call(self, tool: str, **given: Any) -> Any:
        content = await call_workspace_tool(self.tools, self.app, tool, **given)
        return content.get("result", content)


@asynccontextmanager
async def a_room(state: Path, agents: AgentProvider | None = None) -> AsyncGenerator[Room]:
    app = make_repository(Path.home() / "app")
    async with start_workspaces(state) as served:
        await served.projects.add(app)
        yield Room(
            WorkspaceOperations(served.workspaces, served.projects, served.git, served.events, agents or NoAgents()),
            app,
        )


@requirement("ws.port.get", "ws.status.shape")
async def test_what_is_known_of_an_agent_is_answered(state: Path) -> None:
    agents = Working()
    async with a_room(state, agents) as room:
        assert await room.call("workspace_get_opencode_port") == 14001
        assert await room.call("workspace_get_agent_session") == {"port": 14001, "sessionId": "ses_1"}
        assert await room.call("workspace_restart_agent") == 14001
        told = await room.call("workspace_get_status")
        assert told["agent"] == {"type": "mixed", "counts": {"idle": 1, "busy": 2, "total": 3}}
        (listed,) = await room.call("workspace_list")
        assert listed["agent"].items() >= {"state": "running", "port": 14001, "pid": 4711, "error": None}.items()


async def test_a_prompt_goes_to_the_agent_of_the_new_workspace(state: Path) -> None:
    agents = Working()
    async with a_room(state, agents) as room:
        await room.call("workspace_create", name="one", prompt="hello", wait=True)
        await room.call("workspace_create", name="two", wait=True)
        await room.call("workspace_create", name="three", agent=False, wait=True)
        assert agents.begun == [("one", "hello"), ("two", None)]


@requirement("ws.identity.unknown")
async def test_a_workspace_whose_project_is_forgotten_is_of_no_project(state: Path) -> None:
    async with a_room(state) as room:
        assert await room.call("workspace_get_metadata") == {"base": "main"}
        await room.tools.projects.remove("app")
        assert (await room.call("workspace_get_metadata"))["error"]["code"] == "project-not-found"
        assert (await room.call("workspace_list"))["error"]["code"] == "project-not-found"


@requirement("ws.identity.unknown")
async def test_a_folder_that_is_no_workspace_is_not_found(state: Path) -> None:
    async with a_room(state) as room:
        elsewhere = Room(room.tools, Path.home() / "elsewhere")
        assert (await elsewhere.call("workspace_get_metadata"))["error"]["code"] == "workspace-not-found"
        inside = Room(room.tools, room.app / ".git")
        assert (await inside.call("workspace_get_status"))["error"]["code"] == "workspace-not-found"
