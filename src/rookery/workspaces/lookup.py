"""List the workspaces of a project, and find one by name, by path or by its own git folder.

The list is derived from git and from the git folder of each worktree; no other list is stored.
"""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain
from rookery.system.git import Git
from rookery.workspaces.create import journal
from rookery.workspaces.lifecycle.state import Lifecycle
from rookery.workspaces.metadata import StoredMetadata, read_metadata, read_preparation
from rookery.workspaces.model import MAIN_WORKSPACE, Workspace, WorkspaceState, choose_unique_names, encode_folder_name
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.worktrees import (
    Worktree,
    find_mismatch,
    list_registered_worktrees,
    list_worktrees,
    read_git_folder,
    read_worktree,
)

GIT_INITIALIZING_LOCK = "initializing"

_MAX_FILE_BYTES = 64 * 1024


class LocatedWorkspace(msgspec.Struct, frozen=True):
    """A workspace, the worktree that git reports for it, and its own git folder."""

    workspace: Workspace
    worktree: Worktree
    git_folder: Path


async def list_workspaces(git: Git, state: Path, project: Project) -> list[LocatedWorkspace]:
    """Return all workspaces of a project, the main checkout first.

    For a project without a repository, return the main checkout as missing.
    """
    checkout = Path(project.path)
    common = find_common_git_folder(checkout)
    if common is None:
        missing_workspace = Workspace(
            project, MAIN_WORKSPACE, checkout, None, True, "missing", f"{checkout} is no longer a git repository"
        )
        return [LocatedWorkspace(missing_workspace, Worktree(checkout, main=True), checkout / ".git")]
    worktrees = await list_worktrees(git, checkout)
    owns = {**list_registered_worktrees(common), worktrees[0].path: common}
    # A worktree that was registered after the list was made appears the next time.
    worktrees = [worktree for worktree in worktrees if worktree.path in owns]
    unfinished = {Path(creation.path): creation for creation in journal.list_unfinished(state, project)}
    deleting = journal.list_deleting(state, project)
    metadata = {worktree.path: read_metadata(owns[worktree.path]) for worktree in worktrees}
    names = _choose_names(worktrees, metadata, {path: creation.name for path, creation in unfinished.items()})
    workspaces: list[LocatedWorkspace] = []
    for worktree, name in zip(worktrees, names, strict=True):
        own = owns[worktree.path]
        state_and_error = _find_state(worktree, own, making=worktree.path in unfinished)
        if encode_folder_name(name) in deleting:
            state_and_error = "deleting", None, None
        path = checkout if worktree.main else worktree.path
        start = metadata[worktree.path].start
        workspace = Workspace(project, name, path, worktree.branch, worktree.main, *state_and_error, start=start)
        workspaces.append(LocatedWorkspace(workspace, worktree, own))
    return workspaces


def read_workspace(state: Path, project: Project, own: Path) -> LocatedWorkspace | None:
    """Read a workspace that Rookery created from its own git folder, without git and without listing the others.

    The commit of its branch is not read. Return None if that folder alone does not determine the state.
    """
    metadata = read_metadata(own)
    name = metadata.name
    worktree = read_worktree(own) if name is not None else None
    if name is None or worktree is None or journal.is_in_progress(state, project, name):
        return None
    state_and_error = _find_state(worktree, own, making=False)
    workspace = Workspace(project, name, worktree.path, worktree.branch, False, *state_and_error, start=metadata.start)
    return LocatedWorkspace(workspace, worktree, own)


def find_common_git_folder(checkout: Path) -> Path | None:
    """Return the git folder that all worktrees share; None if there is no repository."""
    git_folder = read_git_folder(checkout)
    if git_folder is None or not (git_folder / "HEAD").exists():
        return None
    if (git_folder / "commondir").exists():
        # The folder is now a worktree of another repository, not the project that was added.
        raise RookeryError("project-not-found", f"{checkout} is no longer a main checkout", "add the project again")
    return git_folder.resolve()


def _choose_names(worktrees: list[Worktree], kept: dict[Path, StoredMetadata], making: dict[Path, str]) -> list[str]:
    """Return the names of the worktrees.

    Worktrees that Rookery created keep their name; the others are named after their branch or folder.
    """
    stored_names = [making.get(worktree.path) or kept[worktree.path].name for worktree in worktrees]
    candidates: list[list[str]] = []
    for worktree, name in zip(worktrees, stored_names, strict=True):
        default_names = [*([worktree.branch] if worktree.branch else []), worktree.path.name or "worktree"]
        candidates.append([MAIN_WORKSPACE] if worktree.main else [name, *default_names] if name else default_names)
    order = sorted(range(len(worktrees)), key=lambda index: not stored_names[index])
    names = dict(zip(order, choose_unique_names([candidates[index] for index in order], set()), strict=True))
    return [names[index] for index in range(len(worktrees))]


def _find_state(worktree: Worktree, own: Path, *, making: bool) -> tuple[WorkspaceState, str | None, str | None]:
    """Return the state of a worktree, with an error message and its code."""
    if worktree.main:
        return "ready", None, None
    if making:
        return "preparing", None, None
    if mismatch := find_mismatch(worktree.path, own):
        return "missing", mismatch, None
    if worktree.locked == GIT_INITIALIZING_LOCK:
        remedy = f"if no git process is creating it: git worktree remove -f -f {worktree.path}"
        return "failed", f"git has not finished creating the worktree; {remedy}", None
    preparation = read_preparation(own)
    if preparation is None:
        return "ready", None, None
    return ("failed", preparation.error, preparation.code) if preparation.error else ("preparing", None, None)


ListedCallback = Callable[[Sequence[LocatedWorkspace]], None]


class WorkspaceFinder:
    """Finds workspaces. Git lists the worktrees of the project concerned each time.

    A workspace that Rookery created and that was listed before is read from its own git folder, so that the cost does
    not depend on the number of workspaces.
    """

    def __init__(self, git: Git, state: Path, projects: Projects, lifecycle: Lifecycle) -> None:
        self._git = git
        self._state = state
        self._projects = projects
        self._lifecycle = lifecycle
        # The git folders of workspaces by project and name, as of the last list.
        self._listed: dict[str, dict[str, Path]] = {}
        # Called with each list.
        self.on_listed: ListedCallback = lambda workspaces: None

    async def list_located(self, project: Project) -> list[LocatedWorkspace]:
        """Return all workspaces of a project, with their open state."""
        workspaces = await list_workspaces(self._git, self._state, project)
        self._listed[project.id] = {located.workspace.name: located.git_folder for located in workspaces}
        self.on_listed(workspaces)
        return [self._with_open_state(located) for located in workspaces]

    def _read_listed(self, project: Project, own: Path | None) -> LocatedWorkspace | None:
        """Read a workspace from its git folder; None unless it still is what was listed."""
        listed_folders = self._listed.get(project.id, {})
        if own is None or own.parent.name != "worktrees" or _find_repository(project) != own.parent.parent:
            return None
        located = read_workspace(self._state, project, own)
        if located is None or listed_folders.get(located.workspace.name) != own:
            return None
        return self._with_open_state(located)

    async def list(self, project: str | None = None) -> "list[Workspace]":
        """Return the workspaces of one project, or of all.

        Without `project`, a project that cannot be listed is represented by its main checkout as missing, with the
        reason.
        """
        if project is not None:
            return [located.workspace for located in await self.list_located(await self._projects.get(project))]
        lists = await asyncio.gather(*map(self._list_or_missing, await self._projects.all()))
        return [workspace for workspaces in lists for workspace in workspaces]

    async def get(self, project: str, name: str) -> Workspace:
        return (await self.find(project, name)).workspace

    async def find(self, project: str, name: str) -> LocatedWorkspace:
        """Return a workspace with the worktree that git reports and its own git folder."""
        project_entry = await self._projects.get(project)
        cached = self._read_listed(project_entry, self._listed.get(project_entry.id, {}).get(name))
        if cached is not None and cached.workspace.name == name:
            return cached
        for located in await self.list_located(project_entry):
            if located.workspace.name == name:
                return located
        raise _not_found(f"there is no workspace {name} in {project}")

    async def refresh(self, workspace: Workspace) -> LocatedWorkspace:
        """Return the current state of a workspace. Raise if its folder is missing."""
        located = await self.find(workspace.project.id, workspace.name)
        if located.workspace.state == "missing":
            raise RookeryError(
                "workspace-not-found",
                f"{workspace.name} is missing: {located.workspace.error}",
                "restore its folder, or remove the workspace: rookery ws rm",
            )
        return located

    async def roots(self) -> "list[Path]":
        """Return the existing main checkouts of all projects and their existing worktrees, without running git."""
        paths: list[Path] = []
        for project in await self._projects.all():
            common = _find_repository(project)
            paths += [Path(project.path), *(list_registered_worktrees(common) if common is not None else ())]
        return [path for path in paths if path.is_dir()]

    async def at(self, path: Path) -> Workspace:
        """Return the workspace at exactly this path, however the path is spelt."""
        located = await self.find_at(str(path))
        if located is None:
            raise _not_found(f"{path} is not a workspace")
        return located.workspace

    async def find_at(self, path: str) -> LocatedWorkspace | None:
        """Return the workspace at this path, with its git folder; None if there is none.

        The path is tried literally first, then normalised, then with links followed.
        """
        for spelling in dict.fromkeys((path, os.path.normpath(path))):
            if located := await self._find_registered(Path(spelling)):
                return located
        try:
            # In a thread, because resolving a path may be slow.
            real = await asyncio.to_thread(os.path.realpath, path)
        except OSError:
            return None  # a link that may not be read
        return await self._find_registered(Path(real))

    async def find_around(self, folder: str) -> LocatedWorkspace | None:
        """Return the innermost workspace that contains a folder; links in the path are followed first."""
        for parent in await asyncio.to_thread(_list_parents, folder):
            if (located := await self._find_registered(parent)) is not None:
                return located
        return None

    async def explain_missing(self, path: str) -> RookeryError:
        """Return the error for a path that is not a workspace, depending on the repository that contains it.

        Only files are read: git does not run in a repository that is not registered.
        """
        for parent in await asyncio.to_thread(_list_parents, path):
            common, bare = await asyncio.to_thread(_read_repository, parent)
            if common is None:
                continue
            if await self._find_project(common) is not None:
                return _not_found(f"{path} is not a workspace")
            if bare:
                message = f"{parent} is a bare repository, which cannot be a project"
                return RookeryError("project-not-found", message, "name a checkout that is not bare")
            remedy = f"register it: rookery project add {shlex.quote(str(parent))}"
            return RookeryError("project-not-found", f"the repository {parent} is not registered", remedy)
        remedy = "name a folder of a workspace (rookery ws list), or register a repository: rookery project add PATH"
        return RookeryError("workspace-not-found", f"{path} is in no git repository", remedy)

    async def find_by_git_folder(self, own: Path) -> LocatedWorkspace | None:
        """Return the workspace whose own git folder this is."""
        project = await self._find_project(_read_common_folder(own))
        if project is None:
            return None
        if (cached := self._read_listed(project, own)) is not None:
            return cached
        return next((located for located in await self.list_located(project) if located.git_folder == own), None)

    async def _find_registered(self, path: Path) -> LocatedWorkspace | None:
        """Return the workspace at a path.

        The `.git` file of a folder is not trusted: it only selects the project whose worktrees are listed.
        """
        own = read_git_folder(path)
        project = await self._find_project(_read_common_folder(own)) if own is not None else None
        if own is None or project is None:
            return None
        cached = self._read_listed(project, own.resolve())
        candidates = [cached] if cached is not None else await self.list_located(project)
        return next(
            (located for located in candidates if path in (located.workspace.path, located.workspace.path.resolve())),
            None,
        )

    async def _find_project(self, common: Path | None) -> Project | None:
        return next(
            (project for project in await self._projects.all() if common and _find_repository(project) == common), None
        )

    async def _list_or_missing(self, project: Project) -> "list[Workspace]":
        """Return the workspaces of a project; its main checkout as missing if they cannot be listed."""
        try:
            return [located.workspace for located in await self.list_located(project)]
        except RookeryError as error:
            return [Workspace(project, MAIN_WORKSPACE, Path(project.path), None, True, "missing", error.message)]

    def _with_open_state(self, located: LocatedWorkspace) -> LocatedWorkspace:
        """Return `located` with its open state."""
        if located.git_folder not in self._lifecycle:
            return located
        return msgspec.structs.replace(located, workspace=msgspec.structs.replace(located.workspace, open=True))


def _list_parents(path: str) -> list[Path]:
    """Return the real path and every folder above it; nothing for a path that cannot be followed."""
    try:
        real = Path(os.path.realpath(path))
    except (OSError, ValueError):
        return []
    return [real, *real.parents]


def _read_repository(folder: Path) -> tuple[Path | None, bool]:
    """Return the common git folder of the repository at `folder`, and whether it is bare.

    Return None if `folder` is neither the top of a worktree nor a bare repository.
    """
    try:
        own = read_git_folder(folder)
        if own is not None and (own / "HEAD").is_file():
            return _read_common_folder(own), False
        bare = (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()
        return (folder, True) if bare and folder.name != ".git" else (None, False)
    except OSError:
        return None, False


def _read_common_folder(own: Path) -> Path | None:
    """Return the common git folder of the repository that a git folder belongs to; None if it cannot be read."""
    try:
        shared = os.fsdecode(read_plain(own / "commondir", _MAX_FILE_BYTES).rstrip(b"\r\n"))
        return (own / shared).resolve()
    except FileNotFoundError:
        return own.resolve()
    except (OSError, ValueError):
        return None


def _find_repository(project: Project) -> Path | None:
    try:
        return find_common_git_folder(Path(project.path))
    except RookeryError:
        return None


def _not_found(what: str) -> RookeryError:
    return RookeryError("workspace-not-found", what, "list the workspaces: rookery ws list")
