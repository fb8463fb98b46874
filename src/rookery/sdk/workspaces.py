"""Create, find, inspect and remove workspaces."""

import asyncio
import builtins
import os
from pathlib import Path
from typing import Any

import msgspec

from rookery.sdk.operations import Operations
from rookery.sdk.operations.agent import AgentReport
from rookery.sdk.operations.workspace import AgentInfo, Need, WorkspaceRecord, WorkspaceStatus
from rookery.sdk.projects import Project
from rookery.sdk.sessions import WorkspaceSessions
from rookery.system.errors import RookeryError


class Workspace:
    """One worktree of a project, as of the last request; `refresh` updates it."""

    def __init__(self, operations: Operations, record: WorkspaceRecord) -> None:
        self._operations = operations.workspace
        self._agent = operations.agent
        self.record = record
        self.sessions = WorkspaceSessions(operations, record.project, record.name, Path(record.path))

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
        return Path(self.record.path)

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
    def agent(self) -> AgentInfo:
        return self.record.agent

    @property
    def attention(self) -> builtins.list[Need]:
        """The reasons why the workspace needs its user."""
        return self.record.attention

    # Queries

    async def refresh(self) -> "Workspace":
        """Update the workspace from the daemon and return it."""
        details = await self._operations.show(self.project, self.name)
        self.record = msgspec.convert(details, WorkspaceRecord, from_attributes=True)
        return self

    async def status(self) -> WorkspaceStatus:
        """Return the git status of the workspace, and the status of its agent."""
        return await self._operations.status(self.project, self.name)

    async def diff(self) -> dict[str, Any]:
        """Return the changes since the branch left its base: `files`, a `patch`, and what was `cut` off."""
        return msgspec.to_builtins(await self._operations.diff(self.project, self.name))

    async def metadata(self) -> dict[str, str]:
        """Return the metadata, text by key; `base` always exists."""
        return await self._operations.metadata(self.project, self.name)

    async def set_metadata(self, key: str, value: str | None) -> dict[str, str]:
        """Set a key, or remove it with None; return all metadata."""
        return await self._operations.set_metadata(self.project, self.name, key, value)

    # Operations

    async def open(self, *, agent: bool = True) -> "Workspace":
        """Open the workspace: start its parts, now and with the daemon; without `agent`, all but its agent."""
        self.record = await self._operations.open(self.project, self.name, agent=agent)
        return self

    async def close(self) -> "Workspace":
        """Close the workspace: stop its parts. Nothing is deleted."""
        self.record = await self._operations.close(self.project, self.name)
        return self

    async def prepare(self) -> "Workspace":
        """Prepare the workspace again after a failure; return when that has succeeded or failed."""
        self.record = await self._operations.prepare(self.project, self.name, wait=True)
        return self

    async def delete(self, *, force: bool = False, keep_branch: bool = False, wait: bool = True) -> None:
        """Move the workspace to the trash.

        Refused with `workspace-not-clean` if work would be lost, unless `force` is true.
        """
        await self._operations.delete(self.project, self.name, force=force, keep_branch=keep_branch, wait=wait)

    async def start_agent(self) -> AgentReport:
        """Start or wake the agent; return when it listens."""
        return await self._agent.start(self.project, self.name)

    async def stop_agent(self) -> AgentReport:
        """Stop the agent, until it is started again."""
        return await self._agent.stop(self.project, self.name)

    async def dismiss(self, session: str | None = None) -> builtins.list[str]:
        """Dismiss the failed turns of all sessions, or of one; return the sessions that had one."""
        return (await self._agent.dismiss(self.project, self.name, session=session)).dismissed


class Workspaces:
    """Lists, creates and finds workspaces."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

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
        record = await self._operations.workspace.create(
            name, project=_project_id(project), base=base, branch=branch, prompt=prompt, agent=agent, wait=wait
        )
        return self._make_workspace(record)

    async def list(self, *, project: Project | str | None = None) -> builtins.list[Workspace]:
        """Return the workspaces of one project, or of all. Each main checkout is among them, as `@main`."""
        records = await self._operations.workspace.list(project=_project_id(project))
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
        return self._make_workspace(await self._operations.workspace.at(str(folder)))

    def _make_workspace(self, record: WorkspaceRecord) -> Workspace:
        return Workspace(self._operations, record)


def _project_id(project: Project | str | None) -> str | None:
    return project.id if isinstance(project, Project) else project
