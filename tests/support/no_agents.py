"""Workspaces without agents, for tests of everything else about them."""

from rookery.system.errors import RookeryError
from rookery.workspaces.agent import Agent, AgentSession, AgentStatus
from rookery.workspaces.record import Workspace


class NoAgents:
    """Every workspace is without one."""

    async def status(self, workspace: Workspace) -> AgentStatus:
        return AgentStatus()

    async def process(self, workspace: Workspace) -> Agent:
        return Agent()

    async def port(self, workspace: Workspace) -> int | None:
        return (await self.process(workspace)).port

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return None

    async def restart(self, workspace: Workspace) -> int:
        raise RookeryError("agent-unavailable", f"no agent runs in {workspace.name}", "use the workspace without one")

    def check(self, prompt: str | None) -> None:
        if prompt is not None:
            raise RookeryError(
                "agent-unavailable", "there is no agent to give a prompt to", "use the workspace without one"
            )

    async def begin(self, workspace: Workspace, prompt: str | None) -> None:
        """Nothing is started or held back."""

    async def prompted(self, workspace: Workspace) -> None:
        """Nothing is started or held back."""

    async def decline(self, workspace: Workspace) -> None:
        """Nothing is started or held back."""
