"""What an operation acts on: the workspace that its parameters or its caller name, and paths."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from rookery.operations.operation import Caller, Parameters
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations as WorkspaceService
from rookery.workspaces.projects import Project

WORKSPACE_PATH = "/api/workspaces/{project}/{name}"
# Tools for the owner name the workspace with these parameters; tools for agents omit them.
TOOL_NAMES = {"name": "workspace"}
OMIT_TARGET = frozenset({"project", "name"})


class InWorkspace(Parameters):
    """The workspace `name` of a project. Without a name it is the one that the caller has selected."""

    project: Annotated[
        str | None,
        Meta(description="Id or name of the project; default: that of the selected workspace, else the only one"),
    ] = None
    name: Annotated[
        str | None, Meta(description="Name of the workspace; default: the one that the client has selected")
    ] = None


async def find_workspace(service: WorkspaceService, caller: Caller, arguments: InWorkspace) -> Workspace:
    """Return the workspace of an operation; raise if there is none, or if the caller may not access it."""
    if arguments.name is not None:
        workspace = await service.workspaces.get(await _find_project(service, caller, arguments), arguments.name)
    elif arguments.project is not None:
        raise RookeryError("invalid-input", "a project is given, but no workspace of it", "name the workspace too")
    elif caller.directory is not None:
        workspace = await service.at(caller.directory)
    else:
        raise no_workspace_error()
    if caller.scope is not None and workspace.path != caller.scope:
        raise RookeryError("forbidden", "the token of a workspace gives access to that workspace only")
    return workspace


async def _find_project(service: WorkspaceService, caller: Caller, arguments: InWorkspace) -> str:
    """Return the id or name of the project of a named workspace."""
    if arguments.project is not None:
        return arguments.project
    if caller.directory is not None:
        return (await service.at(caller.directory)).project.id
    return (await service.resolve_project(None)).id


async def select_project(service: WorkspaceService, caller: Caller, reference: str | None) -> Project | None:
    """Return the named project, or that of the workspace that the caller has selected; None if there is neither.

    A caller that has selected a workspace can only name the project of that workspace, to keep agents apart.
    """
    if caller.directory is None:
        return await service.projects.get(reference) if reference is not None else None
    own = (await service.at(caller.directory)).project
    if reference not in (None, own.id, own.name):
        raise RookeryError("invalid-input", f"{reference} is not the project of this workspace", f"use {own.id}")
    return own


def require_absolute(path: str) -> Path:
    """Return a path; raise if it is not absolute, because it would depend on the working directory."""
    if not path.startswith("/") or "\0" in path:
        raise RookeryError("invalid-input", f"{path!r} is not an absolute path", "send an absolute path")
    return Path(path)


async def find_directory(service: WorkspaceService, caller: Caller, arguments: InWorkspace) -> Path:
    """Return the folder of the workspace of an operation that works with its files; raise as `find_workspace` does.

    A workspace that the caller has selected is not looked up again.
    """
    if arguments.name is None and caller.directory is not None and caller.scope in (None, caller.directory):
        return caller.directory
    workspace = await find_workspace(service, caller, arguments)
    if workspace.state in ("missing", "deleting"):
        message = f"the workspace {workspace.name} has no folder: it is {workspace.state}"
        raise RookeryError("workspace-not-found", message, "list the workspaces: rookery ws list")
    return workspace.path


def no_workspace_error() -> RookeryError:
    return RookeryError(
        "invalid-input",
        "no workspace is selected: the header X-Workspace-Path is missing",
        "send it with the path of a workspace; workspace_list returns the paths",
    )
