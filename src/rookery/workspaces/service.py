"""The service that lists, creates, prepares and deletes workspaces."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from rookery.system.bus import Bus
from rookery.system.confinement.locations import SandboxOptions
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.system.threads import SerialThread
from rookery.workspaces import metadata
from rookery.workspaces.confinement import WorkspaceSandbox, WorkspaceSandboxes
from rookery.workspaces.create.recovery import recover_workspaces
from rookery.workspaces.create.run import CreationService, FamilyLimits
from rookery.workspaces.delete.processes import FolderProcess
from rookery.workspaces.delete.run import DeletionService
from rookery.workspaces.lifecycle.service import LifecycleService
from rookery.workspaces.lifecycle.state import Lifecycle
from rookery.workspaces.lifecycle.tokens import WorkspaceTokens
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import GIT_INITIALIZING_LOCK, LocatedWorkspace, WorkspaceFinder
from rookery.workspaces.model import Workspace, check_workspace_name
from rookery.workspaces.ports import PortRanges
from rookery.workspaces.prepare import (
    ApprovalCheck,
    ApprovalRequest,
    PreparationService,
    find_setup_request,
    list_approval_requests,
)
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.status.cache import GitStatus, StatusCache
from rookery.workspaces.worktrees import Worktree, find_default_base_name

logger = logging.getLogger("rookery.workspaces")


class Workspaces:
    """Lists, creates, prepares, deletes and restores workspaces, and keeps their state.

    `path_template` is the template `worktrees.path`. `is_approved` decides whether something of a repository may run.
    `days` and `limit` (in bytes) say when the trash is emptied.
    """

    def __init__(
        self,
        state: Path,
        store: Store,
        git: Git,
        spawner: Spawner,
        events: Bus,
        projects: Projects,
        *,
        is_approved: ApprovalCheck,
        path_template: str = "",
        setup_seconds: float = 1800.0,
        days: float = 14.0,
        limit: int = 20 * 2**30,
        family_limits: FamilyLimits | None = None,
        sandboxes: WorkspaceSandboxes | None = None,
    ) -> None:
        self.sandboxes = sandboxes or WorkspaceSandboxes(state, SandboxOptions())
        self._state = state
        self._git = git
        self._events = events
        self._projects = projects
        self._spawner = spawner
        self._is_approved = is_approved
        self.locks = RepositoryLocks()
        # Writing metadata waits for the disk, so the event loop does not do it.
        self._metadata_thread = SerialThread("metadata")
        # The metadata of each workspace as it was published last.
        self._published: dict[Path, dict[str, str]] = {}
        self.ports = PortRanges(store)
        self.tokens = WorkspaceTokens(store)
        self.lifecycle = Lifecycle(store, events)
        self.finder = WorkspaceFinder(git, state, projects, self.lifecycle)
        self.finder.on_listed = self.sandboxes.add_listed
        spawner.find_confinement = self.sandboxes.find_git_policy
        self.preparations = PreparationService(git, spawner, events, self.ports, is_approved, setup_seconds)
        self.preparations.make_sandbox = self._make_setup_sandbox
        self._lifecycle_service = LifecycleService(
            projects, self.finder, self.lifecycle, self.tokens, self.preparations
        )
        self.creations = CreationService(
            state,
            git,
            events,
            projects,
            self.locks,
            self.preparations,
            is_approved=is_approved,
            lifecycle=self._lifecycle_service,
            path_template=path_template,
            family_limits=family_limits or FamilyLimits(),
        )
        self.deletions = DeletionService(
            state,
            git,
            spawner,
            self.locks,
            events,
            self._lifecycle_service.stop_for_deletion,
            days=days,
            limit=limit,
            roots=self.finder.roots,
        )
        self.statuses = StatusCache(git)
        self._lifecycle_service.on_deleted = self._forget
        # Part of the interface of this class, implemented by the services that do the work.
        self.list = self.finder.list
        self.get = self.finder.get
        self.find = self.finder.find
        self.at = self.finder.at
        self.open = self._lifecycle_service.open
        self.close = self._lifecycle_service.close
        self.token = self._lifecycle_service.token
        self.start_open_workspaces = self._lifecycle_service.start_open_workspaces

    async def start(self) -> None:
        """Load the state, and resume what an earlier daemon left unfinished.

        An unreadable project does not stop the others.
        """
        await self.deletions.resume()
        await self.tokens.load()
        await self.lifecycle.load()
        for project in await self._projects.all():
            try:
                await self.repair(project)
            except RookeryError as error:
                logger.error("cannot list the workspaces of %s: %s", project.id, error.message)
        await self.ports.release_orphaned()

    async def stop(self) -> None:
        await self.lifecycle.deletion_watch.close()
        await self.creations.close()
        await self.deletions.close()
        await self.preparations.close()
        await self.statuses.close()
        self._metadata_thread.close()

    async def repair(self, project: Project) -> None:
        """Repair a project: unfinished creations, moved worktrees and interrupted preparations."""
        for located in await recover_workspaces(self._git, self._state, project, self.locks):
            if located.workspace.state == "preparing":
                # The earlier daemon may have been killed before it marked the workspace as open.
                await self._lifecycle_service.mark_open(located.workspace, located.git_folder)
                self.preparations.start(msgspec.structs.replace(located.workspace, open=True), located.git_folder)

    async def create(
        self,
        project: str,
        name: str,
        *,
        base: str | None = None,
        branch: str | None = None,
        creator: Path | None = None,
        agent: bool = False,
    ) -> Workspace:
        """Create a workspace and start its preparation; `wait_until_prepared` waits for the end of the preparation.

        `creator` is the own git folder of the workspace whose token was used for the request. `agent` says whether an
        agent will run in the new workspace.
        """
        check_workspace_name(name)
        return await self.creations.create(
            await self._projects.get(project), name, base=base, branch=branch, creator=creator, agent=agent
        )

    async def wait_until_prepared(self, workspace: Workspace) -> Workspace:
        """Wait until a workspace is created and prepared, or has failed, and return its current state."""
        located = await self.find(workspace.project.id, workspace.name)
        if located.workspace.state == "preparing" and not self.preparations.is_running(located.git_folder):
            # It is still being created, under the write lock of the repository.
            async with self.locks.write_lock(located.workspace.project.path):
                pass
        await self.preparations.wait(located.git_folder)
        return await self.get(workspace.project.id, workspace.name)

    async def prepare(self, workspace: Workspace) -> None:
        """Start a preparation again, after the cause of a failure was fixed."""
        located = await self.find(workspace.project.id, workspace.name)
        half_made = located.worktree.locked == GIT_INITIALIZING_LOCK
        if located.workspace.main or half_made or located.workspace.state not in ("failed", "ready"):
            raise RookeryError(
                "invalid-input", f"{workspace.name} cannot be prepared while its state is {located.workspace.state}"
            )
        metadata.write_preparation(located.git_folder, metadata.PreparationMarker("begun"))
        self.preparations.start(located.workspace, located.git_folder)

    # Approvals

    async def list_approval_requests(self) -> "list[ApprovalRequest]":
        """Return everything in the repositories that needs an approval to run."""
        return await list_approval_requests(self._git, await self._projects.all(), self.finder.list_located)

    async def on_approved(self, path: str) -> None:
        """Prepare again the workspaces of the project at `path` that failed only because an approval was missing."""
        for project in await self._projects.all():
            for located in await self.finder.list_located(project) if project.path == path else []:
                request = find_setup_request(located.workspace) if located.workspace.code == "needs-approval" else None
                if request is not None and await self._is_approved(request):
                    await self.prepare(located.workspace)

    # Status, deletion and metadata

    async def status(self, project: str) -> dict[str, GitStatus]:
        """Return the git status of every workspace of a project that has a folder, by name."""
        workspaces = await self.finder.list_located(project_entry := await self._projects.get(project))
        default_base = await find_default_base_name(self._git, Path(project_entry.path))
        bases = {
            located.workspace.path: metadata.read_metadata(located.git_folder).metadata.get(metadata.BASE_KEY)
            or default_base
            for located in workspaces
        }
        statuses = await self.statuses.get([located.workspace for located in workspaces], bases)
        return {
            located.workspace.name: statuses[located.workspace.path]
            for located in workspaces
            if located.workspace.path in statuses
        }

    async def delete(
        self, workspace: Workspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> Sequence[FolderProcess]:
        """Check that a workspace may be deleted and start to move it to the trash.

        With `wait`, return the processes that stayed in the folder.
        """
        located = await self.find(workspace.project.id, workspace.name)
        result = await self.deletions.delete(located, force=force, keep_branch=keep_branch, wait=wait)
        self._forget(workspace.path)
        return result.occupants if result is not None else ()

    def _forget(self, path: Path) -> None:
        self.statuses.forget(path)
        self._published.pop(path, None)

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Workspace:
        """Restore a trash entry by its id, or the newest entry with that name."""
        entry = self.deletions.trash.get(wanted, project)
        if entry.project not in await self._projects.all():
            remedy = f"add it again first: rookery project add {entry.project.path}"
            raise RookeryError(
                "project-not-found", f"{entry.project.path} is no longer registered as a project", remedy
            )
        restored = (await self.deletions.restore(entry.id, entry.project.id, to)).entry
        return await self.get(restored.project.id, restored.name)

    async def metadata(self, workspace: Workspace) -> dict[str, str]:
        """Return all metadata of a workspace. `base` is always present."""
        located = await self.finder.refresh(workspace)
        values = metadata.read_metadata(located.git_folder).metadata
        if metadata.BASE_KEY in values:
            return values
        return {metadata.BASE_KEY: await find_default_base_name(self._git, Path(workspace.project.path)), **values}

    async def set_metadata(self, workspace: Workspace, key: str, value: str | None) -> None:
        """Set a metadata key, or remove it if `value` is None."""
        located = await self.finder.refresh(workspace)
        git_folder = located.git_folder
        try:
            await self._metadata_thread.run(lambda: metadata.set_value(git_folder, key, value))
        except FileNotFoundError:
            await self.finder.refresh(workspace)  # raises, if the workspace was deleted meanwhile
            raise
        # The events that are kept share their values: one workspace can have a megabyte of them.
        published = self._published.get(workspace.path, {})
        values = await self.metadata(workspace)
        shared = {name: published[name] if published.get(name) == text else text for name, text in values.items()}
        self._published[workspace.path] = shared
        self._events.publish("workspace.changed", **located.workspace.as_dict(), metadata=shared)

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """Return the environment variables for programs in a workspace, including its ports."""
        located = await self.finder.refresh(workspace)
        return await self.preparations.environment(located.workspace, located.git_folder)

    async def make_sandbox(
        self,
        workspace: Workspace,
        mode: Literal["workspace", "strict"],
        environment: Mapping[str, str],
        ports: Sequence[int] = (),
    ) -> WorkspaceSandbox | None:
        """Return the sandbox for programs in a workspace; None if it cannot be confined and the settings allow that.

        Programs in a strict sandbox may use the ports of the workspace, and `ports`. From now on something may be
        confined, even if another process starts it.
        """
        return await self._make_sandbox(await self.finder.refresh(workspace), mode, environment, ports)

    async def make_task_sandbox(self, workspace: Workspace, environment: Mapping[str, str]) -> WorkspaceSandbox | None:
        """Return the sandbox of a just task; None if it has none. Those of a main checkout are not confined."""
        return await self._make_task_sandbox(await self.finder.refresh(workspace), environment)

    async def _make_setup_sandbox(
        self, workspace: Workspace, own: Path, environment: Mapping[str, str]
    ) -> WorkspaceSandbox | None:
        # Not looked up: the workspace is still being prepared.
        located = LocatedWorkspace(workspace, Worktree(workspace.path), own)
        return await self._make_task_sandbox(located, environment)

    async def _make_task_sandbox(
        self, located: LocatedWorkspace, environment: Mapping[str, str]
    ) -> WorkspaceSandbox | None:
        if self.sandboxes.tasks == "off" or located.workspace.main:
            return None
        return await self._make_sandbox(located, self.sandboxes.tasks, environment)

    async def _make_sandbox(
        self,
        located: LocatedWorkspace,
        mode: Literal["workspace", "strict"],
        environment: Mapping[str, str],
        ports: Sequence[int] = (),
    ) -> WorkspaceSandbox | None:
        own_ports = await self.ports.get(located.git_folder)
        sandbox = await asyncio.to_thread(self.sandboxes.make, located, mode, environment, (*own_ports, *ports))
        self._spawner.has_confined = self._spawner.has_confined or sandbox is not None
        return sandbox
