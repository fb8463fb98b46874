"""What a workspace's faces tell and ask of its agent. Who runs agents gives this."""

from typing import Literal, Protocol

import msgspec

from rookery.workspaces.record import Workspace


class Counts(msgspec.Struct, frozen=True):
    """Sessions of an agent, by what they do."""

    idle: int = 0
    busy: int = 0
    total: int = 0


class AgentStatus(msgspec.Struct, frozen=True):
    type: Literal["none", "idle", "busy", "mixed"] = "none"
    counts: Counts = Counts()


class Need(msgspec.Struct, frozen=True):
    """What an agent needs its user for; `reason` is a word for programs."""

    reason: str
    text: str


class Agent(msgspec.Struct, frozen=True):
    """The process; `error` tells why one that should run does not, `detail` what one that starts waits for.

    `notes` are what does not work in it. It `needs_restart` where what it was started with has changed since.
    """

    state: Literal["stopped", "starting", "running", "asleep", "restarting", "failed"] = "stopped"
    port: int | None = None
    pid: int | None = None
    error: str | None = None
    detail: str | None = None
    notes: tuple[str, ...] = ()
    needs_restart: bool = False
    attention: tuple[Need, ...] = ()


class AgentSession(msgspec.Struct, frozen=True, rename="camel"):
    """Where a client finds the conversation of a workspace."""

    port: int
    session_id: str


class Agents(Protocol):
    async def status(self, workspace: Workspace) -> AgentStatus: ...

    async def process(self, workspace: Workspace) -> Agent: ...

    async def port(self, workspace: Workspace) -> int | None:
        """Where it listens; one that sleeps is woken for that."""
        ...

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

    async def prompted(self, workspace: Workspace) -> None:
        """Wait until the first prompt was sent, or is held back; an error tells why it cannot be sent."""
        ...

    async def decline(self, workspace: Workspace) -> None:
        """No agent is to run in this workspace until somebody starts one."""
        ...
