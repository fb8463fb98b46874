"""What the tools about workspaces take and give; their schemas are made from this."""

from typing import Annotated

import msgspec
from msgspec import Meta

from rookery.workspaces.agent import Agent, AgentStatus
from rookery.workspaces.record import State
from rookery.workspaces.status import Status


class NoInput(msgspec.Struct):
    """What else is sent is ignored: that is how these tools were always called."""


class SetMetadata(msgspec.Struct):
    key: Annotated[str, Meta(description="Metadata key (must start with letter, contain only letters/digits/hyphens)")]
    value: Annotated[str | None, Meta(description="Value to set, or null to delete the key")]


class Delete(msgspec.Struct):
    keepBranch: Annotated[bool, Meta(description="If true, keep the git branch after deleting the worktree")] = False
    force: Annotated[
        bool, Meta(description="If true, delete it although work in it is not committed or not merged")
    ] = False
    wait: Annotated[
        bool, Meta(description="If true, answer when the deletion has ended; its own agent does not live to see that")
    ] = False


class Create(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="Name of the workspace, and of its branch; such as fix-login or feature/x")]
    project: Annotated[
        str | None, Meta(description="Id or name of the project; default: the project of this workspace")
    ] = None
    base: Annotated[
        str | None, Meta(description="Branch, tag or commit to start from; default: the remote's default branch")
    ] = None
    branch: Annotated[str | None, Meta(description="An existing branch to use instead of a new one")] = None
    prompt: Annotated[str | None, Meta(description="First message to the agent of the new workspace")] = None
    wait: Annotated[bool, Meta(description="If true, answer when the workspace is prepared or that has failed")] = False


class ListWorkspaces(msgspec.Struct, forbid_unknown_fields=True):
    project: Annotated[
        str | None, Meta(description="Id or name of a project; default: that of this workspace, else all")
    ] = None
    status: Annotated[bool, Meta(description="If true, tell the status of each one too")] = False


class WorkspaceStatus(Status, frozen=True, rename="camel"):
    agent: AgentStatus


class Need(msgspec.Struct):
    reason: str
    text: str


class Listed(msgspec.Struct):
    """One workspace, as every face shows it."""

    project: str
    name: str
    path: str
    branch: str | None
    main: bool
    state: State
    error: str | None
    code: str | None
    open: bool
    agent: Agent
    attention: list[Need]
    # Null where it was not asked for, or cannot be told.
    status: WorkspaceStatus | None


class ListedProject(msgspec.Struct):
    id: str
    name: str
    path: str
    workspaces: list[str]
