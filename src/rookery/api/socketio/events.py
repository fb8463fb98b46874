"""The requests of Socket.IO clients about workspaces, and their formats."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from rookery.system.errors import RookeryError
from rookery.wire.http.auth import Principal
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Project

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T", bound="WorkspaceRequest")

_MAX_PATH_LENGTH = 4096
_EVENT_PREFIX = "api:workspace:"


@dataclass(frozen=True)
class SocketCaller:
    """A connected client and its default workspace. `is_deleted` says that the workspace of its token was deleted."""

    principal: Principal
    path: Path | None
    is_deleted: bool = False


class WorkspaceRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A request about the workspace at `workspace_path`, or else about the default workspace of the client."""

    workspace_path: str | None = None


class MetadataRequest(WorkspaceRequest, kw_only=True):
    key: str
    value: str | None


class DeleteRequest(WorkspaceRequest, kw_only=True):
    keep_branch: bool = False
    force: bool = False
    wait: bool = False


class CreateRequest(WorkspaceRequest, kw_only=True):
    name: str
    project: str | None = None
    base: str | None = None
    branch: str | None = None
    prompt: str | None = None
    agent: bool = True
    wait: bool = False


class WorkspaceEvents:
    """Runs the requests of Socket.IO clients."""

    def __init__(self, operations: WorkspaceOperations) -> None:
        self._operations = operations
        self._handlers: dict[str, Callable[[SocketCaller, Any], Awaitable[Any]]] = {
            f"{_EVENT_PREFIX}getStatus": self._status,
            f"{_EVENT_PREFIX}getMetadata": self._metadata,
            f"{_EVENT_PREFIX}setMetadata": self._set_metadata,
            f"{_EVENT_PREFIX}getAgentSession": self._agent_session,
            f"{_EVENT_PREFIX}delete": self._delete,
            f"{_EVENT_PREFIX}create": self._create,
        }

    async def make_caller(self, principal: Principal, auth: object) -> SocketCaller:
        """Return the caller for a new connection. `auth` may name a workspace that does not exist yet."""
        if auth is not None and not isinstance(auth, dict):
            raise RookeryError("invalid-input", "auth is not an object", "send {workspacePath: …}, or nothing")
        path = _check_absolute(cast(dict[str, object], auth).get("workspacePath")) if auth else None
        own = await self._token_workspace(principal)
        if path is None:
            return SocketCaller(principal, own.path if own is not None else None)
        try:
            return SocketCaller(principal, (await self._find_at(principal, path)).path)
        except RookeryError as error:
            if not error.code.endswith("-not-found"):
                raise
            return SocketCaller(principal, Path(path))

    async def run(self, caller: SocketCaller, event: str, arguments: tuple[object, ...]) -> object:
        """Run the handler of an event, and return its result."""
        handler = self._handlers.get(event)
        if handler is None:
            raise RookeryError(
                "invalid-input", f"there is no event {event[:100]}", f"use one of {', '.join(self._handlers)}"
            )
        if caller.is_deleted:
            raise _workspace_deleted()
        if len(arguments) > 1:
            raise RookeryError(
                "invalid-input", f"{event} takes one object", "send one object and a function for the acknowledgement"
            )
        return msgspec.to_builtins(await handler(caller, arguments[0] if arguments else None))

    # Events

    async def _status(self, caller: SocketCaller, data: object) -> object:
        return await self._operations.overview.status(
            await self._find_workspace(caller, _convert(data, WorkspaceRequest))
        )

    async def _metadata(self, caller: SocketCaller, data: object) -> object:
        return await self._operations.workspaces.metadata(
            await self._find_workspace(caller, _convert(data, WorkspaceRequest))
        )

    async def _set_metadata(self, caller: SocketCaller, data: object) -> None:
        request = _convert(data, MetadataRequest)
        await self._operations.workspaces.set_metadata(
            await self._find_workspace(caller, request), request.key, request.value
        )

    async def _agent_session(self, caller: SocketCaller, data: object) -> object:
        return await self._operations.agents.session(
            await self._find_workspace(caller, _convert(data, WorkspaceRequest))
        )

    async def _delete(self, caller: SocketCaller, data: object) -> object:
        request = _convert(data, DeleteRequest)
        return await self._operations.delete(
            await self._find_workspace(caller, request),
            force=request.force,
            keep_branch=request.keep_branch,
            wait=request.wait,
        )

    async def _create(self, caller: SocketCaller, data: object) -> object:
        request = _convert(data, CreateRequest)
        workspace = await self._operations.create(
            await self._find_project(caller, request),
            request.name,
            base=request.base,
            branch=request.branch,
            prompt=request.prompt,
            agent=request.agent,
            wait=request.wait,
            creator=caller.principal.workspace,
        )
        return await self._operations.overview.summary(workspace)

    # Lookup

    async def _find_workspace(self, caller: SocketCaller, request: WorkspaceRequest) -> Workspace:
        """Return the workspace of a request: the one it names, else that of the token, else that of the connection."""
        path = _check_absolute(request.workspace_path)
        if path is not None:
            return await self._find_at(caller.principal, path)
        if (own := await self._token_workspace(caller.principal)) is not None:
            return own
        if caller.path is None:
            remedy = "send workspacePath, with the event or with auth when you connect"
            raise RookeryError("invalid-input", "no workspace is selected", remedy)
        return await self._operations.at(caller.path)

    async def _find_at(self, principal: Principal, path: str) -> Workspace:
        """Return the workspace at a path, and raise if the token is that of another workspace."""
        own = await self._token_workspace(principal)
        if own is None:
            return await self._operations.at(Path(path))
        located = await self._operations.workspaces.finder.find_at(path)
        if located is None or located.workspace.path != own.path:
            raise RookeryError(
                "forbidden", f"the token of {own.name} gives access to that workspace only", "leave out workspacePath"
            )
        return own

    async def _token_workspace(self, principal: Principal) -> Workspace | None:
        """Return the workspace of a token, wherever its folder is now; None for other tokens."""
        if principal.workspace is None:
            return None
        located = await self._operations.workspaces.finder.find_by_git_folder(principal.workspace)
        if located is None:
            raise _workspace_deleted()
        return located.workspace

    async def _find_project(self, caller: SocketCaller, request: CreateRequest) -> Project:
        """Return the named project, else that of the caller's workspace, else the only one."""
        if request.project is not None and caller.principal.workspace is None:
            return await self._operations.resolve_project(request.project)
        if caller.path is None and request.workspace_path is None:
            return await self._operations.resolve_project(None)
        own = (await self._find_workspace(caller, request)).project
        if request.project not in (None, own.id, own.name):
            raise RookeryError("forbidden", f"the token of this workspace gives access to the project {own.id} only")
        return own


def _workspace_deleted() -> RookeryError:
    return RookeryError(
        "workspace-not-found", "the workspace of this token no longer exists", "connect with another token"
    )


def _check_absolute(value: object) -> str | None:
    """Return an absolute path; None if there is none. Raise for other values."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value or len(value) > _MAX_PATH_LENGTH:
        raise RookeryError(
            "invalid-input",
            "workspacePath is not an absolute path",
            f"send one of at most {_MAX_PATH_LENGTH} characters",
        )
    return value


def _convert(value: object, kind: type[T]) -> T:
    """Convert a request to its type."""
    try:
        return msgspec.convert({} if value is None else value, type=kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(item.encode_name for item in msgspec.structs.fields(kind))
        raise RookeryError("invalid-input", f"the request is invalid: {error}", f"send: {fields}") from None
