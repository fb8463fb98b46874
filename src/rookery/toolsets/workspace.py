"""`workspace`: an agent's own workspace, its siblings, and its project."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from rookery.system.bus import Bus, Event, Subscription
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.toolsets.toolset import NoArguments, Tool, Toolset
from rookery.wire.http.auth import OWNER
from rookery.wire.protocol.provider import Call, report_progress
from rookery.workspaces.metadata import StartPoint
from rookery.workspaces.model import AgentInfo, AgentSession, AgentStatus, Workspace, WorkspaceState
from rookery.workspaces.operations import DeletionStarted, WorkspaceOperations
from rookery.workspaces.overview import JsonObject
from rookery.workspaces.projects import Project
from rookery.workspaces.status.cache import GitStatus

T = TypeVar("T")
_HEADER = "X-Workspace-Path"


class NoWorkspaceInput(msgspec.Struct):
    """No arguments. Others are ignored, because clients have always called these tools so."""


class SetMetadata(msgspec.Struct):
    key: Annotated[str, Meta(description="Metadata key (must start with letter, contain only letters/digits/hyphens)")]
    value: Annotated[str | None, Meta(description="Value to set, or null to delete the key")]


class DeleteWorkspace(msgspec.Struct):
    keepBranch: Annotated[bool, Meta(description="If true, keep the git branch after deleting the worktree")] = False
    force: Annotated[
        bool, Meta(description="If true, delete it although work in it is not committed or not merged")
    ] = False
    wait: Annotated[
        bool, Meta(description="If true, return when the deletion has finished; its own agent ends before that")
    ] = False


class CreateWorkspace(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="Name of the workspace, and of its branch; such as fix-login or feature/x")]
    project: Annotated[
        str | None, Meta(description="Id or name of the project; default: the project of this workspace")
    ] = None
    base: Annotated[
        str | None, Meta(description="Branch, tag or commit to start from; default: the remote's default branch")
    ] = None
    branch: Annotated[
        str | None,
        Meta(description="An existing branch to use instead of a new one; without it, the name of a branch is refused"),
    ] = None
    prompt: Annotated[str | None, Meta(description="First message to the agent of the new workspace")] = None
    wait: Annotated[bool, Meta(description="If true, return when the preparation has finished or failed")] = False


class ListWorkspaces(msgspec.Struct, forbid_unknown_fields=True):
    project: Annotated[
        str | None, Meta(description="Id or name of a project; default: that of this workspace, else all")
    ] = None
    status: Annotated[bool, Meta(description="If true, include the status of each workspace")] = False


class WorkspaceStatus(GitStatus, frozen=True, rename="camel", kw_only=True):
    agent: AgentStatus


class AttentionNeed(msgspec.Struct):
    reason: str
    text: str


class ListedWorkspace(msgspec.Struct):
    """One workspace, with the same fields as in the REST API and the command line."""

    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: WorkspaceState
    error: str | None
    code: str | None
    open: bool
    # The start point of a workspace that Rookery created.
    start: StartPoint | None
    agent: AgentInfo
    attention: list[AttentionNeed]
    # Null if it was not requested, or cannot be read.
    status: WorkspaceStatus | None


class ListedProject(msgspec.Struct):
    id: str
    name: str
    path: str
    workspaces: list[str]


_tasks = TaskSet("progress")


async def with_progress(call: Call, events: Bus, project: str, name: str, work: Awaitable[T]) -> T:
    """Await `work`, and meanwhile report the progress of a workspace to a client that asked for it."""
    if "progressToken" not in call.meta:
        return await work
    reader = events.subscribe()
    reporting = _tasks.start(_report_events(call, reader, project, name), name)
    try:
        return await work
    except asyncio.CancelledError:
        reporting.cancel()
        raise
    finally:
        reader.end("done")
        # Progress must reach the client before the response.
        await asyncio.wait([reporting])


async def _report_events(call: Call, reader: Subscription, project: str, name: str) -> None:
    numbers = count(1)
    while batch := await reader.next_batch():
        for text in describe_phases(batch, project, name):
            await report_progress(call, next(numbers), message=text)
        if reader.ended is not None:
            return


def describe_phases(events: Iterable[Event], project: str, name: str) -> Iterable[str]:
    """Yield a text for each event of one workspace."""
    for event in events:
        if event.data.get("project") == project and event.data.get("name") == name:
            yield _phase_text(event.type.removeprefix("workspace."), event.data)


def _phase_text(state: str, data: Mapping[str, Any]) -> str:
    progress: Mapping[str, Any] = data.get("progress") or {}
    phase: str | None = data.get("phase") or progress.get("step")
    if "total" in data:
        return f"{state}: {phase} {data['done']} of {data['total']}"
    error: Mapping[str, str] = progress.get("error") or {}
    why: str | None = data.get("error") or error.get("message")
    return ": ".join(filter(None, [state, phase, why]))


def no_workspace_error() -> RookeryError:
    return RookeryError(
        "invalid-input",
        f"no workspace is selected: the header {_HEADER} is missing",
        "send it with the path of a workspace; workspace_list returns the paths",
    )


class _WorkspaceTools:
    """The workspace that a view acts in, or none."""

    def __init__(self, operations: WorkspaceOperations, directory: Path | None) -> None:
        self.operations = operations
        self._directory = directory

    async def workspace(self) -> Workspace:
        """Return the workspace; raise if the client has selected none."""
        if self._directory is None:
            raise no_workspace_error()
        return await self.operations.at(self._directory)

    async def find_creator(self, call: Call) -> Path | None:
        """Return the own git folder of the workspace whose token a call was made with; None for the owner's."""
        if call.owner == OWNER.name:
            return None
        return (await self.operations.workspaces.finder.refresh(await self.workspace())).git_folder

    async def project(self, reference: str | None) -> Project | None:
        """Return the selected project. The view of a workspace can only use its own project, to keep agents apart."""
        if self._directory is None:
            return await self.operations.projects.get(reference) if reference is not None else None
        own = (await self.workspace()).project
        if reference not in (None, own.id, own.name):
            raise RookeryError("invalid-input", f"{reference} is not the project of this workspace", f"use {own.id}")
        return own


def workspace_toolset(operations: WorkspaceOperations, directory: Path | None) -> Toolset:
    """Return the toolset for the workspace at `directory`, which is looked up for each call, or for none."""
    tools = _WorkspaceTools(operations, directory)

    async def get_status(call: Call, arguments: NoWorkspaceInput) -> JsonObject:
        return await operations.overview.status(await tools.workspace())

    async def get_metadata(call: Call, arguments: NoWorkspaceInput) -> dict[str, str]:
        return await operations.workspaces.metadata(await tools.workspace())

    async def set_metadata(call: Call, arguments: SetMetadata) -> None:
        await operations.workspaces.set_metadata(await tools.workspace(), arguments.key, arguments.value)

    async def get_port(call: Call, arguments: NoWorkspaceInput) -> int | None:
        return await operations.agents.port(await tools.workspace())

    async def delete(call: Call, arguments: DeleteWorkspace) -> DeletionStarted:
        workspace = await tools.workspace()
        work = operations.delete(
            workspace, force=arguments.force, keep_branch=arguments.keepBranch, wait=arguments.wait
        )
        return await with_progress(call, operations.events, workspace.project.id, workspace.name, work)

    async def create(call: Call, arguments: CreateWorkspace) -> JsonObject:
        project = await tools.project(arguments.project) or await operations.resolve_project(None)
        work = operations.create(
            project,
            arguments.name,
            base=arguments.base,
            branch=arguments.branch,
            prompt=arguments.prompt,
            wait=arguments.wait,
            creator=await tools.find_creator(call),
        )
        workspace = await with_progress(call, operations.events, project.id, arguments.name, work)
        return await operations.overview.summary(workspace)

    async def list_workspaces(call: Call, arguments: ListWorkspaces) -> list[JsonObject]:
        project = await tools.project(arguments.project)
        return await operations.overview.all(project.id if project is not None else None, status=arguments.status)

    async def list_projects(call: Call, arguments: NoArguments) -> list[JsonObject]:
        own = await tools.project(None)
        return await operations.overview.projects(own.id if own is not None else None)

    async def get_session(call: Call, arguments: NoWorkspaceInput) -> AgentSession | None:
        return await operations.agents.session(await tools.workspace())

    async def restart_agent(call: Call, arguments: NoWorkspaceInput) -> int:
        return await operations.agents.restart(await tools.workspace())

    return Toolset(
        "workspace",
        [
            Tool(
                "workspace_get_status",
                "Get the current workspace status including dirty flag and agent status. Use it before you commit, "
                "merge or delete. Returns isDirty (changes that are not committed), unmergedCommits, ahead and behind "
                "(commits against its base), conflicts (files that would conflict with the base), mergedInto (the "
                "branch with its work) and agent. A commit counts as merged if any remaining branch contains it.",
                get_status,
                input_type=NoWorkspaceInput,
                output_type=WorkspaceStatus,
                read_only=True,
            ),
            Tool(
                "workspace_get_metadata",
                "Get all metadata for the current workspace: text by key. `base`, the branch or commit that the "
                "workspace is compared with, is always set.",
                get_metadata,
                input_type=NoWorkspaceInput,
                output_type=dict[str, str],
                read_only=True,
            ),
            Tool(
                "workspace_set_metadata",
                "Set or delete a metadata key for the current workspace. Use it to leave short notes for people and "
                "other agents; it is kept as long as the workspace. Returns null.",
                set_metadata,
                input_type=SetMetadata,
                output_type=None,
            ),
            Tool(
                "workspace_get_opencode_port",
                "Get the OpenCode server port for the current workspace, or null if none runs. The server answers only "
                "with a password, which the user prints with `rookery agent password`; other processes get 401.",
                get_port,
                input_type=NoWorkspaceInput,
                output_type=int | None,
                read_only=True,
            ),
            Tool(
                "workspace_delete",
                "Delete the current workspace. This will terminate the OpenCode session. Use it only when you were "
                "asked to, as your last step. Refused if work is not committed or not merged, with a list of it. The "
                "folder is kept in a trash, from which the user can restore it. Returns once the deletion has started.",
                delete,
                input_type=DeleteWorkspace,
                output_type=DeletionStarted,
                destructive=True,
            ),
            Tool(
                "workspace_create",
                "Create a workspace: a new git worktree with a branch of its own, beside the current one. Use it for "
                "work that should not change the files here. Returns the workspace with its path and its start point "
                "(start: ref and commit); its state is preparing until files are copied and the project's setup "
                "command has ended.",
                create,
                input_type=CreateWorkspace,
                output_type=ListedWorkspace,
            ),
            Tool(
                "workspace_list",
                "List the workspaces of this project, the main checkout (@main) first: name, path, branch, state, and "
                "the reasons why it needs its user. With `status` also what is dirty, unmerged or in conflict.",
                list_workspaces,
                input_type=ListWorkspaces,
                output_type=list[ListedWorkspace],
                read_only=True,
            ),
            Tool(
                "project_list",
                "List the projects (git repositories) that can be worked on from here, each with the names of its "
                "workspaces.",
                list_projects,
                output_type=list[ListedProject],
                read_only=True,
            ),
            Tool(
                "workspace_get_agent_session",
                "Get the address of the current workspace's agent: port and sessionId, or null if none runs. "
                "The port requires the password that the user prints with `rookery agent password`.",
                get_session,
                input_type=NoWorkspaceInput,
                output_type=AgentSession | None,
                read_only=True,
            ),
            Tool(
                "workspace_restart_agent",
                "Restart the agent of the current workspace, for example after its settings were changed. It keeps "
                "its port, which is returned. A running turn is aborted.",
                restart_agent,
                input_type=NoWorkspaceInput,
                output_type=int,
                destructive=True,
            ),
        ],
    )
