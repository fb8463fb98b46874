"""The operations on workspaces: create, list, show, status, metadata, diff, open, close, prepare and delete."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from rookery.operations.operation import Caller, McpTool, Parameters, Progress, RestRoute, operation
from rookery.operations.status import EndpointLookup, EndpointState, EndpointStatus, WorkspaceStatus, describe_endpoint
from rookery.operations.target import (
    OMIT_TARGET,
    TOOL_NAMES,
    WORKSPACE_PATH,
    InWorkspace,
    find_workspace,
    require_absolute,
    select_project,
)
from rookery.system.bus import Bus, Event, Subscription
from rookery.system.confinement.locations import REMOVED_VARIABLES
from rookery.system.tasks import TaskSet
from rookery.wire.server.traffic import TrafficLine
from rookery.workspaces.metadata import StartPoint
from rookery.workspaces.model import AgentActivity, AgentInfo, Need, Workspace, WorkspaceState, format_path
from rookery.workspaces.operations import DeletionStarted, WorkspaceOperations as WorkspaceService
from rookery.workspaces.status.diff import WorkspaceDiff

T = TypeVar("T")
S = TypeVar("S", bound="WorkspaceSummary")


class ListWorkspaces(Parameters):
    project: Annotated[
        str | None, Meta(description="Id or name of a project; default: that of this workspace, else all")
    ] = None
    status: Annotated[bool, Meta(description="If true, include the status of each workspace")] = False


class CreateWorkspace(Parameters):
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
    agent: Annotated[bool, Meta(description="If false, no agent works in it until someone starts one")] = True
    wait: Annotated[bool, Meta(description="If true, return when the preparation has finished or failed")] = False


class InProject(Parameters):
    project: Annotated[str | None, Meta(description="Id or name of a project; default: all")] = None


class FindWorkspace(Parameters):
    path: Annotated[str, Meta(description="Absolute path of a folder")]


class SetMetadata(InWorkspace, kw_only=True):
    key: Annotated[str, Meta(description="Metadata key (must start with letter, contain only letters/digits/hyphens)")]
    value: Annotated[str | None, Meta(description="Value to set, or null to delete the key")]


class DeleteWorkspace(InWorkspace, rename="camel"):
    keep_branch: Annotated[bool, Meta(description="If true, keep the git branch after deleting the worktree")] = False
    force: Annotated[
        bool, Meta(description="If true, delete it although work in it is not committed or not merged")
    ] = False
    wait: Annotated[
        bool, Meta(description="If true, return when the deletion has finished; its own agent ends before that")
    ] = False


class SandboxOfWorkspace(InWorkspace):
    mode: Annotated[Literal["workspace", "strict"], Meta(description="How strict the sandbox is")] = "workspace"


class OpenWorkspace(InWorkspace):
    agent: Annotated[
        bool, Meta(description="If false, no agent starts in it until someone starts one, or opens it with its agent")
    ] = True


class PrepareWorkspace(InWorkspace):
    wait: Annotated[bool, Meta(description="If true, return when the preparation has finished or failed")] = False


class ReadTraffic(InWorkspace):
    since: Annotated[
        int, Meta(ge=0, description="Number of a message: return those after it, as in `next`; 0 for all that are kept")
    ] = 0
    timeout: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="How long to wait for a message, in milliseconds; 0 returns at once",
            extra={"unit": "milliseconds"},
        ),
    ] = 0


class TrafficPage(msgspec.Struct, frozen=True):
    """The last messages of a workspace's clients with its MCP servers. `next` is the number of the newest one."""

    next: int
    lines: Sequence[TrafficLine]


class WorkspaceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace. `error` says why it is failed or missing, with the error `code`."""

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
    # Null if it was not requested, or cannot be read.
    status: WorkspaceStatus | None
    activity: AgentActivity
    agent: AgentInfo
    attention: Sequence[Need]


class WorkspaceRecord(WorkspaceSummary, frozen=True, kw_only=True):
    """A workspace with the state of its MCP server."""

    mcp: EndpointState


class WorkspaceDetails(WorkspaceSummary, frozen=True, kw_only=True):
    """A workspace with its metadata, and its MCP server with tools and last messages."""

    metadata: Mapping[str, str]
    mcp: EndpointStatus


class WorkspaceOverview(WorkspaceSummary, frozen=True, kw_only=True):
    """A workspace with its metadata and the state of its MCP server."""

    metadata: Mapping[str, str]
    mcp: EndpointState


class MergedWorkspace(msgspec.Struct, frozen=True, rename="camel"):
    """A clean workspace whose work is merged: `how`, and into which branch."""

    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: WorkspaceState
    error: str | None
    code: str | None
    open: bool
    start: StartPoint | None
    how: str
    merged_into: str | None


class SandboxRecord(msgspec.Struct, frozen=True):
    """The sandbox of a workspace. Without a `policy` programs run unconfined, as the settings allow here.

    `missing` names what of the policy the kernel cannot enforce.
    """

    policy: Mapping[str, Any] | None
    variables: Mapping[str, str]
    removed: Sequence[str]
    missing: Sequence[str]


class WorkspaceToken(msgspec.Struct, frozen=True):
    """The token of a workspace."""

    token: str


def _extend(kind: type[S], workspace: WorkspaceSummary, **fields: Any) -> S:
    """Return a workspace as another kind of record: with the same summary and these fields."""
    summary = {name: getattr(workspace, name) for name in WorkspaceSummary.__struct_fields__}
    return kind(**summary, **fields)


def _summarize(workspace: WorkspaceRecord) -> WorkspaceSummary:
    return _extend(WorkspaceSummary, workspace)


def _summarize_all(workspaces: Sequence[WorkspaceRecord]) -> Sequence[WorkspaceSummary]:
    return [_summarize(workspace) for workspace in workspaces]


def _shorten_details(details: WorkspaceDetails) -> WorkspaceOverview:
    """Leave out the tools and the messages of the MCP server, which would cost a model many tokens."""
    state = EndpointState(**{name: getattr(details.mcp, name) for name in EndpointState.__struct_fields__})
    return _extend(WorkspaceOverview, details, metadata=details.metadata, mcp=state)


def _return_null(_: object) -> None:
    return None


class WorkspaceOperations:
    """The operations on workspaces. `url` returns the address of the app port."""

    group = "workspace"

    def __init__(
        self, workspaces: WorkspaceService, endpoints: Callable[[], EndpointLookup], url: Callable[[], str]
    ) -> None:
        self._workspaces = workspaces
        self._endpoints = endpoints
        self._url = url

    # All workspaces

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", "/api/workspaces"),
        mcp=McpTool(
            "workspace",
            "workspace_list",
            "List the workspaces of this project, the main checkout (@main) first: name, path, branch, state, and "
            "the reasons why it needs its user. With `status` also what is dirty, unmerged or in conflict.",
            present=_summarize_all,
            result=Sequence[WorkspaceSummary],
            forbid_unknown=True,
        ),
        python="workspaces.list",
    )
    async def list(self, caller: Caller, arguments: ListWorkspaces) -> Sequence[WorkspaceRecord]:
        """The workspaces of all projects, or of `?project=`; with their git status if `?status=true`."""
        project = await select_project(self._workspaces, caller, arguments.project)
        workspaces = await self._workspaces.overview.all(
            project.id if project is not None else None, status=arguments.status
        )
        return [self._make_record(workspace) for workspace in workspaces]

    @operation(
        access="workspace",
        rest=RestRoute("POST", "/api/workspaces", (201,)),
        mcp=McpTool(
            "workspace",
            "workspace_create",
            "Create a workspace: a new git worktree with a branch of its own, beside the current one. Use it for "
            "work that should not change the files here. Returns the workspace with its path and its start point "
            "(start: ref and commit); its state is preparing until files are copied and the project's setup "
            "command has ended.",
            present=_summarize,
            result=WorkspaceSummary,
            forbid_unknown=True,
        ),
        socketio="api:workspace:create",
        python="workspaces.create",
    )
    async def create(self, caller: Caller, arguments: CreateWorkspace) -> WorkspaceRecord:
        """Create a workspace; it is still being prepared unless `wait` is true. `project` defaults to the only one."""
        project = await select_project(self._workspaces, caller, arguments.project)
        if project is None:
            project = await self._workspaces.resolve_project(None)
        creation = self._workspaces.create(
            project,
            arguments.name,
            base=arguments.base,
            branch=arguments.branch,
            prompt=arguments.prompt,
            agent=arguments.agent,
            wait=arguments.wait,
            creator=await self._find_creator(caller),
        )
        events = self._workspaces.events
        workspace = await with_progress(caller.progress, events, project.id, arguments.name, creation)
        return await self._summarize(workspace)

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/workspaces/merged"),
        mcp=McpTool(
            "admin",
            "workspace_merged",
            "List the workspaces that can be deleted without losing work: those without uncommitted changes whose "
            "work is merged into a branch that stays; `how` and `mergedInto` say how and where.",
            forbid_unknown=True,
        ),
    )
    async def merged(self, caller: Caller, arguments: InProject) -> Sequence[MergedWorkspace]:
        """The clean workspaces whose work is already merged, with `how` it was merged; `?project=`."""
        merged = await self._workspaces.overview.merged(arguments.project)
        return msgspec.convert(merged, list[MergedWorkspace])

    @operation(
        changes=False,
        rest=RestRoute("GET", "/api/workspaces/at"),
        mcp=McpTool(
            "admin",
            "workspace_find",
            "Get the workspace that contains the folder `path`.",
            forbid_unknown=True,
        ),
        python="workspaces.at",
    )
    async def at(self, caller: Caller, arguments: FindWorkspace) -> WorkspaceRecord:
        """The workspace that contains the folder `?path=`."""
        return await self._summarize(await self._workspaces.containing(require_absolute(arguments.path)))

    # One workspace

    @operation(
        changes=False,
        rest=RestRoute("GET", WORKSPACE_PATH),
        mcp=McpTool(
            "admin",
            "workspace_get",
            "Get a workspace: its state, git status, metadata, agent and MCP server, and why it needs its user.",
            names=TOOL_NAMES,
            present=_shorten_details,
            result=WorkspaceOverview,
            forbid_unknown=True,
        ),
        python="Workspace.refresh",
    )
    async def show(self, caller: Caller, arguments: InWorkspace) -> WorkspaceDetails:
        """A workspace with its status, its metadata, its MCP server and the reasons why it needs its user."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        details = await self._workspaces.overview.details(workspace)
        if caller.is_user:
            self._workspaces.agents.mark_seen(workspace)
        endpoint = await describe_endpoint(details, self._endpoints(), self._url())
        summary = msgspec.convert(details, WorkspaceSummary)
        return _extend(WorkspaceDetails, summary, metadata=details["metadata"], mcp=endpoint)

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/status"),
        mcp=McpTool(
            "workspace",
            "workspace_get_status",
            "Get the current workspace status including dirty flag and agent status. Use it before you commit, "
            "merge or delete. Returns isDirty (changes that are not committed), unmergedCommits, ahead and behind "
            "(commits against its base), conflicts (files that would conflict with the base), mergedInto (the "
            "branch with its work) and agent. A commit counts as merged if any remaining branch contains it.",
            omit=OMIT_TARGET,
        ),
        socketio="api:workspace:getStatus",
        python="Workspace.status",
    )
    async def status(self, caller: Caller, arguments: InWorkspace) -> WorkspaceStatus:
        """The uncommitted changes, unmerged commits and conflicts of a workspace, and the status of its agent."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        return msgspec.convert(await self._workspaces.overview.status(workspace), WorkspaceStatus)

    @operation(
        access="workspace",
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/metadata"),
        mcp=McpTool(
            "workspace",
            "workspace_get_metadata",
            "Get all metadata for the current workspace: text by key. `base`, the branch or commit that the "
            "workspace is compared with, is always set.",
            omit=OMIT_TARGET,
        ),
        socketio="api:workspace:getMetadata",
        python="Workspace.metadata",
    )
    async def metadata(self, caller: Caller, arguments: InWorkspace) -> dict[str, str]:
        """All metadata of a workspace; `base` is always present."""
        return await self._workspaces.workspaces.metadata(await find_workspace(self._workspaces, caller, arguments))

    @operation(
        access="workspace",
        rest=RestRoute("PUT", f"{WORKSPACE_PATH}/metadata"),
        mcp=McpTool(
            "workspace",
            "workspace_set_metadata",
            "Set or delete a metadata key for the current workspace. Use it to leave short notes for people and "
            "other agents; it is kept as long as the workspace. Returns null.",
            omit=OMIT_TARGET,
            present=_return_null,
            result=type(None),
        ),
        socketio="api:workspace:setMetadata",
        python="Workspace.set_metadata",
    )
    async def set_metadata(self, caller: Caller, arguments: SetMetadata) -> dict[str, str]:
        """Set the metadata `key` to `value`, or remove it with null; returns all metadata."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        await self._workspaces.workspaces.set_metadata(workspace, arguments.key, arguments.value)
        return await self._workspaces.workspaces.metadata(workspace)

    @operation(
        access="workspace",
        rest=RestRoute(
            "DELETE", WORKSPACE_PATH, (202, 200), status=lambda arguments, _: 200 if arguments.wait else 202
        ),
        mcp=McpTool(
            "workspace",
            "workspace_delete",
            "Delete the current workspace. This will terminate the OpenCode session. Use it only when you were "
            "asked to, as your last step. Refused if work is not committed or not merged, with a list of it. The "
            "folder is kept in a trash, from which the user can restore it. Returns once the deletion has started.",
            omit=OMIT_TARGET,
            destructive=True,
        ),
        socketio="api:workspace:delete",
        python="Workspace.delete",
    )
    async def delete(self, caller: Caller, arguments: DeleteWorkspace) -> DeletionStarted:
        """Move a workspace to the trash; returns immediately, or with `wait` at the end. Also `force`, `keepBranch`."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        deletion = self._workspaces.delete(
            workspace, force=arguments.force, keep_branch=arguments.keep_branch, wait=arguments.wait
        )
        events = self._workspaces.events
        return await with_progress(caller.progress, events, workspace.project.id, workspace.name, deletion)

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/environment"),
        mcp=McpTool(
            "admin",
            "workspace_get_environment",
            "Get the environment variables for programs in a workspace, including its ports.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def environment(self, caller: Caller, arguments: InWorkspace) -> Mapping[str, str]:
        """The environment variables for programs in a workspace, including its ports."""
        return await self._workspaces.workspaces.environment(await find_workspace(self._workspaces, caller, arguments))

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/sandbox"),
        mcp=McpTool(
            "admin",
            "workspace_get_sandbox",
            "Get what a confined program in a workspace may reach: the policy, its variables, and what of the policy "
            "the kernel cannot enforce.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def sandbox(self, caller: Caller, arguments: SandboxOfWorkspace) -> SandboxRecord:
        """What a confined program in a workspace may reach: the policy, its variables, and what is not enforced."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        sandbox = await self._workspaces.workspaces.make_sandbox(workspace, arguments.mode, os.environ)
        if sandbox is None:
            return SandboxRecord(None, {}, (), ())
        removed = sorted(REMOVED_VARIABLES)
        return SandboxRecord(sandbox.policy.as_dict(), sandbox.variables, removed, sandbox.missing)

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/token"),
        absent={"mcp": "the result of a tool is sent to the provider of the model, and a token is a secret"},
    )
    async def token(self, caller: Caller, arguments: InWorkspace) -> WorkspaceToken:
        """The token that gives access to this workspace only."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        return WorkspaceToken(await self._workspaces.workspaces.token(workspace))

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/diff"),
        mcp=McpTool(
            "admin",
            "workspace_diff",
            "Get the changes of a workspace since its branch left its base, committed or not: files, the patch as "
            "text, and what was left out of it.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
        python="Workspace.diff",
    )
    async def diff(self, caller: Caller, arguments: InWorkspace) -> WorkspaceDiff:
        """The changes since the branch left its base, committed or not: files, a patch, and what was left out."""
        return await self._workspaces.diff(await find_workspace(self._workspaces, caller, arguments))

    @operation(
        changes=False,
        rest=RestRoute("GET", f"{WORKSPACE_PATH}/traffic"),
        mcp=McpTool(
            "admin",
            "workspace_traffic",
            "Get the last messages between the clients of a workspace, its agent among them, and its MCP servers: "
            "time, direction, method, tool, size and duration; never arguments or results.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
    )
    async def traffic(self, caller: Caller, arguments: ReadTraffic) -> TrafficPage:
        """The last MCP messages of a workspace's clients, its agent among them; waits for new ones up to `timeout`."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        traffic = self._endpoints().traffic({"path": format_path(workspace.path)})
        await traffic.log.wait(arguments.since, arguments.timeout / 1000)
        return TrafficPage(traffic.log.count, traffic.lines(arguments.since))

    @operation(
        rest=RestRoute("POST", f"{WORKSPACE_PATH}/open"),
        mcp=McpTool(
            "admin",
            "workspace_open",
            "Open a workspace: its agent and MCP servers may run, now and after a restart of Rookery. With `agent` "
            "false, only its MCP servers.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
        python="Workspace.open",
    )
    async def open(self, caller: Caller, arguments: OpenWorkspace) -> WorkspaceRecord:
        """Open a workspace: its services start, now and with the daemon; without its agent if `agent` is false."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        return await self._summarize(await self._workspaces.open(workspace, agent=arguments.agent))

    @operation(
        rest=RestRoute("POST", f"{WORKSPACE_PATH}/close"),
        mcp=McpTool(
            "admin",
            "workspace_close",
            "Close a workspace: its agent, its MCP servers and its just tasks end. Nothing is deleted.",
            names=TOOL_NAMES,
            destructive=True,
            forbid_unknown=True,
        ),
        python="Workspace.close",
    )
    async def close(self, caller: Caller, arguments: InWorkspace) -> WorkspaceRecord:
        """Close a workspace: its services stop; nothing is deleted."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        return await self._summarize(await self._workspaces.workspaces.close(workspace))

    @operation(
        rest=RestRoute("POST", f"{WORKSPACE_PATH}/prepare", (202,)),
        mcp=McpTool(
            "admin",
            "workspace_prepare",
            "Prepare a workspace again after a failure: files are copied, and the project's setup command runs if the "
            "user has approved it. Returns the workspace with its state.",
            names=TOOL_NAMES,
            forbid_unknown=True,
        ),
        python="Workspace.prepare",
    )
    async def prepare(self, caller: Caller, arguments: PrepareWorkspace) -> WorkspaceRecord:
        """Prepare a workspace again after a failure; with `wait`, returns when the preparation has ended."""
        workspace = await find_workspace(self._workspaces, caller, arguments)
        preparation = self._workspaces.prepare(workspace, wait=arguments.wait)
        events = self._workspaces.events
        prepared = await with_progress(caller.progress, events, workspace.project.id, workspace.name, preparation)
        return await self._summarize(prepared)

    async def _find_creator(self, caller: Caller) -> Path | None:
        """Return the own git folder of the workspace whose token a call was made with; None for the owner's."""
        if caller.scope is None:
            return None
        workspace = await self._workspaces.at(caller.scope)
        return (await self._workspaces.workspaces.finder.refresh(workspace)).git_folder

    async def _summarize(self, workspace: Workspace) -> WorkspaceRecord:
        return self._make_record(await self._workspaces.overview.summary(workspace))

    def _make_record(self, workspace: Mapping[str, Any]) -> WorkspaceRecord:
        summary = msgspec.convert(workspace, WorkspaceSummary)
        return _extend(WorkspaceRecord, summary, mcp=self._endpoints().state(workspace))


_tasks = TaskSet("progress")


async def with_progress(progress: Progress | None, events: Bus, project: str, name: str, work: Awaitable[T]) -> T:
    """Await `work`, and meanwhile report the progress of a workspace to a caller that wants it."""
    if progress is None:
        return await work
    reader = events.subscribe()
    reporting = _tasks.start(_report_events(progress, reader, project, name), name)
    try:
        return await work
    except asyncio.CancelledError:
        reporting.cancel()
        raise
    finally:
        reader.end("done")
        # Progress must reach the client before the response.
        await asyncio.wait([reporting])


async def _report_events(progress: Progress, reader: Subscription, project: str, name: str) -> None:
    while batch := await reader.next_batch():
        for text in describe_phases(batch, project, name):
            await progress(text)
        if reader.ended is not None:
            return


def describe_phases(events: Iterable[Event], project: str, name: str) -> Iterable[str]:
    """Yield a text for each event of one workspace."""
    for event in events:
        if event.data.get("project") == project and event.data.get("name") == name:
            yield _describe_phase(event.type.removeprefix("workspace."), event.data)


def _describe_phase(state: str, data: Mapping[str, Any]) -> str:
    progress: Mapping[str, Any] = data.get("progress") or {}
    phase: str | None = data.get("phase") or progress.get("step")
    if "total" in data:
        return f"{state}: {phase} {data['done']} of {data['total']}"
    error: Mapping[str, str] = progress.get("error") or {}
    why: str | None = data.get("error") or error.get("message")
    return ": ".join(filter(None, [state, phase, why]))
