"""Create, find, inspect and remove workspaces.

The daemon may send more fields than the records here have; those are ignored.
"""

import asyncio
import builtins
import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from rookery.sdk.projects import Project
from rookery.sdk.rest import RestClient, drop_none, quote_segment
from rookery.sdk.sessions import WorkspaceSessions
from rookery.system.errors import RookeryError


class SessionCounts(msgspec.Struct, frozen=True):
    """The number of sessions of an agent, by activity."""

    idle: int
    busy: int
    total: int


class AgentStatus(msgspec.Struct, frozen=True):
    """What the agent of a workspace does, over all its sessions."""

    type: Literal["none", "idle", "busy", "mixed"]
    counts: SessionCounts


class WorkspaceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The git status of a workspace, and what its agent does.

    `ahead` and `behind` count commits relative to the base; `unmerged_commits` counts those that are in no branch that
    stays. `merged_into` is the branch that contains the work, if there was any and all of it is merged.
    """

    is_dirty: bool
    unmerged_commits: int
    ahead: int
    behind: int
    conflicts: list[str]
    base: str | None
    agent: AgentStatus
    merged_into: str | None = None


class AttentionReason(msgspec.Struct, frozen=True):
    """A reason why a workspace needs its user; `reason` is a code for programs."""

    reason: str
    text: str
    id: str = ""


class Agent(msgspec.Struct, frozen=True):
    """The OpenCode process of a workspace; `error` says why an agent that should run does not."""

    state: Literal["stopped", "starting", "running", "asleep", "restarting", "failed"]
    port: int | None
    pid: int | None
    error: str | None
    detail: str | None = None
    notes: list[str] = []
    needs_restart: bool = False
    activity: Literal["new", "queued", "working", "waiting", "failed", "finished", "idle"] = "new"


class WorkspaceStart(msgspec.Struct, frozen=True):
    """Where a workspace started: at the `commit` that `ref` named then, and why there."""

    ref: str
    commit: str
    reason: Literal["given", "remote-default", "head", "detached", "branch"]


class WorkspaceRecord(msgspec.Struct, frozen=True):
    """A workspace as the daemon describes it."""

    project: str
    name: str
    path: Path
    branch: str | None
    main: bool
    state: Literal["preparing", "ready", "failed", "missing", "deleting"]
    error: str | None
    open: bool
    agent: Agent
    attention: list[AttentionReason]
    # Where a workspace that Rookery created started.
    start: WorkspaceStart | None = None


class _DismissedSessions(msgspec.Struct, frozen=True):
    dismissed: builtins.list[str]


class Workspace:
    """One worktree of a project, as of the last request; `refresh` updates it."""

    def __init__(self, rest: RestClient, record: WorkspaceRecord) -> None:
        self._rest = rest
        self.record = record
        self.sessions = WorkspaceSessions(rest, record.project, record.name, record.path)

    def __repr__(self) -> str:
        return f"<Workspace {self.project}/{self.name} {self.state}>"

    # Properties

    @property
    def project(self) -> str:
        """The id of the project."""
        return self.record.project

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def branch(self) -> str | None:
        """The branch, or None if no branch is checked out."""
        return self.record.branch

    @property
    def main(self) -> bool:
        """Whether it is the main checkout, which is never deleted."""
        return self.record.main

    @property
    def state(self) -> str:
        """`preparing`, `ready`, `failed`, `missing` or `deleting`."""
        return self.record.state

    @property
    def error(self) -> str | None:
        """The reason why the workspace has failed or is missing."""
        return self.record.error

    @property
    def is_open(self) -> bool:
        """Whether the parts of the workspace, such as its agent, should run."""
        return self.record.open

    @property
    def agent(self) -> Agent:
        return self.record.agent

    @property
    def attention(self) -> list[AttentionReason]:
        """The reasons why the workspace needs its user."""
        return self.record.attention

    # Queries

    async def refresh(self) -> "Workspace":
        """Update the workspace from the daemon and return it."""
        self.record = await self._request("GET", "", WorkspaceRecord)
        return self

    async def status(self) -> WorkspaceStatus:
        """Return the git status of the workspace, and the status of its agent."""
        return await self._request("GET", "/status", WorkspaceStatus)

    async def diff(self) -> dict[str, Any]:
        """Return the changes since the branch left its base: `files`, a `patch`, and what was `cut` off."""
        return await self._request("GET", "/diff", dict[str, Any])

    async def metadata(self) -> dict[str, str]:
        """Return the metadata, text by key; `base` always exists."""
        return await self._request("GET", "/metadata", dict[str, str])

    async def set_metadata(self, key: str, value: str | None) -> dict[str, str]:
        """Set a key, or remove it with None; return all metadata."""
        return await self._request("PUT", "/metadata", dict[str, str], {"key": key, "value": value})

    # Operations

    async def open(self) -> "Workspace":
        """Open the workspace: start its parts, now and with the daemon."""
        self.record = await self._request("POST", "/open", WorkspaceRecord)
        return self

    async def close(self) -> "Workspace":
        """Close the workspace: stop its parts. Nothing is deleted."""
        self.record = await self._request("POST", "/close", WorkspaceRecord)
        return self

    async def prepare(self) -> "Workspace":
        """Prepare the workspace again after a failure; return when that has succeeded or failed."""
        self.record = await self._request("POST", "/prepare", WorkspaceRecord, {"wait": True})
        return self

    async def delete(self, *, force: bool = False, keep_branch: bool = False, wait: bool = True) -> None:
        """Move the workspace to the trash.

        Refused with `workspace-not-clean` if work would be lost, unless `force` is true.
        """
        body = {"force": force, "keepBranch": keep_branch, "wait": wait}
        await self._request("DELETE", "", msgspec.Raw, body)

    async def start_agent(self) -> Agent:
        """Start or wake the agent; return when it listens."""
        return await self._request("POST", "/agent/start", Agent)

    async def stop_agent(self) -> Agent:
        """Stop the agent, until it is started again."""
        return await self._request("POST", "/agent/stop", Agent)

    async def dismiss(self, session: str | None = None) -> builtins.list[str]:
        """Dismiss the failed turns of all sessions, or of one; return the sessions that had one."""
        return (await self._request("POST", "/agent/dismiss", _DismissedSessions, {"session": session})).dismissed

    async def _request(self, method: str, suffix: str, kind: type[Any], body: object = None) -> Any:
        path = f"/api/workspaces/{quote_segment(self.project)}/{quote_segment(self.name)}{suffix}"
        return await self._rest.request(method, path, kind, body)


class Workspaces:
    """Lists, creates and finds workspaces."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def create(
        self,
        name: str,
        *,
        project: Project | str | None = None,
        base: str | None = None,
        branch: str | None = None,
        prompt: str | None = None,
        agent: bool = True,
        wait: bool = True,
    ) -> Workspace:
        """Create a worktree with a branch of its own, in the only project if `project` is not given.

        The branch starts from `base`, or is the existing `branch`. `prompt` is the first message to the agent; without
        `agent` none works there. With `wait`, return when the workspace is prepared or that has failed: see its
        `state`.
        """
        body = drop_none(project=_project_id(project), base=base, branch=branch, prompt=prompt)
        request = {"name": name, "agent": agent, "wait": wait, **body}
        return self._make_workspace(await self._rest.request("POST", "/api/workspaces", WorkspaceRecord, request))

    async def list(self, *, project: Project | str | None = None) -> builtins.list[Workspace]:
        """Return the workspaces of one project, or of all. Each main checkout is among them, as `@main`."""
        records = await self._rest.request(
            "GET", "/api/workspaces", list[WorkspaceRecord], project=_project_id(project)
        )
        return [self._make_workspace(record) for record in records]

    async def get(self, name: str, *, project: Project | str | None = None) -> Workspace:
        """Return a workspace by its name; `project` is needed if several projects have one of that name."""
        matches = [workspace for workspace in await self.list(project=project) if workspace.name == name]
        if not matches:
            raise RookeryError("workspace-not-found", f"there is no workspace {name}", "see workspaces.list()")
        if len(matches) > 1:
            projects = ", ".join(match.project for match in matches)
            raise RookeryError(
                "invalid-input", f"several workspaces have the name {name}", f"give a project: {projects}"
            )
        return matches[0]

    async def at(self, path: str | os.PathLike[str]) -> Workspace:
        """Return the workspace that contains a folder."""
        folder = await asyncio.to_thread(Path(path).absolute)
        return self._make_workspace(
            await self._rest.request("GET", "/api/workspaces/at", WorkspaceRecord, path=str(folder))
        )

    def _make_workspace(self, record: WorkspaceRecord) -> Workspace:
        return Workspace(self._rest, record)


def _project_id(project: Project | str | None) -> str | None:
    return project.id if isinstance(project, Project) else project
