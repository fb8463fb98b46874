"""The requests of Socket.IO clients: selects the workspace that a request is about, and runs the operation."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from rookery.operations.operation import BoundOperation, Caller, rename_parameters
from rookery.operations.target import OMIT_TARGET, InWorkspace
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import Principal
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations

_MAX_PATH_LENGTH = 4096
_PATH_FIELD = "workspacePath"


@dataclass(frozen=True)
class SocketCaller:
    """A connected client and its default workspace. `is_deleted` says that the workspace of its token was deleted."""

    principal: Principal
    path: Path | None
    is_deleted: bool = False


class SocketEvent:
    """One event: decodes its requests, and runs its operation. Its result has the form of the tool's."""

    def __init__(self, bound: BoundOperation[Any]) -> None:
        self._bound = bound
        self._parameters = bound.operation.parameters
        # Whether it acts in the workspace that the client selects; otherwise it acts in the project of that.
        self.is_in_workspace = issubclass(self._parameters, InWorkspace)
        omit = OMIT_TARGET if self.is_in_workspace else frozenset[str]()
        self._type = rename_parameters(self._parameters, {}, forbid_unknown=True, omit=omit)

    def decode(self, data: object) -> tuple[str | None, msgspec.Struct]:
        """Return the path of the workspace that a request names, if any, and the parameters of the operation."""
        request: object = {} if data is None else data
        path: object = None
        if isinstance(request, dict):
            fields = dict(cast(dict[str, object], request))
            path = fields.pop(_PATH_FIELD, None)
            request = fields
        try:
            arguments = msgspec.convert(request, type=self._type)
        except msgspec.ValidationError as error:
            names = ", ".join([_PATH_FIELD, *(field.encode_name for field in msgspec.structs.fields(self._type))])
            raise RookeryError("invalid-input", f"the request is invalid: {error}", f"send: {names}") from None
        return _check_absolute(path), self._parameters(**msgspec.structs.asdict(arguments))

    async def run(self, caller: Caller, arguments: msgspec.Struct) -> object:
        result = await self._bound.run(caller, arguments)
        tool = self._bound.operation.declared.mcp
        return msgspec.to_builtins(tool.present(result) if tool is not None and tool.present is not None else result)


class WorkspaceEvents:
    """Runs the requests of Socket.IO clients."""

    def __init__(self, workspaces: WorkspaceOperations, operations: Iterable[BoundOperation[Any]]) -> None:
        self._workspaces = workspaces
        self._events = {
            name: SocketEvent(bound) for bound in operations if (name := bound.operation.declared.socketio) is not None
        }

    async def make_caller(self, principal: Principal, auth: object) -> SocketCaller:
        """Return the caller for a new connection. `auth` may name a workspace that does not exist yet."""
        if auth is not None and not isinstance(auth, dict):
            raise RookeryError("invalid-input", "auth is not an object", "send {workspacePath: …}, or nothing")
        path = _check_absolute(cast(dict[str, object], auth).get(_PATH_FIELD)) if auth else None
        own = await self._find_token_workspace(principal)
        if path is None:
            return SocketCaller(principal, own.path if own is not None else None)
        try:
            return SocketCaller(principal, (await self._find_at(own, path)).path)
        except RookeryError as error:
            if not error.code.endswith("-not-found"):
                raise
            return SocketCaller(principal, Path(path))

    async def run(self, caller: SocketCaller, name: str, arguments: tuple[object, ...]) -> object:
        """Run the operation of an event, and return its result."""
        event = self._events.get(name)
        if event is None:
            raise RookeryError(
                "invalid-input", f"there is no event {name[:100]}", f"use one of {', '.join(self._events)}"
            )
        if caller.is_deleted:
            raise _workspace_deleted()
        if len(arguments) > 1:
            raise RookeryError(
                "invalid-input", f"{name} takes one object", "send one object and a function for the acknowledgement"
            )
        path, parameters = event.decode(arguments[0] if arguments else None)
        own = await self._find_token_workspace(caller.principal)
        if event.is_in_workspace:
            directory = (await self._find_workspace(caller, own, path)).path
        else:
            directory = await self._find_directory(caller, own, path, cast(Any, parameters).project)
        scope = own.path if own is not None else None
        return await event.run(Caller(caller.principal, scope, directory), parameters)

    async def _find_workspace(self, caller: SocketCaller, own: Workspace | None, path: str | None) -> Workspace:
        """Return the workspace of a request: the one it names, else that of the token, else that of the connection."""
        if path is not None:
            return await self._find_at(own, path)
        if own is not None:
            return own
        if caller.path is None:
            remedy = "send workspacePath, with the event or with auth when you connect"
            raise RookeryError("invalid-input", "no workspace is selected", remedy)
        return await self._workspaces.at(caller.path)

    async def _find_directory(
        self, caller: SocketCaller, own: Workspace | None, path: str | None, project: str | None
    ) -> Path | None:
        """Return the folder of the workspace whose project is meant; None if the request names the project itself."""
        if (project is not None and own is None) or (caller.path is None and path is None):
            return None
        workspace = await self._find_workspace(caller, own, path)
        id_ = workspace.project.id
        if project not in (None, id_, workspace.project.name):
            raise RookeryError("forbidden", f"the token of this workspace gives access to the project {id_} only")
        return workspace.path

    async def _find_at(self, own: Workspace | None, path: str) -> Workspace:
        """Return the workspace at a path, and raise if the token is that of another workspace."""
        if own is None:
            return await self._workspaces.at(Path(path))
        located = await self._workspaces.workspaces.finder.find_at(path)
        if located is None or located.workspace.path != own.path:
            raise RookeryError(
                "forbidden", f"the token of {own.name} gives access to that workspace only", "leave out workspacePath"
            )
        return own

    async def _find_token_workspace(self, principal: Principal) -> Workspace | None:
        """Return the workspace of a token, wherever its folder is now; None for other tokens."""
        if principal.workspace is None:
            return None
        located = await self._workspaces.workspaces.finder.find_by_git_folder(principal.workspace)
        if located is None:
            raise _workspace_deleted()
        return located.workspace


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
