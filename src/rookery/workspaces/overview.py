"""Workspaces as clients see them: state, git status, agent, and the reasons why a workspace needs the user."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.metadata import BASE_KEY, read_metadata
from rookery.workspaces.model import AgentInfo, AgentProvider, Need, Workspace, format_path
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.service import Workspaces
from rookery.workspaces.status.cache import GitStatus
from rookery.workspaces.status.merges import list_merged_workspaces
from rookery.workspaces.worktrees import find_default_base_name, find_remote_default, read_git_folder

_MAX_CONFLICTS_SHOWN = 3

logger = logging.getLogger("rookery.workspaces")


def list_needs(
    workspace: Workspace, status: GitStatus | None = None, agent: AgentInfo | None = None
) -> list[dict[str, str]]:
    """Return the reasons why a workspace needs its user. A `status` or `agent` that is None is not considered.

    Each need has a `reason`, a `text`, and the `id` of the request or session concerned, empty if there is none.
    """
    return [msgspec.structs.asdict(need) for need in _find_needs(workspace, status, agent)]


def _find_needs(workspace: Workspace, status: GitStatus | None, agent: AgentInfo | None) -> Iterator[Need]:
    if workspace.state == "missing":
        yield Need("missing", workspace.error or "its folder is missing")
    if workspace.state == "failed":
        reason = "needs-approval" if workspace.code == "needs-approval" else "failed"
        yield Need(reason, workspace.error or "it could not be prepared")
    if status is not None and status.conflicts:
        more = len(status.conflicts) - _MAX_CONFLICTS_SHOWN
        others = f" and {more} more" if more > 0 else ""
        yield Need(
            "conflicts",
            f"it conflicts with {status.base}: {', '.join(status.conflicts[:_MAX_CONFLICTS_SHOWN])}{others}",
        )
    if agent is not None:
        yield from _find_agent_needs(agent)


def _find_agent_needs(agent: AgentInfo) -> Iterator[Need]:
    if agent.error is not None:
        # The other lines are the end of the agent's log.
        yield Need("agent-failed", agent.error.partition("\n")[0])
    yield from agent.attention


JsonObject = dict[str, Any]


class Overview:
    """Collects what clients show of workspaces: state, git status, agent and needs."""

    def __init__(self, workspaces: Workspaces, projects: Projects, git: Git, agents: AgentProvider) -> None:
        self._workspaces = workspaces
        self._projects = projects
        self._git = git
        self._agents = agents

    async def all(self, project: str | None = None, *, status: bool = False) -> list[JsonObject]:
        """Return the workspaces of one project, or of all, with their git status only on request.

        The git status costs git processes.
        """
        workspaces = await self._workspaces.list(project)
        if not status:
            return [await self._format(workspace, None) for workspace in workspaces]
        statuses = await self.statuses(workspaces)
        return [await self._with_status(workspace, statuses.get(workspace.path)) for workspace in workspaces]

    async def details(self, workspace: Workspace) -> JsonObject:
        """Return all details of a workspace."""
        metadata = await self._workspaces.metadata(workspace) if workspace.state != "missing" else {}
        statuses = await self.statuses([workspace])
        return await self._with_status(workspace, statuses.get(workspace.path)) | {"metadata": metadata}

    async def summary(self, workspace: Workspace) -> JsonObject:
        """Return a workspace as in the list, without its git status."""
        return await self._format(workspace, None)

    async def projects(self, project: str | None = None) -> list[JsonObject]:
        """Return the projects, each with the names of its workspaces."""
        names: dict[str, list[str]] = {}
        for workspace in await self._workspaces.list(project):
            names.setdefault(workspace.project.id, []).append(workspace.name)
        projects = [await self._projects.get(project)] if project is not None else await self._projects.all()
        return [{**msgspec.to_builtins(entry), "workspaces": names.get(entry.id, [])} for entry in projects]

    async def status(self, workspace: Workspace) -> JsonObject:
        if workspace.state == "missing":
            raise RookeryError(
                "workspace-not-found",
                f"{workspace.name} is missing: {workspace.error}",
                "restore its folder, or remove the workspace: rookery ws rm",
            )
        git_status = (await self._project_statuses([workspace])).get(workspace.path)
        if git_status is None:
            raise RookeryError("workspace-not-found", f"{workspace.path} is no longer a worktree")
        return await self._format_status(workspace, git_status)

    async def statuses(self, workspaces: Sequence[Workspace]) -> dict[Path, GitStatus]:
        """Return the git status of the workspaces that git can read; an unreadable one does not hide the others."""
        projects: dict[str, list[Workspace]] = {}
        for workspace in workspaces:
            projects.setdefault(workspace.project.id, []).append(workspace)
        results = await asyncio.gather(*map(self._readable_statuses, projects.values()))
        return {path: status for result in results for path, status in result.items()}

    async def merged(self, project: str | None = None) -> list[JsonObject]:
        """Return the workspaces whose work is merged into a remaining branch, with the branch and kind of merge."""
        if project is not None:
            return await self._merged(await self._projects.get(project))
        return [
            workspace for entry in await self._projects.all() for workspace in await self._merged_if_readable(entry)
        ]

    async def _merged_if_readable(self, project: Project) -> list[JsonObject]:
        try:
            return await self._merged(project)
        except RookeryError as error:
            logger.warning("cannot find the merged workspaces of %s: %s", project.id, error.message)
            return []

    async def _merged(self, project: Project) -> list[JsonObject]:
        workspaces = await self._workspaces.finder.list_located(project)
        bases = await self._bases([located.workspace for located in workspaces])
        merged = await list_merged_workspaces(self._git, workspaces, bases)
        return [
            {**located.workspace.as_dict(), "how": merge.how, "mergedInto": merge.branch} for located, merge in merged
        ]

    # Status

    async def _readable_statuses(self, workspaces: Sequence[Workspace]) -> dict[Path, GitStatus]:
        """Return the git status of a project's workspaces; each one alone if git fails for some of them."""
        try:
            return await self._project_statuses(workspaces)
        except RookeryError as error:
            if len(workspaces) == 1:
                logger.warning("cannot read the git status of %s: %s", workspaces[0].path, error.message)
                return {}
        results = [await self._readable_statuses([workspace]) for workspace in workspaces]
        return {path: status for result in results for path, status in result.items()}

    async def _project_statuses(self, workspaces: Sequence[Workspace]) -> dict[Path, GitStatus]:
        return await self._workspaces.statuses.get(workspaces, await self._bases(workspaces))

    async def _bases(self, workspaces: Sequence[Workspace]) -> dict[Path, str]:
        """Return the base of each workspace. Git is queried for the default only if a workspace has none."""
        bases = {workspace.path: _read_base(workspace) for workspace in workspaces if workspace.state != "missing"}
        default = "" if all(bases.values()) else await self._default_base(workspaces)
        return {path: base or default for path, base in bases.items()}

    async def _default_base(self, workspaces: Sequence[Workspace]) -> str:
        checkout = Path(workspaces[0].project.path)
        main = next((workspace for workspace in workspaces if workspace.main), None)
        if main is None:
            return await find_default_base_name(self._git, checkout)
        # The branch of the main checkout is known from the list of workspaces: git need not run again.
        remote = await find_remote_default(self._git, checkout)
        return remote.name if remote is not None else main.branch or "HEAD"

    # Representations

    async def _format(self, workspace: Workspace, status: GitStatus | None) -> JsonObject:
        agent = await self._agents.process(workspace)
        needs = list_needs(workspace, status, agent)
        return {
            **workspace.as_dict(),
            "status": None,
            "activity": agent.activity,
            "agent": msgspec.to_builtins(agent),
            "attention": needs,
        }

    async def _with_status(self, workspace: Workspace, status: GitStatus | None) -> JsonObject:
        status_object = await self._format_status(workspace, status) if status is not None else None
        return await self._format(workspace, status) | {"status": status_object}

    async def _format_status(self, workspace: Workspace, status: GitStatus) -> JsonObject:
        agent = await self._agents.status(workspace)
        conflicts = [format_path(path) for path in status.conflicts]
        return {**msgspec.to_builtins(status), "conflicts": conflicts, "agent": msgspec.to_builtins(agent)}


def _read_base(workspace: Workspace) -> str | None:
    own = read_git_folder(workspace.path)
    return read_metadata(own).metadata.get(BASE_KEY) if own is not None else None
