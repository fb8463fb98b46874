"""The shape of `GET /api/status` and `rookery status --json`. Fields are added, never taken away."""

import msgspec

from rookery.upstreams.slots import Record
from rookery.workspaces.projects import Project


class Daemon(msgspec.Struct):
    pid: int
    url: str
    mcp_url: str
    uptime_s: float
    version: str
    instance: str
    problems: list[str]


class Counts(msgspec.Struct):
    idle: int = 0
    busy: int = 0
    total: int = 0


class AgentStatus(msgspec.Struct):
    type: str = "none"
    counts: Counts = msgspec.field(default_factory=Counts)


class WorkspaceStatus(msgspec.Struct):
    isDirty: bool
    unmergedCommits: int
    agent: AgentStatus


class Agent(msgspec.Struct):
    state: str
    port: int | None = None
    pid: int | None = None
    error: str | None = None


class Tool(msgspec.Struct):
    name: str
    description: str
    parameters: dict[str, object]


class Endpoint(msgspec.Struct):
    server_running: bool
    port: int | None
    url: str | None
    connected_clients: int
    tools: list[Tool]
    last_error: str | None


class Workspace(msgspec.Struct):
    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: str
    status: WorkspaceStatus
    agent: Agent
    mcp: Endpoint


class Report(msgspec.Struct):
    daemon: Daemon
    projects: list[Project]
    workspaces: list[Workspace]
    servers: list[Record]
