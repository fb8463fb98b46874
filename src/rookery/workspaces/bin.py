"""The trash as faces show and use it."""

from pathlib import Path
from typing import Any

from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces
from rookery.workspaces.trash import Trashed


class Bin:
    """A project may be named by those who have forgotten it: what it left in the trash is still there."""

    def __init__(self, workspaces: Workspaces, projects: Projects) -> None:
        self._workspaces, self._projects = workspaces, projects

    async def all(self, project: str | None = None) -> list[dict[str, Any]]:
        """The oldest first, with what each takes on disk."""
        wanted = await self._project(project)
        trash = self._workspaces.removals.trash
        sizes = await trash.sizes()
        return [_shown(one, sizes.get(one.id)) for one in trash.all() if wanted in (None, one.project.id)]

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Workspace:
        """Bring back what has this id, or the newest of that name."""
        return await self._workspaces.restore(wanted, await self._project(project), to)

    async def purge(self, wanted: str | None = None, project: str | None = None) -> list[dict[str, Any]]:
        """Remove one entry for good, or all of them (of a project)."""
        gone = await self._workspaces.removals.purge(wanted, await self._project(project))
        if wanted is not None and not gone:
            raise RookeryError("invalid-input", f"{wanted} is still on its way", "try again in a moment")
        return [_shown(one, one.size) for one in gone]

    async def _project(self, given: str | None) -> str | None:
        if given is None:
            return None
        left = {one.project.id for one in self._workspaces.removals.trash.all()}
        return given if given in left else (await self._projects.get(given)).id


def _shown(one: Trashed, size: int | None) -> dict[str, Any]:
    return {
        "id": one.id,
        "project": one.project.id,
        "name": one.name,
        "path": one.path,
        "branch": one.branch,
        "keptBranch": one.kept_branch,
        "at": one.at,
        "size": size,
    }
