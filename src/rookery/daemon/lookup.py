"""Finds the workspaces that requests refer to, and remembers which project each belongs to."""

from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces


class WorkspaceLookup:
    """Finds workspaces by name, path or git folder, and remembers the main checkout of each."""

    def __init__(self, projects: Projects, workspaces: Workspaces) -> None:
        self._projects = projects
        self._workspaces = workspaces
        # The main checkout of each other workspace that is open or was looked up.
        self._checkouts: dict[Path, Path] = {}
        self.has_token = workspaces.tokens.has_token

    async def find_folder(self, reference: str) -> Path:
        """Return the folder of a workspace, given by its path or as `<project>/<name>`."""
        project, _, name = reference.partition("/")
        by_path = reference.startswith("/")
        located = await self.find_at(reference) if by_path else await self.find(project, name)
        if located is None and by_path:
            raise await self.explain_missing(reference)
        if located is None or located.workspace.state in ("missing", "deleting"):
            message = f"there is no workspace {reference}"
            remedy = "list the workspaces: rookery ws list"
            raise RookeryError("workspace-not-found", message, remedy)
        return located.workspace.path

    async def find(self, project: str, name: str) -> LocatedWorkspace | None:
        """Return a workspace by project id and name; None if there is none."""
        if all(candidate.id != project for candidate in await self._projects.all()):
            return None
        try:
            return self._remember_located(await self._workspaces.finder.find(project, name))
        except RookeryError as error:
            if error.code != "workspace-not-found":
                raise
            return None

    async def find_at(self, path: str) -> LocatedWorkspace | None:
        """Return the workspace at a path; None if there is none."""
        return self._remember_located(await self._workspaces.finder.find_at(path))

    async def explain_missing(self, path: str) -> RookeryError:
        """Return the error for a path where there is no workspace."""
        return await self._workspaces.finder.explain_missing(path)

    async def find_by_git_folder(self, own: Path) -> LocatedWorkspace | None:
        """Return the workspace with this git folder of its own; None if there is none."""
        return self._remember_located(await self._workspaces.finder.find_by_git_folder(own))

    def project_of(self, directory: Path) -> Path:
        """Return the main checkout of a workspace's project; a main checkout is its own."""
        return self._checkouts.get(directory, directory)

    def list_of_project(self, checkout: Path) -> list[Path]:
        """Return the workspaces of a project that were looked up, its main checkout first."""
        return [checkout, *(path for path, main in self._checkouts.items() if main == checkout)]

    def forget(self, directory: Path) -> None:
        self._checkouts.pop(directory, None)

    def remember(self, workspace: Workspace) -> None:
        """Remember which project a workspace belongs to."""
        if not workspace.main:
            self._checkouts[workspace.path] = Path(workspace.project.path)

    def _remember_located(self, located: LocatedWorkspace | None) -> LocatedWorkspace | None:
        if located is not None:
            self.remember(located.workspace)
        return located
