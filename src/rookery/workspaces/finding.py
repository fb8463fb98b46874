"""Finds workspaces: by project and name, by the path that somebody sent, or by their own git folder."""

import asyncio
import os
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import read_plain
from rookery.system.git import Git
from rookery.workspaces.listing import Found, common_folder, find_workspaces
from rookery.workspaces.openness import Openness
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.record import MAIN, Workspace
from rookery.workspaces.worktrees import named_git_folder, registered_folders

_LONGEST = 64 * 1024


class Finding:
    """Git is asked anew each time, but only about the project that it is about."""

    def __init__(self, git: Git, state: Path, projects: Projects, openness: Openness) -> None:
        self._git, self._state, self._projects, self._openness = git, state, projects, openness

    async def of(self, project: Project) -> list[Found]:
        """All of a project, with whether they are open."""
        found = await find_workspaces(self._git, self._state, project)
        return [self._told(one) for one in found]

    async def list(self, project: str | None = None) -> "list[Workspace]":
        """Those of one project, or of all; then one that cannot be told stands there as missing, with the reason."""
        if project is not None:
            return [one.workspace for one in await self.of(await self._projects.get(project))]
        lists = await asyncio.gather(*map(self._shown, await self._projects.all()))
        return [workspace for one in lists for workspace in one]

    async def get(self, project: str, name: str) -> Workspace:
        return (await self.find(project, name)).workspace

    async def find(self, project: str, name: str) -> Found:
        """A workspace with what git says of it and its own git folder."""
        for found in await self.of(await self._projects.get(project)):
            if found.workspace.name == name:
                return found
        raise _not_found(f"there is no workspace {name} in {project}")

    async def there(self, workspace: Workspace) -> Found:
        """The same workspace as it is now; one without a folder is an error."""
        found = await self.find(workspace.project.id, workspace.name)
        if found.workspace.state == "missing":
            raise RookeryError(
                "workspace-not-found",
                f"{workspace.name} is missing: {found.workspace.error}",
                "bring its folder back, or remove it: rookery ws rm",
            )
        return found

    async def roots(self) -> "list[Path]":
        """The main checkouts of all projects, and their worktrees, as far as they are there; git is not asked."""
        found: list[Path] = []
        for project in await self._projects.all():
            common = _repository_of(project)
            found += [Path(project.path), *(registered_folders(common) if common is not None else ())]
        return [one for one in found if one.is_dir()]

    async def at(self, path: Path) -> Workspace:
        """The workspace at exactly this path, however it is spelt."""
        found = await self.find_at(str(path))
        if found is None:
            raise _not_found(f"{path} is not a workspace")
        return found.workspace

    async def find_at(self, path: str) -> Found | None:
        """The same, with its git folder; literally first, then normalised, then with links followed."""
        for spelt in dict.fromkeys((path, os.path.normpath(path))):
            if found := await self._registered(Path(spelt)):
                return found
        try:
            # In a thread: where a path leads may be slow to tell.
            real = await asyncio.to_thread(os.path.realpath, path)
        except OSError:
            return None  # a link that may not be read
        return await self._registered(Path(real))

    async def with_own(self, own: Path) -> Found | None:
        """The workspace whose own git folder this is."""
        project = await self._project_with(_common_of(own))
        found = await self.of(project) if project is not None else []
        return next((one for one in found if one.own == own), None)

    async def _registered(self, path: Path) -> Found | None:
        """What a folder says of itself only tells where to ask; git's word counts."""
        own = named_git_folder(path)
        project = await self._project_with(_common_of(own)) if own is not None else None
        found = await self.of(project) if project is not None else []
        return next((one for one in found if path in (one.workspace.path, one.workspace.path.resolve())), None)

    async def _project_with(self, common: Path | None) -> Project | None:
        return next((one for one in await self._projects.all() if common and _repository_of(one) == common), None)

    async def _shown(self, project: Project) -> "list[Workspace]":
        try:
            return [one.workspace for one in await self.of(project)]
        except RookeryError as error:
            return [Workspace(project, MAIN, Path(project.path), None, True, "missing", error.message)]

    def _told(self, found: Found) -> Found:
        if found.own not in self._openness:
            return found
        return msgspec.structs.replace(found, workspace=msgspec.structs.replace(found.workspace, open=True))


def _common_of(own: Path) -> Path | None:
    """The git folder that a worktree's own belongs to; None where there is none."""
    try:
        shared = os.fsdecode(read_plain(own / "commondir", _LONGEST).rstrip(b"\r\n"))
        return (own / shared).resolve()
    except FileNotFoundError:
        return own.resolve()
    except (OSError, ValueError):
        return None


def _repository_of(project: Project) -> Path | None:
    try:
        return common_folder(Path(project.path))
    except RookeryError:
        return None


def _not_found(what: str) -> RookeryError:
    return RookeryError("workspace-not-found", what, "see what there is: rookery ws list")
