"""The operations on projects: list, add and remove."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from rookery.operations.operation import Caller, McpTool, Parameters, RestRoute, operation
from rookery.operations.target import require_absolute, select_project
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import ApprovedContent, Project


class ListProjects(Parameters):
    workspaces: Annotated[bool, Meta(description="If true, include the names of the workspaces of each project")] = (
        False
    )


class AddProject(Parameters):
    path: Annotated[str, Meta(description="Absolute path of the repository, or of a folder in it")]


class RemoveProject(Parameters):
    project: Annotated[str, Meta(description="Id or name of the project")]


class ListedProject(Project, frozen=True):
    """A project. `workspaces` are the names of its workspaces, on request."""

    workspaces: Sequence[str] | msgspec.UnsetType = msgspec.UNSET


class ProjectWithWorkspaces(Project, frozen=True):
    """A project with the names of its workspaces."""

    workspaces: Sequence[str]


class AddedProject(Project, frozen=True):
    """A registered project. `added` says whether it is new, `approved` what was approved with it.

    `note` says why something in the main checkout was not approved and waits for the user.
    """

    added: bool
    approved: Sequence[ApprovedContent]
    note: str


class RemovedProject(Project, frozen=True):
    """A project that is no longer registered."""

    removed: bool = True


class ProjectOperations:
    """The operations on projects."""

    group = "project"

    def __init__(self, workspaces: WorkspaceOperations) -> None:
        self._workspaces = workspaces

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", "/api/projects"),
        mcp=McpTool(
            "workspace",
            "project_list",
            "List the projects (git repositories) that can be worked on from here, each with the names of its "
            "workspaces.",
            fixed={"workspaces": True},
            result=Sequence[ProjectWithWorkspaces],
            forbid_unknown=True,
        ),
        python="projects.list",
    )
    async def list(self, caller: Caller, arguments: ListProjects) -> Sequence[ListedProject]:
        """All registered projects; with `?workspaces=true` each with the names of its workspaces."""
        own = await select_project(self._workspaces, caller, None)
        if arguments.workspaces:
            listed = await self._workspaces.overview.projects(own.id if own is not None else None)
            return msgspec.convert(listed, list[ListedProject])
        projects = [own] if own is not None else await self._workspaces.projects.all()
        return [ListedProject(project.id, project.name, project.path) for project in projects]

    @operation(
        rest=RestRoute("POST", "/api/projects", (201, 200), status=lambda _, project: 201 if project.added else 200),
        mcp=McpTool(
            "workspace",
            "project_add",
            "Register the git repository that contains the folder `path` as a project. What the repository defines, "
            "such as MCP servers and just tasks, runs only after the user has approved it; `note` says what waits for "
            "that. Only for the owner.",
            forbid_unknown=True,
            owner_only=True,
        ),
        python="projects.add",
    )
    async def add(self, caller: Caller, arguments: AddProject) -> AddedProject:
        """Register the repository that contains `path`; returns the project and what was approved with it.

        The status is 201 if the project is new and 200 if not.
        """
        # What a model adds may be what another model has written.
        by_user = False if caller.is_model else None
        registration = await self._workspaces.projects.add(require_absolute(arguments.path), by_user=by_user)
        project = registration.project
        return AddedProject(
            project.id,
            project.name,
            project.path,
            added=registration.added,
            approved=registration.approved,
            note=registration.note,
        )

    @operation(
        rest=RestRoute("DELETE", "/api/projects/{project}"),
        mcp=McpTool(
            "admin",
            "project_remove",
            "Remove a project, by id or name, and its approvals. The repository, its worktrees and branches stay as "
            "they are.",
            destructive=True,
            forbid_unknown=True,
        ),
        python="projects.remove",
    )
    async def remove(self, caller: Caller, arguments: RemoveProject) -> RemovedProject:
        """Remove a project, by id or name, and its approvals; repository, worktrees and branches stay as they are."""
        project = await self._workspaces.projects.remove(arguments.project)
        return RemovedProject(project.id, project.name, project.path)
