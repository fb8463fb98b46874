"""`workspace`: an agent's own workspace, its siblings, and its project."""

from pathlib import Path

from rookery.system.errors import RookeryError
from rookery.toolsets.progress import with_progress
from rookery.toolsets.selecting import nothing_selected
from rookery.toolsets.toolset import Nothing, Tool, Toolset
from rookery.toolsets.workspace_shapes import (
    Create,
    Delete,
    Listed,
    ListedProject,
    ListWorkspaces,
    NoInput,
    SetMetadata,
    WorkspaceStatus,
)
from rookery.wire.provider import Call
from rookery.workspaces.agent import AgentSession
from rookery.workspaces.overview import Shown
from rookery.workspaces.projects import Project
from rookery.workspaces.record import Workspace
from rookery.workspaces.tools import Started, WorkspaceTools


class _Room:
    """Where a view acts: in one workspace, or in none."""

    def __init__(self, faces: WorkspaceTools, directory: Path | None) -> None:
        self.faces = faces
        self._directory = directory

    async def workspace(self) -> Workspace:
        if self._directory is None:
            raise nothing_selected()
        return await self.faces.at(self._directory)

    async def project(self, given: str | None) -> Project | None:
        """The one that is meant. A workspace's view is of its own project, so that agents are kept apart."""
        if self._directory is None:
            return await self.faces.projects.get(given) if given is not None else None
        own = (await self.workspace()).project
        if given not in (None, own.id, own.name):
            raise RookeryError("invalid-input", f"{given} is not the project of this workspace", f"use {own.id}")
        return own


def workspace_toolset(faces: WorkspaceTools, directory: Path | None) -> Toolset:
    """For the workspace at `directory`, which is looked up for each call; or for a client that has selected none."""
    room = _Room(faces, directory)

    async def get_status(call: Call, given: NoInput) -> Shown:
        return await faces.status(await room.workspace())

    async def get_metadata(call: Call, given: NoInput) -> dict[str, str]:
        return await faces.workspaces.metadata(await room.workspace())

    async def set_metadata(call: Call, given: SetMetadata) -> None:
        await faces.workspaces.set_metadata(await room.workspace(), given.key, given.value)

    async def get_port(call: Call, given: NoInput) -> int | None:
        return await faces.port(await room.workspace())

    async def delete(call: Call, given: Delete) -> Started:
        one = await room.workspace()
        work = faces.delete(one, force=given.force, keep_branch=given.keepBranch, wait=given.wait)
        return await with_progress(call, faces.events, one.project.id, one.name, work)

    async def create(call: Call, given: Create) -> Shown:
        project = await room.project(given.project) or await faces.project(None)
        work = faces.create(
            project, given.name, base=given.base, branch=given.branch, prompt=given.prompt, wait=given.wait
        )
        made = await with_progress(call, faces.events, project.id, given.name, work)
        return await faces.overview.brief(made)

    async def list_workspaces(call: Call, given: ListWorkspaces) -> list[Shown]:
        project = await room.project(given.project)
        return await faces.overview.all(project.id if project is not None else None, status=given.status)

    async def list_projects(call: Call, given: Nothing) -> list[Shown]:
        own = await room.project(None)
        return await faces.overview.projects(own.id if own is not None else None)

    async def get_session(call: Call, given: NoInput) -> AgentSession | None:
        return await faces.session(await room.workspace())

    async def restart_agent(call: Call, given: NoInput) -> int:
        return await faces.restart_agent(await room.workspace())

    return Toolset(
        "workspace",
        [
            Tool(
                "workspace_get_status",
                "Get the current workspace status including dirty flag and agent status. Use it before you commit, "
                "merge or delete. Answers isDirty (changes that are not committed), unmergedCommits, ahead and behind "
                "(commits against its base), conflicts (files that would conflict with the base) and agent.",
                get_status,
                takes=NoInput,
                gives=WorkspaceStatus,
                read_only=True,
            ),
            Tool(
                "workspace_get_metadata",
                "Get all metadata for the current workspace: text by key. `base`, the branch or commit that the "
                "workspace is compared with, is always there.",
                get_metadata,
                takes=NoInput,
                gives=dict[str, str],
                read_only=True,
            ),
            Tool(
                "workspace_set_metadata",
                "Set or delete a metadata key for the current workspace. Use it to leave short notes for people and "
                "other agents; it lasts as long as the workspace. Answers null.",
                set_metadata,
                takes=SetMetadata,
                gives=None,
            ),
            Tool(
                "workspace_get_opencode_port",
                "Get the OpenCode server port for the current workspace, or null if none runs.",
                get_port,
                takes=NoInput,
                gives=int | None,
                read_only=True,
            ),
            Tool(
                "workspace_delete",
                "Delete the current workspace. This will terminate the OpenCode session. Use it only when you were "
                "asked to, as your last step. Refused if work is not committed or not merged, with a list of it. The "
                "folder is kept in a trash, from which the user can restore it. Answers at once that it has started.",
                delete,
                takes=Delete,
                gives=Started,
                destructive=True,
            ),
            Tool(
                "workspace_create",
                "Create a workspace: a new git worktree with a branch of its own, beside the current one. Use it for "
                "work that should not touch the files here. Answers the workspace with its path; its state is "
                "preparing until files are copied and the project's setup command has ended.",
                create,
                takes=Create,
                gives=Listed,
            ),
            Tool(
                "workspace_list",
                "List the workspaces of this project, the main checkout (@main) first: name, path, branch, state, and "
                "what each needs its user for. With `status` also what is dirty, unmerged or in conflict.",
                list_workspaces,
                takes=ListWorkspaces,
                gives=list[Listed],
                read_only=True,
            ),
            Tool(
                "project_list",
                "List the projects (git repositories) that can be worked on from here, each with the names of its "
                "workspaces.",
                list_projects,
                gives=list[ListedProject],
                read_only=True,
            ),
            Tool(
                "workspace_get_agent_session",
                "Get where the agent of the current workspace is talked to: port and sessionId, or null if none runs.",
                get_session,
                takes=NoInput,
                gives=AgentSession | None,
                read_only=True,
            ),
            Tool(
                "workspace_restart_agent",
                "Restart the agent of the current workspace, for example after its settings were changed. It keeps "
                "its port, which is answered. A turn that runs is cut off.",
                restart_agent,
                takes=NoInput,
                gives=int,
                destructive=True,
            ),
        ],
    )
