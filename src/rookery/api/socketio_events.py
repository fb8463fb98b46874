"""What clients of Socket.IO may ask of workspaces, and the shapes of question and answer; nothing else is done here."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from rookery.system.errors import RookeryError
from rookery.wire.gate import Principal
from rookery.workspaces.projects import Project
from rookery.workspaces.record import Workspace
from rookery.workspaces.tools import WorkspaceTools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T", bound="Which")

_LONGEST_PATH = 4096
_NAMED = "api:workspace:"


@dataclass(frozen=True)
class Caller:
    """A connected client, and the workspace that it speaks of where it says no other; `gone` is that of its token."""

    principal: Principal
    path: Path | None
    gone: bool = False


class Which(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    workspace_path: str | None = None


class Metadatum(Which, kw_only=True):
    key: str
    value: str | None


class Deletion(Which, kw_only=True):
    keep_branch: bool = False
    force: bool = False
    wait: bool = False


class Creation(Which, kw_only=True):
    name: str
    project: str | None = None
    base: str | None = None
    branch: str | None = None
    prompt: str | None = None
    agent: bool = True
    wait: bool = False


class WorkspaceEvents:
    def __init__(self, tools: WorkspaceTools) -> None:
        self._tools = tools
        self._known: dict[str, Callable[[Caller, Any], Awaitable[Any]]] = {
            f"{_NAMED}getStatus": self._status,
            f"{_NAMED}getMetadata": self._metadata,
            f"{_NAMED}setMetadata": self._set_metadata,
            f"{_NAMED}getAgentSession": self._agent_session,
            f"{_NAMED}delete": self._delete,
            f"{_NAMED}create": self._create,
        }

    async def caller(self, principal: Principal, auth: object) -> Caller:
        """Who connects; `auth` may name a workspace, which need not exist yet."""
        if auth is not None and not isinstance(auth, dict):
            raise RookeryError("invalid-input", "auth is not an object", "send {workspacePath: …}, or nothing")
        given = _absolute(cast(dict[str, object], auth).get("workspacePath")) if auth else None
        own = await self._own(principal)
        if given is None:
            return Caller(principal, own.path if own is not None else None)
        try:
            return Caller(principal, (await self._at(principal, given)).path)
        except RookeryError as error:
            if not error.code.endswith("-not-found"):
                raise
            return Caller(principal, Path(given))

    async def run(self, caller: Caller, event: str, given: tuple[object, ...]) -> object:
        known = self._known.get(event)
        if known is None:
            raise RookeryError(
                "invalid-input", f"there is no event {event[:100]}", f"use one of {', '.join(self._known)}"
            )
        if caller.gone:
            raise _no_home()
        if len(given) > 1:
            raise RookeryError("invalid-input", f"{event} takes one object", "send it and a function to acknowledge it")
        return msgspec.to_builtins(await known(caller, given[0] if given else None))

    # ---- the events

    async def _status(self, caller: Caller, given: object) -> object:
        return await self._tools.status(await self._which(caller, _read(given, Which)))

    async def _metadata(self, caller: Caller, given: object) -> object:
        return await self._tools.workspaces.metadata(await self._which(caller, _read(given, Which)))

    async def _set_metadata(self, caller: Caller, given: object) -> None:
        asked = _read(given, Metadatum)
        await self._tools.workspaces.set_metadata(await self._which(caller, asked), asked.key, asked.value)

    async def _agent_session(self, caller: Caller, given: object) -> object:
        return await self._tools.session(await self._which(caller, _read(given, Which)))

    async def _delete(self, caller: Caller, given: object) -> object:
        asked = _read(given, Deletion)
        return await self._tools.delete(
            await self._which(caller, asked), force=asked.force, keep_branch=asked.keep_branch, wait=asked.wait
        )

    async def _create(self, caller: Caller, given: object) -> object:
        asked = _read(given, Creation)
        made = await self._tools.create(
            await self._project(caller, asked),
            asked.name,
            base=asked.base,
            branch=asked.branch,
            prompt=asked.prompt,
            agent=asked.agent,
            wait=asked.wait,
        )
        return await self._tools.overview.brief(made)

    # ---- which one

    async def _which(self, caller: Caller, asked: Which) -> Workspace:
        given = _absolute(asked.workspace_path)
        if given is not None:
            return await self._at(caller.principal, given)
        if (own := await self._own(caller.principal)) is not None:
            return own
        if caller.path is None:
            remedy = "send workspacePath, with the event or with auth when you connect"
            raise RookeryError("invalid-input", "no workspace is selected", remedy)
        return await self._tools.at(caller.path)

    async def _at(self, principal: Principal, given: str) -> Workspace:
        own = await self._own(principal)
        if own is None:
            return await self._tools.at(Path(given))
        found = await self._tools.workspaces.finding.find_at(given)
        if found is None or found.workspace.path != own.path:
            raise RookeryError("forbidden", f"the token of {own.name} opens no other place", "leave workspacePath out")
        return own

    async def _own(self, principal: Principal) -> Workspace | None:
        """The workspace of a token, wherever it is now."""
        if principal.workspace is None:
            return None
        found = await self._tools.workspaces.finding.with_own(principal.workspace)
        if found is None:
            raise _no_home()
        return found.workspace

    async def _project(self, caller: Caller, asked: Creation) -> Project:
        """The one that is named, else the one of the caller's workspace, else the only one there is."""
        if asked.project is not None and caller.principal.workspace is None:
            return await self._tools.project(asked.project)
        if caller.path is None and asked.workspace_path is None:
            return await self._tools.project(None)
        own = (await self._which(caller, asked)).project
        if asked.project not in (None, own.id, own.name):
            raise RookeryError("forbidden", f"the token of a workspace opens no other project than {own.id}")
        return own


def _no_home() -> RookeryError:
    return RookeryError("workspace-not-found", "the workspace of this token is gone", "connect with another token")


def _absolute(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith("/") or "\0" in given or len(given) > _LONGEST_PATH:
        raise RookeryError(
            "invalid-input", "workspacePath is no absolute path", f"send one of at most {_LONGEST_PATH} characters"
        )
    return given


def _read(given: object, kind: type[T]) -> T:
    try:
        return msgspec.convert({} if given is None else given, type=kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(one.encode_name for one in msgspec.structs.fields(kind))
        raise RookeryError("invalid-input", f"the request does not fit: {error}", f"send: {fields}") from None
