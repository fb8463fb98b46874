"""What a workspace's faces tell and ask of its agent. Who runs agents gives this; without one there are none."""

from typing import Literal, Protocol

import msgspec

from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace


class Counts(msgspec.Struct, frozen=True):
    """Sessions of an agent, by what they do."""

    idle: int = 0
    busy: int = 0
    total: int = 0


class AgentStatus(msgspec.Struct, frozen=True):
    type: Literal["none", "idle", "busy", "mixed"] = "none"
    counts: Counts = Counts()


class Agent(msgspec.Struct, frozen=True):
    """The process; `error` tells why one that should run does not."""

    state: str = "stopped"
    port: int | None = None
    pid: int | None = None
    error: str | None = None


class AgentSession(msgspec.Struct, frozen=True, rename="camel"):
    """Where a client finds the conversation of a workspace."""

    port: int
    session_id: str


class Agents(Protocol):
    async def status(self, workspace: Workspace) -> AgentStatus: ...

    async def process(self, workspace: Workspace) -> Agent: ...

    async def session(self, workspace: Workspace) -> AgentSession | None: ...

    async def restart(self, workspace: Workspace) -> int:
        """Start it anew on the port that it had; answers the port."""
        ...

    def check(self, prompt: str | None) -> None:
        """Refuse, before a workspace is made, what no agent could do in it."""
        ...

    async def begin(self, workspace: Workspace, prompt: str | None) -> None:
        """Take on a workspace that was made; agent and first prompt wait until it is prepared."""
        ...


class NoAgents:
    """Where none can run."""

    async def status(self, workspace: Workspace) -> AgentStatus:
        return AgentStatus()

    async def process(self, workspace: Workspace) -> Agent:
        return Agent()

    async def session(self, workspace: Workspace) -> AgentSession | None:
        return None

    async def restart(self, workspace: Workspace) -> int:
        raise RookeryError("agent-unavailable", f"no agent runs in {workspace.name}", _REMEDY)

    def check(self, prompt: str | None) -> None:
        if prompt is not None:
            raise RookeryError("agent-unavailable", "there is no agent to give a prompt to", _REMEDY)

    async def begin(self, workspace: Workspace, prompt: str | None) -> None:
        pass


_REMEDY = "use the workspace without one"
