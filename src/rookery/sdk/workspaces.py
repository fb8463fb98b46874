"""Workspaces: made, found, looked at and removed."""

import asyncio
import builtins
import os
from pathlib import Path
from typing import Any

import msgspec

from rookery.face.line import Line, as_given, segment
from rookery.face.projects import Project
from rookery.face.records import Agent, Need, WorkspaceRecord, WorkspaceStatus
from rookery.face.sessions import WorkspaceSessions
from rookery.system.errors import RookeryError


class Workspace:
    """One worktree of a project, as it was when it was last asked about: `refresh` asks again."""

    def __init__(self, line: Line, record: WorkspaceRecord) -> None:
        self._line = line
        self.record = record
        self.sessions = WorkspaceSessions(line, record.project, record.name, record.path)

    def __repr__(self) -> str:
        return f"<Workspace {self.project}/{self.name} {self.state}>"

    # ---- what it is

    @property
    def project(self) -> str:
        """The id of its project."""
        return self.record.project

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def branch(self) -> str | None:
        """None where no branch is checked out."""
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
        """Why it is failed or missing."""
        return self.record.error

    @property
    def is_open(self) -> bool:
        """Whether what belongs to it, such as its agent, is to run."""
        return self.record.open

    @property
    def agent(self) -> Agent:
        return self.record.agent

    @property
    def attention(self) -> list[Need]:
        """What it needs its user for."""
        return self.record.attention

    # ---- asking

    async def refresh(self) -> "Workspace":
        """Ask what it is now; answers itself."""
        self.record = await self._ask("GET", "", WorkspaceRecord)
        return self

    async def status(self) -> WorkspaceStatus:
        """What is dirty, unmerged or in conflict, and what the agent does."""
        return await self._ask("GET", "/status", WorkspaceStatus)

    async def diff(self) -> dict[str, Any]:
        """What was changed since the branch left its base: `files`, a `patch`, and what was `cut` off."""
        return await self._ask("GET", "/diff", dict[str, Any])

    async def metadata(self) -> dict[str, str]:
        """Text by key; `base` is always there."""
        return await self._ask("GET", "/metadata", dict[str, str])

    async def set_metadata(self, key: str, value: str | None) -> dict[str, str]:
        """Set a key, or remove it with None; answers all of it."""
        return await self._ask("PUT", "/metadata", dict[str, str], {"key": key, "value": value})

    # ---- doing

    async def open(self) -> "Workspace":
        """What belongs to it starts, now and with the daemon."""
        self.record = await self._ask("POST", "/open", WorkspaceRecord)
        return self

    async def close(self) -> "Workspace":
        """What belongs to it stops; nothing of it is deleted."""
        self.record = await self._ask("POST", "/close", WorkspaceRecord)
        return self

    async def prepare(self) -> "Workspace":
        """Prepare it again, after a failure; answers when that has ended, well or not."""
        self.record = await self._ask("POST", "/prepare", WorkspaceRecord, {"wait": True})
        return self

    async def delete(self, *, force: bool = False, keep_branch: bool = False, wait: bool = True) -> None:
        """Move it to the trash. Refused with `workspace-not-clean` if work would be lost, unless `force` is true."""
        asked = {"force": force, "keepBranch": keep_branch, "wait": wait}
        await self._ask("DELETE", "", msgspec.Raw, asked)

    async def start_agent(self) -> Agent:
        """Start its agent, or wake it; answers when it listens."""
        return await self._ask("POST", "/agent/start", Agent)

    async def stop_agent(self) -> Agent:
        """End its agent, until somebody starts it."""
        return await self._ask("POST", "/agent/stop", Agent)

    async def _ask(self, method: str, rest: str, kind: type[Any], body: object = None) -> Any:
        place = f"/api/workspaces/{segment(self.project)}/{segment(self.name)}{rest}"
        return await self._line.ask(method, place, kind, body)


class Workspaces:
    def __init__(self, line: Line) -> None:
        self._line = line

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
        """Make a worktree with a branch of its own; without `project` in the only one there is.

        It starts from `base`, or has the existing `branch`. `prompt` is the first message to its agent; without
        `agent` none works there. With `wait` answers when it is prepared, or when that has failed: see its `state`.
        """
        body = as_given(project=_id(project), base=base, branch=branch, prompt=prompt)
        asked = {"name": name, "agent": agent, "wait": wait, **body}
        return self._made(await self._line.ask("POST", "/api/workspaces", WorkspaceRecord, asked))

    async def list(self, *, project: Project | str | None = None) -> builtins.list[Workspace]:
        """Those of one project, or of all; each main checkout is among them, as `@main`."""
        found = await self._line.ask("GET", "/api/workspaces", list[WorkspaceRecord], project=_id(project))
        return [self._made(one) for one in found]

    async def get(self, name: str, *, project: Project | str | None = None) -> Workspace:
        """By its name; `project` says which is meant where several projects have it."""
        found = [one for one in await self.list(project=project) if one.name == name]
        if not found:
            raise RookeryError("workspace-not-found", f"there is no workspace {name}", "see workspaces.list()")
        if len(found) > 1:
            projects = ", ".join(one.project for one in found)
            raise RookeryError("invalid-input", f"{name} may be several workspaces", f"say which project: {projects}")
        return found[0]

    async def at(self, path: str | os.PathLike[str]) -> Workspace:
        """The one that a folder lies in."""
        folder = await asyncio.to_thread(Path(path).absolute)
        return self._made(await self._line.ask("GET", "/api/workspaces/at", WorkspaceRecord, path=str(folder)))

    def _made(self, record: WorkspaceRecord) -> Workspace:
        return Workspace(self._line, record)


def _id(project: Project | str | None) -> str | None:
    return project.id if isinstance(project, Project) else project
