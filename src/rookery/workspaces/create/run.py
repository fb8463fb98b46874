"""Plan a new workspace, check the limits of its family, and create it.

All errors that can be foreseen are raised before anything on disk or in git changes. A creation continues if its caller
is cancelled. A family is a workspace and all workspaces that were created with its token, or with theirs; the number of
its workspaces and of its agents is limited.
"""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.causes import find_write_problem
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.tasks import TaskSet
from rookery.workspaces.create.journal import CreationPlan
from rookery.workspaces.create.worktree import create_worktree
from rookery.workspaces.lifecycle.service import LifecycleService
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import LocatedWorkspace, list_workspaces
from rookery.workspaces.metadata import StartPoint, read_metadata
from rookery.workspaces.model import Workspace, check_workspace_name, encode_folder_name, resolve_worktree_path
from rookery.workspaces.prepare import ApprovalCheck, PreparationService, find_git_config_request
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.worktrees import find_base, read_creation_time

_BRANCH_PREFIX = "refs/heads/"


async def plan_creation(
    git: Git,
    project: Project,
    name: str,
    *,
    requested_path: Path,
    base: str | None,
    branch: str | None,
    workspaces: Sequence[LocatedWorkspace],
    roots: Sequence[Path],
) -> CreationPlan:
    """Check a creation and return its plan, or raise.

    `workspaces` are the workspaces of the project, `roots` the folders of other projects.
    """
    checkout = Path(project.path)
    check_workspace_name(name)
    target_branch = branch if branch is not None else name
    if branch is not None:
        await _check_branch(git, checkout, branch)
    path = requested_path.parent.resolve() / requested_path.name
    _refuse_same_name(name, workspaces)
    _refuse_checked_out(target_branch, workspaces, "choose another name" if branch is None else "choose another branch")
    branches = await _list_branches(git, checkout)
    if target_branch not in branches:
        if branch is not None:
            raise _invalid_input(f"there is no branch {branch}", "leave out --branch to create a new branch")
        _refuse_branch_clash(target_branch, branches)
    elif branch is None:
        raise _branch_exists(target_branch, branches[target_branch])
    _refuse_path(path, [*(located.workspace.path for located in workspaces), *roots])
    base_ref = await find_base(git, checkout, base)
    commit = branches.get(target_branch)
    start_point = (
        StartPoint(base_ref.name, base_ref.commit, base_ref.reason)
        if commit is None
        else StartPoint(target_branch, commit, "branch")
    )
    return CreationPlan(
        name, target_branch, str(path), base_ref.name, start_point.commit, commit is None, start=start_point
    )


async def _check_branch(git: Git, checkout: Path, branch: str) -> None:
    result = await git.run(checkout, "check-ref-format", _BRANCH_PREFIX + branch)
    if result.returncode != 0 or branch.startswith("-"):
        raise _invalid_input(f"{branch!r} is not a valid branch name", "name a branch that exists")


async def _list_branches(git: Git, checkout: Path) -> dict[str, str]:
    """Return every local branch with its commit."""
    output = await git.output(checkout, "for-each-ref", "--format=%(objectname) %(refname)", _BRANCH_PREFIX)
    pairs = [line.partition(" ") for line in os.fsdecode(output).splitlines()]
    return {name.removeprefix(_BRANCH_PREFIX): commit for commit, _, name in pairs}


def _refuse_same_name(name: str, workspaces: Sequence[LocatedWorkspace]) -> None:
    for located in workspaces:
        # Compared without case, because some file systems ignore it: one name is one folder.
        if encode_folder_name(located.workspace.name).lower() == encode_folder_name(name).lower():
            raise RookeryError(
                "workspace-exists",
                f"the workspace {located.workspace.name} already exists at {located.workspace.path}",
                "choose another name",
            )


def _refuse_checked_out(branch: str, workspaces: Sequence[LocatedWorkspace], remedy: str) -> None:
    for located in workspaces:
        if located.worktree.branch == branch:
            raise _invalid_input(f"the branch {branch} is checked out at {located.workspace.path}", remedy)


def _refuse_branch_clash(branch: str, branches: dict[str, str]) -> None:
    """Raise if a branch would be the folder of another, as git keeps branches as files."""
    for other in branches:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise _invalid_input(f"the branch {branch} cannot be created because the branch {other} exists")


def _refuse_path(path: Path, roots: Sequence[Path]) -> None:
    if os.path.lexists(path):
        raise _invalid_input(f"{path} already exists", "move it away, or choose another name")
    for root in roots:
        if path == root:
            raise _invalid_input(
                f"{path} is registered for a worktree that is missing", "restore it, or run: git worktree prune"
            )
        # If one worktree were inside another, the agent of the outer one could access the files of the inner one.
        if path.is_relative_to(root) or root.is_relative_to(path):
            raise _invalid_input(f"{path} would be inside {root}, or contain it", "set worktrees.path to another place")
    parent = next(folder for folder in path.parents if folder.exists())
    if (obstacle := find_write_problem((parent,))) is not None:
        raise RookeryError(obstacle.code, f"{path} cannot be created: {obstacle.message}", obstacle.remedy)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise _invalid_input(
            f"{path} cannot be created: {parent} is not writable", "set worktrees.path to another place"
        )


def _branch_exists(branch: str, commit: str) -> RookeryError:
    return RookeryError(
        "branch-exists",
        f"the branch {branch} already exists at {commit[:12]}",
        f"to use that branch: --branch {shlex.quote(branch)} (or `branch`); else choose another name",
    )


def _invalid_input(why: str, remedy: str = "choose another name") -> RookeryError:
    return RookeryError("invalid-input", why, remedy)


class FamilyLimits(msgspec.Struct, frozen=True):
    """The maximum number of workspaces created in a family, and of those in which an agent runs."""

    workspaces: int = 8
    agents: int = 4


def read_family(own: Path) -> str:
    """Return the family of a workspace, given its own git folder."""
    return read_metadata(own).family or f"{own.name}@{read_creation_time(own)}"


def check_family_limits(
    family: str,
    workspaces: Sequence[LocatedWorkspace],
    limits: FamilyLimits,
    *,
    agent: bool,
    has_agent: Callable[[Workspace], bool],
) -> None:
    """Raise if a family may not have another workspace or, with `agent`, another agent."""
    created = [located.workspace for located in workspaces if read_metadata(located.git_folder).family == family]
    if len(created) >= limits.workspaces:
        raise RookeryError(
            "too-many-workspaces",
            f"this workspace has created {len(created)} workspaces, which is the limit",
            "delete some of them, or ask the user to create the workspace or to raise limits.workspaces_each",
            [workspace.name for workspace in created],
        )
    # A workspace that is being prepared gets its agent afterwards.
    with_agent = [workspace for workspace in created if workspace.state == "preparing" or has_agent(workspace)]
    if agent and len(with_agent) >= limits.agents:
        raise RookeryError(
            "too-many-agents",
            f"agents run in {len(with_agent)} workspaces that this one has created, which is the limit",
            "stop or delete some of them, or ask the user to create the workspace or to raise limits.agents_each",
            [workspace.name for workspace in with_agent],
        )


class CreationService:
    """Creates workspaces in tasks of their own, one at a time per repository."""

    def __init__(
        self,
        state: Path,
        git: Git,
        events: Bus,
        projects: Projects,
        locks: RepositoryLocks,
        preparations: PreparationService,
        *,
        is_approved: ApprovalCheck,
        lifecycle: LifecycleService,
        path_template: str,
        family_limits: FamilyLimits,
    ) -> None:
        self._family_limits = family_limits
        # Returns whether an agent runs in a workspace or is about to start.
        self.has_agent: Callable[[Workspace], bool] = lambda workspace: False
        self._state = state
        self._git = git
        self._events = events
        self._projects = projects
        self._locks = locks
        self._preparations = preparations
        self._approved = is_approved
        self._lifecycle = lifecycle
        self._path_template = path_template
        self._tasks = TaskSet("creations")

    async def create(
        self,
        project: Project,
        name: str,
        *,
        base: str | None,
        branch: str | None,
        creator: Path | None = None,
        agent: bool = False,
    ) -> Workspace:
        """Create a workspace. The creation continues if the caller is cancelled.

        `creator` is the own git folder of the workspace whose token was used for the request, `agent` whether an agent
        will run in the new workspace.
        """
        work = self._create_or_error(project, name, base, branch, creator, agent)
        outcome = await asyncio.shield(self._tasks.start(work, name))
        if isinstance(outcome, RookeryError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Stop all creations. They are in the journal, and the next start resumes them."""
        await self._tasks.close()

    async def _create_or_error(
        self, project: Project, name: str, base: str | None, branch: str | None, creator: Path | None, agent: bool
    ) -> Workspace | RookeryError:
        """Create a workspace and return it, or the error.

        An expected error is returned, so that the task does not count as crashed.
        """
        try:
            return await self._create(project, name, base, branch, creator, agent)
        except RookeryError as error:
            return error

    async def _create(
        self, project: Project, name: str, base: str | None, branch: str | None, creator: Path | None, agent: bool
    ) -> Workspace:
        async with self._locks.write_lock(project.path):
            workspaces = await list_workspaces(self._git, self._state, project)
            family = read_family(creator) if creator is not None else None
            if family is not None:
                check_family_limits(family, workspaces, self._family_limits, agent=agent, has_agent=self.has_agent)
            creation = await plan_creation(
                self._git,
                project,
                name,
                requested_path=resolve_worktree_path(self._path_template, self._state, project, name),
                base=base,
                branch=branch,
                workspaces=workspaces,
                roots=[Path(other.path) for other in await self._projects.all() if other.id != project.id],
            )
            creation = msgspec.structs.replace(
                creation, trusted=await self._is_git_config_approved(project), family=family
            )
            own = await create_worktree(self._git, self._state, project, creation)
            fields = name, Path(creation.path), creation.branch, False, "preparing"
            workspace = Workspace(project, *fields, open=True, start=creation.start)
            self._events.publish("workspace.created", **workspace.as_dict())
            await self._lifecycle.mark_open(workspace, own)
            self._preparations.start(workspace, own)
        await self._lifecycle.start(workspace, own)
        return workspace

    async def _is_git_config_approved(self, project: Project) -> bool:
        """Return whether programs that the repository's config names, such as filters, may run for it."""
        request = await find_git_config_request(self._git, project)
        return request is not None and await self._approved(request)
