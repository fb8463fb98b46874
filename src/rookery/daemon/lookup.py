"""Finds the workspaces that requests are about, and remembers of each which project it belongs to."""

from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.workspaces.listing import Found
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces


class WorkspaceLookup:
    def __init__(self, projects: Projects, workspaces: Workspaces) -> None:
        self._projects, self._workspaces = projects, workspaces
        # The main checkout of each other workspace that is open, or was asked for.
        self._checkouts: dict[Path, Path] = {}
        self.counts = workspaces.tokens.counts

    async def directory(self, given: str) -> Path:
        """The folder of a workspace by its path, or as `<project>/<name>`."""
        project, _, name = given.partition("/")
        found = await self.at(given) if given.startswith("/") else await self.named(project, name)
        if found is None or found.workspace.state in ("missing", "deleting"):
            raise RookeryError(
                "workspace-not-found",
                f"there is no workspace {given}",
                "register its repository: rookery project add PATH",
            )
        return found.workspace.path

    async def named(self, project: str, name: str) -> Found | None:
        known = next((one for one in await self._projects.all() if one.id == project), None)
        found = await self._workspaces.finding.of(known) if known is not None else []
        return self._noted(next((one for one in found if one.workspace.name == name), None))

    async def at(self, path: str) -> Found | None:
        return self._noted(await self._workspaces.finding.find_at(path))

    async def with_own(self, own: Path) -> Found | None:
        return self._noted(await self._workspaces.finding.with_own(own))

    def project_of(self, directory: Path) -> Path:
        """The main checkout of a workspace's project; a main checkout is its own."""
        return self._checkouts.get(directory, directory)

    def of_project(self, checkout: Path) -> list[Path]:
        """The workspaces of a project that were asked for, its main checkout first."""
        return [checkout, *(one for one, main in self._checkouts.items() if main == checkout)]

    def forget(self, directory: Path) -> None:
        self._checkouts.pop(directory, None)

    def note(self, workspace: Workspace) -> None:
        """Remember which project it belongs to."""
        if not workspace.main:
            self._checkouts[workspace.path] = Path(workspace.project.path)

    def _noted(self, found: Found | None) -> Found | None:
        if found is not None:
            self.note(found.workspace)
        return found
