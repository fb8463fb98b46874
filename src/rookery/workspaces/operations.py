"""The operations on workspaces and their trash that MCP, REST, the command line and Socket.IO share.

Each of these interfaces adds only its own input and output formats.
"""

import asyncio
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import match_prefix
from rookery.workspaces.delete.folders import measure_folder
from rookery.workspaces.delete.processes import FolderProcess
from rookery.workspaces.delete.trash import OrphanedEntry, TrashEntry
from rookery.workspaces.model import AgentProvider, Workspace
from rookery.workspaces.overview import Overview
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.service import Workspaces
from rookery.workspaces.status.diff import WorkspaceDiff, compute_diff


class TrashRecord(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of the trash, as clients see it. `path` is where the workspace was, `at` when it was deleted.

    If the entry has no readable record, `error` says why, `path` is where its files are in the trash, and the project
    is not known. The size is in bytes; it is null if it was not measured.
    """

    id: str
    project: str | None
    name: str
    path: str
    branch: str | None
    kept_branch: bool
    at: float
    size: int | None
    error: str | None


class TrashView:
    """The trash of all projects.

    A project that is no longer registered can still be named here by its id: its entries remain in the trash.
    """

    def __init__(self, workspaces: Workspaces, projects: Projects) -> None:
        self._workspaces = workspaces
        self._projects = projects

    async def all(self, project: str | None = None) -> list[TrashRecord]:
        """Return the entries, the oldest first, with their size on disk.

        Entries without a readable record come last, and only if no project is named.
        """
        project_id = await self._resolve_project(project)
        trash = self._workspaces.deletions.trash
        sizes = await trash.sizes()
        entries = [
            _format_entry(entry, sizes.get(entry.id)) for entry in trash.all() if project_id in (None, entry.project.id)
        ]
        remains = self._workspaces.deletions.list_orphans() if project_id is None else []
        return [
            *entries,
            *[_format_orphan(orphan, await asyncio.to_thread(_measure_orphan, orphan)) for orphan in remains],
        ]

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Workspace:
        """Restore the entry with this id, or the newest with this name."""
        return await self._workspaces.restore(wanted, await self._resolve_project(project), to)

    async def purge(self, wanted: str | None = None, project: str | None = None) -> list[TrashRecord]:
        """Remove one entry permanently, or all of them (of a project), and return what was removed."""
        removed = await self._workspaces.deletions.purge(wanted, await self._resolve_project(project))
        if wanted is not None and not removed:
            raise RookeryError("invalid-input", f"{wanted} is still being moved", "try again in a moment")
        return [
            _format_entry(entry, entry.size) if isinstance(entry, TrashEntry) else _format_orphan(entry, None)
            for entry in removed
        ]

    async def _resolve_project(self, project: str | None) -> str | None:
        """Return the id of a project, which may no longer be registered."""
        if project is None:
            return None
        trashed_ids = {entry.project.id for entry in self._workspaces.deletions.trash.all()}
        if project in trashed_ids:
            return project
        try:
            return (await self._projects.get(project)).id
        except RookeryError as error:
            if (
                error.code == "project-not-found"
                and (id_ := match_prefix(project, trashed_ids, "projects")) is not None
            ):
                return id_
            raise


def _format_entry(entry: TrashEntry, size: int | None) -> TrashRecord:
    return TrashRecord(
        id=entry.id,
        project=entry.project.id,
        name=entry.name,
        path=entry.path,
        branch=entry.branch,
        kept_branch=entry.kept_branch,
        at=entry.at,
        size=size,
        error=None,
    )


def _format_orphan(orphan: OrphanedEntry, size: int | None) -> TrashRecord:
    return TrashRecord(
        id=orphan.id,
        project=None,
        name=orphan.name,
        path=str(orphan.paths[0]),
        branch=None,
        kept_branch=False,
        at=orphan.at,
        size=size,
        error=orphan.error,
    )


def _measure_orphan(orphan: OrphanedEntry) -> int:
    return sum(measure_folder(path) for path in orphan.paths if path.is_dir() and not path.is_symlink())


class DeletionStarted(msgspec.Struct, frozen=True):
    """The response to a deletion, which continues after it; events report its progress.

    `processes` are those that Rookery did not start and that stayed in the folder. They are known only after waiting.
    """

    started: bool = True
    processes: tuple[FolderProcess, ...] | msgspec.UnsetType = msgspec.UNSET


class WorkspaceOperations:
    """The operations on workspaces for all interfaces. `agents` runs the agents of workspaces."""

    def __init__(
        self, workspaces: Workspaces, projects: Projects, git: Git, events: Bus, agents: AgentProvider
    ) -> None:
        self.workspaces = workspaces
        self.projects = projects
        self.events = events
        self.agents = agents
        workspaces.creations.has_agent = agents.has_agent
        self.overview = Overview(workspaces, projects, git, agents)
        self.trash = TrashView(workspaces, projects)
        self._git = git

    # Lookup

    async def at(self, directory: Path) -> Workspace:
        """Return the workspace at a folder. The error says whether the project is not registered."""
        located = await self.workspaces.finder.find_at(str(directory))
        if located is None:
            raise await self.workspaces.finder.explain_missing(str(directory))
        return located.workspace

    async def containing(self, folder: Path) -> Workspace:
        """Return the innermost workspace that contains a folder."""
        located = await self.workspaces.finder.find_around(str(folder))
        if located is None:
            raise await self.workspaces.finder.explain_missing(str(folder))
        return located.workspace

    async def resolve_project(self, project: str | None) -> Project:
        """Return the named project, else the only one."""
        if project is not None:
            return await self.projects.get(project)
        projects = await self.projects.all()
        if len(projects) == 1:
            return projects[0]
        if not projects:
            raise RookeryError("project-not-found", "there is no project", "add one: rookery project add PATH")
        ids = ", ".join(project.id for project in projects)
        raise RookeryError("invalid-input", "there are several projects", f"name one of them: {ids}")

    # Actions

    async def create(
        self,
        project: Project,
        name: str,
        *,
        base: str | None = None,
        branch: str | None = None,
        prompt: str | None = None,
        agent: bool = True,
        wait: bool = False,
        creator: Path | None = None,
    ) -> Workspace:
        """Create a workspace and start its preparation; with `wait`, wait until the preparation has ended or failed.

        With `wait`, a `prompt` has been sent as well, or an error says why not; the workspace exists in both cases.
        `creator` is the own git folder of the workspace whose token was used for the request; what it may create is
        limited.
        """
        if prompt is not None and not agent:
            raise RookeryError("invalid-input", "a prompt needs an agent", "leave out the prompt")
        self.agents.check(prompt)
        starts_agent = agent and self.agents.starts_agent(prompt)
        workspace = await self.workspaces.create(
            project.id, name, base=base, branch=branch, creator=creator, agent=starts_agent
        )
        if agent:
            await self.agents.begin_workspace(workspace, prompt)
        else:
            await self.agents.disable_agent(workspace)
        if not wait:
            return workspace
        prepared = await self.workspaces.wait_until_prepared(workspace)
        if prompt is not None:
            await self.agents.wait_until_prompted(prepared)
        return prepared

    async def open(self, workspace: Workspace, *, agent: bool = True) -> Workspace:
        """Open a workspace; without `agent`, no agent starts in it until someone starts one, or opens it with it.

        A workspace that is open stays as it is, and so does an agent that runs.
        """
        await self.agents.before_open(workspace, agent=agent)
        return await self.workspaces.open(workspace)

    async def open_main(self, project: Project) -> Workspace | None:
        """Open the main checkout of a project without its agent. A bare repository has none."""
        main = next((workspace for workspace in await self.workspaces.list(project.id) if workspace.main), None)
        return await self.open(main, agent=False) if main is not None and main.state != "missing" else None

    async def delete(
        self, workspace: Workspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> DeletionStarted:
        """Check that a workspace may be deleted and start to move it to the trash; with `wait`, wait for the end."""
        processes = await self.workspaces.delete(workspace, force=force, keep_branch=keep_branch, wait=wait)
        return DeletionStarted(processes=tuple(processes) or msgspec.UNSET)

    async def prepare(self, workspace: Workspace, *, wait: bool = False) -> Workspace:
        """Prepare a workspace again; with `wait`, wait until the preparation has ended or failed."""
        await self.workspaces.prepare(workspace)
        if wait:
            return await self.workspaces.wait_until_prepared(workspace)
        return await self.workspaces.get(workspace.project.id, workspace.name)

    async def diff(self, workspace: Workspace) -> WorkspaceDiff:
        """Return what has changed in a workspace since it started, committed or not."""
        base = (await self.workspaces.metadata(workspace))["base"]
        return await compute_diff(self._git, workspace, base)
