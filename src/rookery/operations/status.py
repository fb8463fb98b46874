"""The format of `GET /api/status` and `rookery status --json`. Fields are added, never removed."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import quote

import msgspec

from rookery.system.tasks import Crash
from rookery.upstreams.server_set import ServerRecord
from rookery.wire.server.traffic import Traffic, TrafficLine
from rookery.workspaces.model import AgentActivity, AgentInfo, AgentStatus
from rookery.workspaces.projects import Project
from rookery.workspaces.status.cache import GitStatus


class NotifyFailure(msgspec.Struct, frozen=True):
    """How the user's `notify.command` failed last, and how often since its last success.

    `error` says how it ended, `line` is the last line that it printed.
    """

    count: int
    error: str
    line: str
    at: str


class ClientSession(msgspec.Struct, frozen=True):
    """An MCP client that has a session; clients of revision 2026-07-28 have none.

    `session` is its Mcp-Session-Id, `path` the endpoint that it uses, and `workspace` the folder that the endpoint acts
    in.
    """

    session: str
    name: str
    version: str
    revision: str
    workspace: str | None
    path: str


class DaemonStatus(msgspec.Struct):
    """The daemon: its process, addresses, problems and clients."""

    pid: int
    url: str
    mcp_url: str
    uptime_s: float
    version: str
    instance: str
    problems: list[str]
    # Background tasks that crashed, one entry for each.
    crashes: list[Crash] = []
    auth: Literal["token", "loopback"] = "token"
    # Set until the command succeeds again.
    notify_failure: NotifyFailure | None = None
    clients: Sequence[ClientSession] = ()


class WorkspaceStatus(GitStatus, frozen=True, rename="camel", kw_only=True):
    """The git status of a workspace, with the status of its agent."""

    agent: AgentStatus


class AttentionNeed(msgspec.Struct):
    reason: str
    text: str
    id: str = ""


class EndpointTool(msgspec.Struct):
    name: str
    description: str
    parameters: Any


class EndpointState(msgspec.Struct, frozen=True):
    """The state of the MCP server of a workspace. The event `workspace.mcp` reports its changes."""

    server_running: bool = False
    port: int | None = None
    url: str | None = None
    connected_clients: int = 0
    last_error: str | None = None


class EndpointStatus(EndpointState, frozen=True, kw_only=True):
    """The MCP server of a workspace. `app_url` is its address on the app port, `traffic` its last messages."""

    app_url: str
    tools: Sequence[EndpointTool]
    traffic: Sequence[TrafficLine] = ()


class EndpointLookup(Protocol):
    """The MCP servers of workspaces. `shown` is a workspace as clients see it."""

    def state(self, workspace: Mapping[str, Any]) -> EndpointState: ...

    async def tools(self, workspace: Mapping[str, Any]) -> Sequence[EndpointTool]:
        """Return the tools as far as they are known; none if the workspace is closed."""
        ...

    def traffic(self, workspace: Mapping[str, Any]) -> Traffic:
        """Return the record of the last messages."""
        ...


class WorkspaceReport(msgspec.Struct):
    """A workspace in the status report."""

    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: str
    error: str | None
    open: bool
    attention: list[AttentionNeed]
    # Null if there is no folder, or if git cannot read it.
    status: WorkspaceStatus | None
    agent: AgentInfo
    mcp: EndpointStatus
    activity: AgentActivity = "new"


class DaemonHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Which daemon is alive. It is a new instance after each start."""

    status: Literal["ok"] = "ok"
    instance: str
    version: str


class ReloadedSettings(msgspec.Struct, frozen=True):
    """The settings that have changed: those that the daemon uses now, and those that need a restart."""

    applied: Sequence[str]
    needs_restart: Sequence[str]


class StopStarted(msgspec.Struct, frozen=True):
    stopping: bool = True


class StatusReport(msgspec.Struct):
    """The response of `GET /api/status`."""

    daemon: DaemonStatus
    projects: list[Project]
    workspaces: list[WorkspaceReport]
    servers: list[ServerRecord]


async def describe_endpoint(workspace: Mapping[str, Any], endpoints: EndpointLookup, url: str) -> EndpointStatus:
    """Return the addresses of a workspace's MCP server, on its own port and at the app's `url`, and its content."""
    tools = await endpoints.tools(workspace)
    app_url = f"{url}{endpoint_path(workspace['project'], workspace['name'])}/mcp"
    state = msgspec.structs.asdict(endpoints.state(workspace))
    traffic = endpoints.traffic(workspace).lines()
    return EndpointStatus(**state, app_url=app_url, tools=tools, traffic=traffic)


def endpoint_path(project: str, name: str) -> str:
    """Return the path of a workspace's endpoints on the app port."""
    return f"/w/{quote(project, safe='@')}/{quote(name, safe='@')}"


async def add_endpoint(workspace: Mapping[str, Any], endpoints: EndpointLookup, url: str) -> WorkspaceReport:
    """Return a workspace with its MCP server for the status report."""
    return msgspec.convert({**workspace, "mcp": await describe_endpoint(workspace, endpoints, url)}, WorkspaceReport)
