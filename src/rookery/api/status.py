"""The shape of `GET /api/status` and `rookery status --json`. Fields are added, never taken away."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from rookery.upstreams.slots import Record
from rookery.wire.traffic import Line
from rookery.workspaces.agent import Agent, AgentStatus
from rookery.workspaces.projects import Project
from rookery.workspaces.status import Status


class Daemon(msgspec.Struct):
    pid: int
    url: str
    mcp_url: str
    uptime_s: float
    version: str
    instance: str
    problems: list[str]


class WorkspaceStatus(Status, frozen=True, rename="camel"):
    agent: AgentStatus


class Need(msgspec.Struct):
    reason: str
    text: str


class Tool(msgspec.Struct):
    name: str
    description: str
    parameters: Any


class State(msgspec.Struct, frozen=True):
    """What the event `workspace.mcp` tells: how the MCP server of a workspace is just now."""

    server_running: bool = False
    port: int | None = None
    url: str | None = None
    connected_clients: int = 0
    last_error: str | None = None


class Endpoint(State, frozen=True, kw_only=True):
    """`app_url` has the same on the app port."""

    app_url: str
    tools: Sequence[Tool]


class Endpoints(Protocol):
    """The MCP servers of workspaces; which one is meant is told by a workspace as it is shown."""

    def state(self, shown: Mapping[str, Any]) -> State: ...

    async def tools(self, shown: Mapping[str, Any]) -> Sequence[Tool]:
        """As far as they are known; none of one that is closed."""
        ...

    def traffic(self, shown: Mapping[str, Any]) -> Sequence[Line]:
        """The last messages."""
        ...


class Workspace(msgspec.Struct):
    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: str
    error: str | None
    open: bool
    attention: list[Need]
    # Null where there is no folder, or git cannot read it.
    status: WorkspaceStatus | None
    agent: Agent
    mcp: Endpoint


class Report(msgspec.Struct):
    daemon: Daemon
    projects: list[Project]
    workspaces: list[Workspace]
    servers: list[Record]


async def endpoint_of(shown: Mapping[str, Any], endpoints: Endpoints, url: str) -> Endpoint:
    """Where clients reach a workspace, on its own port and at the app's `url`, and what they find there."""
    tools = await endpoints.tools(shown)
    place = f"{url}{place_of(shown['project'], shown['name'])}/mcp"
    return Endpoint(**msgspec.structs.asdict(endpoints.state(shown)), app_url=place, tools=tools)


def place_of(project: str, name: str) -> str:
    """Where the endpoints of a workspace are on the app port."""
    return f"/w/{quote(project, safe='@')}/{quote(name, safe='@')}"


async def with_endpoint(shown: Mapping[str, Any], endpoints: Endpoints, url: str) -> Workspace:
    return msgspec.convert({**shown, "mcp": await endpoint_of(shown, endpoints, url)}, Workspace)
