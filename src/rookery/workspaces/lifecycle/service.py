"""Open and close workspaces: on request, when the daemon starts, and before a deletion."""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.system.errors import RookeryError
from rookery.workspaces.lifecycle.state import Lifecycle
from rookery.workspaces.lifecycle.tokens import WorkspaceTokens
from rookery.workspaces.lookup import WorkspaceFinder
from rookery.workspaces.model import Workspace
from rookery.workspaces.prepare import PreparationService
from rookery.workspaces.projects import Projects

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rookery.workspaces")


class LifecycleService:
    """Opens and closes workspaces, with their tokens and preparations."""

    def __init__(
        self,
        projects: Projects,
        finder: WorkspaceFinder,
        lifecycle: Lifecycle,
        tokens: WorkspaceTokens,
        preparations: PreparationService,
    ) -> None:
        self._projects = projects
        self._finder = finder
        self._lifecycle = lifecycle
        self._tokens = tokens
        self._preparations = preparations
        # Called with the path of a workspace that no longer exists.
        self.on_deleted: Callable[[Path], None] = lambda path: None
        lifecycle.deletion_watch.on_deleted = self._on_folder_deleted

    async def start_open_workspaces(self) -> None:
        """Start the hooks of the workspaces that were open when the daemon stopped."""
        for project in await self._projects.all():
            with contextlib.suppress(RookeryError):  # reported at the start, and shown as missing
                for located in await self._finder.list_located(project):
                    if located.workspace.state not in ("missing", "deleting"):
                        await self._lifecycle.start(located.workspace, located.git_folder)

    async def open(self, workspace: Workspace) -> Workspace:
        """Open a workspace: start its hooks now and at every start of the daemon.

        A workspace that is open stays as it is.
        """
        located = await self._finder.refresh(workspace)
        if located.workspace.state == "deleting":
            raise RookeryError("invalid-input", f"{workspace.name} is being deleted", "restore it: rookery ws restore")
        await self._tokens.get(located.git_folder)
        return await self._lifecycle.open(located.workspace, located.git_folder)

    async def close(self, workspace: Workspace) -> Workspace:
        """Stop everything that runs for a workspace, including calls of clients. Its folder stays as it is."""
        located = await self._finder.find(workspace.project.id, workspace.name)
        await self._lifecycle.close(located.workspace, located.git_folder)
        return await self._finder.get(workspace.project.id, workspace.name)

    async def token(self, workspace: Workspace) -> str:
        """Return the token that gives access to this workspace only."""
        return await self._tokens.get((await self._finder.refresh(workspace)).git_folder)

    async def mark_open(self, workspace: Workspace, own: Path) -> None:
        """Mark a workspace as open while it is being created."""
        await self._tokens.get(own)
        await self._lifecycle.mark_open(workspace, own)

    async def start(self, workspace: Workspace, own: Path) -> None:
        """Start the hooks of a workspace that was created."""
        await self._lifecycle.start(workspace, own)

    async def stop_for_deletion(self, workspace: Workspace) -> bool:
        """Stop everything that Rookery runs in a workspace and revoke its token, before the workspace is deleted.

        Return whether anything was running.
        """
        located = await self._finder.find(workspace.project.id, workspace.name)
        was_running = await self._stop(located.workspace, located.git_folder)
        await self._tokens.revoke(located.git_folder)
        return was_running

    async def _on_folder_deleted(self, workspace: Workspace, own: Path) -> None:
        """Stop what runs for a workspace, and revoke its token, after others have deleted its folder."""
        logger.warning("%s was deleted by another program: stopping what ran for it", workspace.path)
        # The token first: a workspace created at the same path meanwhile has a token of its own.
        await self._tokens.revoke(own)
        await self._stop(workspace, own)
        self.on_deleted(workspace.path)

    async def _stop(self, workspace: Workspace, own: Path) -> bool:
        was_preparing = self._preparations.is_running(own)
        await self._preparations.stop(own)
        return await self._lifecycle.close(workspace, own) or was_preparing
