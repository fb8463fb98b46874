"""What is around an agent when it starts: the gateway, the servers behind it, and what of the repository may count."""

from typing import Protocol

import msgspec

from rookery.agents.injection import Redirected
from rookery.wire.http_client import HttpClient
from rookery.workspaces.record import Workspace


class Wired(msgspec.Struct, frozen=True, kw_only=True):
    """`off` are servers that wait for approval or are switched off. Without a `port` there is no gateway.

    `tool_port` is where the model that plays tools is served. `waits` tells what of the repository's own OpenCode
    config has no effect, because nobody has approved it.
    """

    port: int | None = None
    tool_port: int | None = None
    servers: tuple[Redirected, ...] = ()
    off: tuple[str, ...] = ()
    project_config: bool = True
    waits: str = ""


class Surroundings(Protocol):
    """Whoever knows the gateway and the user's approvals. `client` is what all agents are spoken to with."""

    def client(self) -> HttpClient: ...

    async def wired(self, workspace: Workspace) -> Wired: ...
