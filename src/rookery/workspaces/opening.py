"""Opening and closing workspaces, by their users, with the daemon, and before they are deleted."""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.system.errors import RookeryError
from rookery.workspaces.finding import Finding
from rookery.workspaces.openness import Openness
from rookery.workspaces.preparation import Preparations
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.tokens import WorkspaceTokens

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rookery.workspaces")


class Opening:
    def __init__(
        self,
        projects: Projects,
        finding: Finding,
        openness: Openness,
        tokens: WorkspaceTokens,
        preparations: Preparations,
    ) -> None:
        self._projects, self._finding, self._openness = projects, finding, openness
        self._tokens, self._preparations = tokens, preparations
        # Told where nothing is any more.
        self.forget: Callable[[Path], None] = lambda path: None
        openness.vanishing.gone = self._vanished

    async def bring_back(self) -> None:
        """Start what belongs to the workspaces that were open when the daemon stopped."""
        for project in await self._projects.all():
            with contextlib.suppress(RookeryError):  # told at the start, and shown as missing
                for found in await self._finding.of(project):
                    if found.workspace.state not in ("missing", "deleting"):
                        await self._openness.bring(found.workspace, found.own)

    async def open(self, workspace: Workspace) -> Workspace:
        """What belongs to it starts, and will again when the daemon does; one that is open stays as it is."""
        found = await self._finding.there(workspace)
        if found.workspace.state == "deleting":
            raise RookeryError(
                "invalid-input", f"{workspace.name} is being deleted", "bring it back: rookery ws restore"
            )
        await self._tokens.of(found.own)
        return await self._openness.open(found.workspace, found.own)

    async def close(self, workspace: Workspace) -> Workspace:
        """What runs for it ends, the calls of clients too. Its folder stays as it is."""
        found = await self._finding.find(workspace.project.id, workspace.name)
        await self._openness.close(found.workspace, found.own)
        return await self._finding.get(workspace.project.id, workspace.name)

    async def token(self, workspace: Workspace) -> str:
        """What opens this workspace and no other."""
        return await self._tokens.of((await self._finding.there(workspace)).own)

    async def mark(self, workspace: Workspace, own: Path) -> None:
        """A workspace that is being made is open from the beginning."""
        await self._tokens.of(own)
        await self._openness.mark(workspace, own)

    async def bring(self, workspace: Workspace, own: Path) -> None:
        """Start what belongs to one that was made."""
        await self._openness.bring(workspace, own)

    async def let_go(self, workspace: Workspace) -> bool:
        """Before it is deleted: nothing of ours runs there any more, and its token opens nothing."""
        found = await self._finding.find(workspace.project.id, workspace.name)
        ended = await self._end(found.workspace, found.own)
        await self._tokens.forget(found.own)
        return ended

    async def _vanished(self, workspace: Workspace, own: Path) -> None:
        """The same after others have deleted it."""
        logger.warning("%s was deleted by other hands: what ran for it is ended", workspace.path)
        # First: another one that comes to its place meanwhile has a token of its own.
        await self._tokens.forget(own)
        await self._end(workspace, own)
        self.forget(workspace.path)

    async def _end(self, workspace: Workspace, own: Path) -> bool:
        prepared = self._preparations.runs(own)
        await self._preparations.stop(own)
        return await self._openness.close(workspace, own) or prepared
