"""The shape of `GET /api/status` and `rookery status --json`. Fields are added, never taken away."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from rookery.upstreams.slots import Record
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


def with_endpoint(shown: Mapping[str, Any], url: str) -> Workspace:
    """A workspace with where clients reach it: on the app port, which serves it while it is open."""
    place = f"{url}/w/{shown['project']}/{quote(shown['name'], safe='@')}/mcp"
    mcp = Endpoint(shown["open"], port=None, url=place, connected_clients=0, tools=[], last_error=None)
    return msgspec.convert({**shown, "mcp": msgspec.to_builtins(mcp)}, Workspace)
