"""The sources of a workspace's context: its files, agents, servers, failures and containers.

Docker is queried over its socket; without an engine there is nothing to report.
"""

import asyncio
import os
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.process import read_last_lines
from rookery.agents.opencode.records import Message
from rookery.agents.status import SessionState
from rookery.files import read as reading
from rookery.files.context.docker import build_docker_sections
from rookery.files.context.engine import Gatherer, ProjectContext
from rookery.files.context.failures import FailureLog, FailureRecord, build_failure_sections
from rookery.files.context.section import Section
from rookery.files.context.sources import build_gatherers
from rookery.files.just.run import JustRunner
from rookery.files.read import FileContent
from rookery.files.sandbox import SandboxRoot
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.upstreams.hub import Hub
from rookery.wire.http_client.connection import HttpClientConnection, HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter
from rookery.workspaces.metadata import read_preparation
from rookery.workspaces.model import Workspace
from rookery.workspaces.prepare import setup_log_path
from rookery.workspaces.worktrees import read_git_folder

_MAX_SESSIONS = 3
_MAX_MESSAGES = 4
_MAX_MESSAGE_CHARS = 800
# Less than the time limit of a source of context, so that a slow agent does not hide the others.
_SESSION_SECONDS = 3.0

_SOCKET = "unix:///var/run/docker.sock"
_MAX_BYTES = 1_000_000
_ENGINE_SECONDS = 3.0
_SETUP_LINES = 40
_BROKEN = ("failed", "backoff")


async def agent_sections(agents: AgentManager, current: Workspace, *, siblings: bool) -> list[Section]:
    """Return sections on the agent of a workspace and, with `siblings`, on the others of its project.

    No agent is started for this.
    """
    project_workspaces = [workspace for workspace in agents.workspaces() if workspace.project.id == current.project.id]
    selected = [workspace for workspace in project_workspaces if workspace.path == current.path or siblings]
    selected.sort(key=lambda workspace: (workspace.path != current.path, workspace.name))
    sections = await asyncio.gather(
        *(_agent_section(agents, workspace, 2 if workspace.path == current.path else 4) for workspace in selected)
    )
    return [section for section in sections if section is not None]


async def _agent_section(agents: AgentManager, workspace: Workspace, priority: int) -> Section | None:
    process = await agents.process(workspace)
    if process.state == "stopped":
        return None
    sessions = agents.sessions(workspace)
    head = [f"{process.state}{f': {process.error}' if process.error else ''}", *process.notes]
    head += [f"needs the user: {request.text}" for request in process.attention]
    descriptions = await asyncio.gather(
        *(_describe_session(agents, workspace, session) for session in sessions[:_MAX_SESSIONS])
    )
    lines = [*head, *(line for lines in descriptions for line in lines)]
    if len(sessions) > _MAX_SESSIONS:
        lines.append(f"[{len(sessions) - _MAX_SESSIONS} more sessions]")
    key = f"agents/{workspace.name}"
    return Section(key, f"Agent of the workspace {workspace.name}", priority, "\n".join(lines) + "\n")


async def _describe_session(agents: AgentManager, workspace: Workspace, session: SessionState) -> list[str]:
    head = f"session {session.id} ({session.title}): {session.state}{f', {session.detail}' if session.detail else ''}"
    entry = agents.agents.get(workspace.path)
    run = entry.supervisor.run if entry is not None else None
    if run is None:
        return [head]
    try:
        async with asyncio.timeout(_SESSION_SECONDS):
            messages = await run.client.messages(session.id, _MAX_MESSAGES)
    except TimeoutError:
        return [head, f"  its messages were not received within {_SESSION_SECONDS:g} s"]
    except RookeryError as error:
        return [head, f"  its messages cannot be read: {error.message}"]
    return [head, *(line for message in messages if (line := _describe_message(message)))]


def _describe_message(message: Message) -> str:
    """Return one line for a message. A long text is cut at its start, since its end is mostly the important part."""
    text = " ".join(message.text.split())
    if message.info.error is not None:
        text = f"{text} [failed: {message.info.error.message}]".strip()
    tools = [part.tool for part in message.parts if part.type == "tool" and part.tool]
    used = f" [used {', '.join(dict.fromkeys(tools))}]" if tools else ""
    cut = f"… {text[-_MAX_MESSAGE_CHARS:]}" if len(text) > _MAX_MESSAGE_CHARS else text
    return f"  {message.info.role}: {cut}{used}" if cut or used else ""


class DockerEngine:
    """The Docker engine that `DOCKER_HOST` names, else the one at the default socket.

    TLS and SSH are not supported: such an engine is not queried.
    """

    def __init__(self, host: str | None = None) -> None:
        self._host = urlsplit(host or os.environ.get("DOCKER_HOST") or _SOCKET)

    async def get(self, path: str) -> bytes | None:
        """Return the response to a GET, cut at the size limit; None if there is no engine or it refuses."""
        try:
            async with asyncio.timeout(_ENGINE_SECONDS):
                return await self._request(path)
        except TimeoutError:
            raise RookeryError("timeout", f"the Docker engine did not respond within {_ENGINE_SECONDS:g} s") from None
        except (OSError, ValueError):
            return None

    async def _request(self, path: str) -> bytes | None:
        loop = asyncio.get_running_loop()
        connection = HttpClientConnection(lambda _: None, lambda _: None)
        if self._host.scheme == "unix" and self._host.path:
            await loop.create_unix_connection(lambda: connection, self._host.path)
        elif self._host.scheme == "tcp" and self._host.hostname and not os.environ.get("DOCKER_TLS_VERIFY"):
            await loop.create_connection(lambda: connection, self._host.hostname, self._host.port or 2375)
        else:
            return None
        try:
            response = await connection.send(HttpRequestWriter(f"http://docker{path}", {}).write("GET", {}))
            return await _read_body(response) if response.status == 200 else None
        finally:
            connection.abort()


async def _read_body(response: HttpResponse) -> bytes:
    body = b""
    while len(body) < _MAX_BYTES and (more := await response.next()):
        body += more
    return body


class ContextSources:
    """Builds the contexts of workspaces from all sources."""

    def __init__(self, git: Git, just: JustRunner, agents: AgentManager, hub: Hub) -> None:
        self._git = git
        self._just = just
        self._agents = agents
        self._hub = hub

    def context(self, workspace: Workspace, root: SandboxRoot, failures: FailureLog, siblings: bool) -> ProjectContext:
        """Return the context of a workspace, with `siblings` including the agents of the project's other workspaces."""

        async def read(path: str, max_bytes: int) -> FileContent:
            return await reading.read_content(root, path, max_bytes=max_bytes)

        return ProjectContext(
            [
                *build_gatherers(workspace.path, self._git, self._just, read),
                Gatherer("agents", partial(agent_sections, self._agents, workspace, siblings=siblings)),
                Gatherer("failures", partial(self._failures, workspace, failures)),
                Gatherer(
                    "docker",
                    partial(
                        build_docker_sections,
                        DockerEngine().get,
                        workspace.path,
                        lambda: root.deny_rules.workspaces,
                        None if workspace.main else Path(workspace.project.path),
                    ),
                ),
            ]
        )

    async def _failures(self, workspace: Workspace, tasks: FailureLog) -> list[Section]:
        return build_failure_sections([*tasks.recent(), *_setup_failures(workspace), *await self._servers(workspace)])

    async def _servers(self, workspace: Workspace) -> list[FailureRecord]:
        broken = [
            server
            for server in await self._hub.records(workspace.path)
            if server.status in _BROKEN and not server.shadowed
        ]
        return [
            FailureRecord(f"the MCP server {server.name}", server.error or server.status, server.stderr)
            for server in broken
        ]


def _setup_failures(workspace: Workspace) -> list[FailureRecord]:
    own = read_git_folder(workspace.path)
    preparation = read_preparation(own) if own is not None else None
    if own is None or preparation is None or not preparation.error:
        return []
    return [
        FailureRecord("preparing the workspace", preparation.error, read_last_lines(setup_log_path(own), _SETUP_LINES))
    ]
