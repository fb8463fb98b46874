"""Workspaces as they are shown: what git says, their status, their agent, and what wants the user's attention."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.agent import Agents
from rookery.workspaces.attention import attention_of
from rookery.workspaces.base import default_name, remote_default
from rookery.workspaces.merged import merged_workspaces
from rookery.workspaces.metadata import BASE, read_kept
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import Workspace, as_text
from rookery.workspaces.service import Workspaces
from rookery.workspaces.status import Status
from rookery.workspaces.worktrees import named_git_folder

logger = logging.getLogger("rookery.workspaces")

Shown = dict[str, Any]


class Overview:
    def __init__(self, workspaces: Workspaces, projects: Projects, git: Git, agents: Agents) -> None:
        self._workspaces, self._projects = workspaces, projects
        self._git, self._agents = git, agents

    async def all(self, project: str | None = None, *, status: bool = False) -> list[Shown]:
        """Those of one project, or of all; their status only if it is asked for, as that costs git processes."""
        found = await self._workspaces.list(project)
        if not status:
            return [await self._shown(one, None) for one in found]
        statuses = await self.statuses(found)
        return [await self._with_status(one, statuses.get(one.path)) for one in found]

    async def one(self, workspace: Workspace) -> Shown:
        """All that is known of a workspace."""
        kept = await self._workspaces.metadata(workspace) if workspace.state != "missing" else {}
        statuses = await self.statuses([workspace])
        return await self._with_status(workspace, statuses.get(workspace.path)) | {"metadata": kept}

    async def brief(self, workspace: Workspace) -> Shown:
        """A workspace as it is listed; its status is not asked for."""
        return await self._shown(workspace, None)

    async def projects(self, project: str | None = None) -> list[Shown]:
        """The projects, each with the names of its workspaces."""
        names: dict[str, list[str]] = {}
        for one in await self._workspaces.list(project):
            names.setdefault(one.project.id, []).append(one.name)
        found = [await self._projects.get(project)] if project is not None else await self._projects.all()
        return [{**msgspec.to_builtins(one), "workspaces": names.get(one.id, [])} for one in found]

    async def status(self, workspace: Workspace) -> Shown:
        if workspace.state == "missing":
            raise RookeryError(
                "workspace-not-found",
                f"{workspace.name} is missing: {workspace.error}",
                "bring its folder back, or remove it: rookery ws rm",
            )
        found = (await self._of_project([workspace])).get(workspace.path)
        if found is None:
            raise RookeryError("workspace-not-found", f"{workspace.path} is no worktree any more")
        return await self._status(workspace, found)

    async def statuses(self, workspaces: Sequence[Workspace]) -> dict[Path, Status]:
        """Of all that git can read; one that it cannot hides no other."""
        projects: dict[str, list[Workspace]] = {}
        for one in workspaces:
            projects.setdefault(one.project.id, []).append(one)
        each = await asyncio.gather(*map(self._of_those_readable, projects.values()))
        return {path: status for found in each for path, status in found.items()}

    async def merged(self, project: str | None = None) -> list[Shown]:
        """Those whose work is in their base already, and how it came there."""
        if project is not None:
            return await self._merged(await self._projects.get(project))
        return [shown for one in await self._projects.all() for shown in await self._merged_if_readable(one)]

    async def _merged_if_readable(self, project: Project) -> list[Shown]:
        try:
            return await self._merged(project)
        except RookeryError as error:
            logger.warning("what is merged in %s cannot be told: %s", project.id, error.message)
            return []

    async def _merged(self, project: Project) -> list[Shown]:
        found = await self._workspaces.finding.of(project)
        bases = await self._bases([one.workspace for one in found])
        merged = await merged_workspaces(self._git, found, bases)
        return [{**one.workspace.as_dict(), "how": how} for one, how in merged]

    # ---- status

    async def _of_those_readable(self, workspaces: Sequence[Workspace]) -> dict[Path, Status]:
        try:
            return await self._of_project(workspaces)
        except RookeryError as error:
            if len(workspaces) == 1:
                logger.warning("the status of %s cannot be told: %s", workspaces[0].path, error.message)
                return {}
        each = [await self._of_those_readable([one]) for one in workspaces]
        return {path: status for found in each for path, status in found.items()}

    async def _of_project(self, workspaces: Sequence[Workspace]) -> dict[Path, Status]:
        return await self._workspaces.statuses.of(workspaces, await self._bases(workspaces))

    async def _bases(self, workspaces: Sequence[Workspace]) -> dict[Path, str]:
        """What each is compared with; git is asked for the usual one only where a workspace has none."""
        kept = {one.path: _kept_base(one) for one in workspaces if one.state != "missing"}
        usual = "" if all(kept.values()) else await self._usual_base(workspaces)
        return {path: base or usual for path, base in kept.items()}

    async def _usual_base(self, workspaces: Sequence[Workspace]) -> str:
        checkout = Path(workspaces[0].project.path)
        main = next((one for one in workspaces if one.main), None)
        if main is None:
            return await default_name(self._git, checkout)
        # Git has just said what the main checkout is on, and is not asked again.
        remote = await remote_default(self._git, checkout)
        return remote.name if remote is not None else main.branch or "HEAD"

    # ---- shapes

    async def _shown(self, workspace: Workspace, status: Status | None) -> Shown:
        agent = await self._agents.process(workspace)
        needs = attention_of(workspace, status, agent)
        return {**workspace.as_dict(), "status": None, "agent": msgspec.to_builtins(agent), "attention": needs}

    async def _with_status(self, workspace: Workspace, status: Status | None) -> Shown:
        told = await self._status(workspace, status) if status is not None else None
        return await self._shown(workspace, status) | {"status": told}

    async def _status(self, workspace: Workspace, status: Status) -> Shown:
        agent = await self._agents.status(workspace)
        conflicts = [as_text(path) for path in status.conflicts]
        return {**msgspec.to_builtins(status), "conflicts": conflicts, "agent": msgspec.to_builtins(agent)}


def _kept_base(workspace: Workspace) -> str | None:
    own = named_git_folder(workspace.path)
    return read_kept(own).metadata.get(BASE) if own is not None else None
