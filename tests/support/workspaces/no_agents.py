"""Workspaces without agents, for tests of everything else about them."""

from rookery.system.errors import RookeryError
from rookery.workspaces.model import AgentInfo, AgentSession, AgentStatus, Workspace


class NoAgents:
    """An agent manager for workspaces without agents."""

    async def status(self, workspace: Workspace) -> AgentStatus:
        return AgentStatus()

    async def process(self, workspace: Workspace) -> AgentInfo:
        return AgentInfo()

    async def port(self, workspace: Workspace) -> int | None:
        return (await self.process(workspace)).port

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return None

    async def restart(self, workspace: Workspace) -> int:
        raise RookeryError(
            "agent-unavailable", f"no agent runs in {workspace.name}", "use the workspace without an agent"
        )

    def check(self, prompt: str | None) -> None:
        if prompt is not None:
            raise RookeryError(
                "agent-unavailable", "no agent can receive the prompt", "use the workspace without an agent"
            )

    def starts_agent(self, prompt: str | None) -> bool:
        return False

    def has_agent(self, workspace: Workspace) -> bool:
        return False

    async def begin_workspace(self, workspace: Workspace, prompt: str | None) -> None:
        """Do nothing."""

    async def wait_until_prompted(self, workspace: Workspace) -> None:
        """Do nothing."""

    def mark_seen(self, workspace: Workspace) -> None:
        """Do nothing."""

    async def disable_agent(self, workspace: Workspace) -> None:
        """Do nothing."""

    async def before_open(self, workspace: Workspace, *, agent: bool) -> None:
        """Do nothing."""
