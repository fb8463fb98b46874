"""Select the view of a request by path, header and query, and check that its token gives access to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote

from starlette.types import Scope

from rookery.gateway.names import BARE, NamingStyle
from rookery.gateway.unavailable import Absence
from rookery.operations.operation import ADMIN_TOOLSET
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import Principal
from rookery.wire.http.head import RequestHead
from rookery.workspaces.lookup import LocatedWorkspace

_OPTIONS = {
    "prefix": ("always", "conflict", "never"),
    "names": ("rookery", "opencode"),
    "mode": ("list", "search"),
}

HEADER = b"x-workspace-path"
_MAX_PATH_BYTES = 4096
# The toolsets at a workspace's own endpoint; agents use the app-wide endpoint, with the toolsets of the settings.
_WORKSPACE_TOOLSETS = frozenset({"project", "workspace"})
# The toolsets that a view has only if its query names them.
_ON_REQUEST = frozenset({ADMIN_TOOLSET})
# The toolset that stands for the configured servers where toolsets are selected.
_HUB = "hub"


@dataclass(frozen=True)
class ViewQuery:
    """The options of a query; None where an option is not set."""

    style: NamingStyle = field(default_factory=NamingStyle)
    toolsets: frozenset[str] | None = None
    search: bool | None = None


def parse_view_query(query: bytes) -> ViewQuery:
    """Parse a query: `?prefix=` and `?names=` set how tools are named, `?toolsets=` selects Rookery's own tools.

    With `?mode=search`, tools are searched instead of listed.
    """
    if not query:
        return ViewQuery()
    # `?toolsets=` without a value selects no toolset.
    options = {key: values[-1] for key, values in parse_qs(query.decode("latin-1"), keep_blank_values=True).items()}
    for key, allowed in _OPTIONS.items():
        if key in options and options[key] not in allowed:
            raise RookeryError("invalid-input", f"?{key}= is one of {', '.join(allowed)}, not {options[key]!r}")
    prefix: Any = options.get("prefix", "always")
    style = NamingStyle(prefix, "_" if options.get("names") == "opencode" else "__")
    toolsets = frozenset(options["toolsets"].split(",")) if "toolsets" in options else None
    return ViewQuery(style, toolsets, options["mode"] == "search" if "mode" in options else None)


@dataclass(frozen=True)
class ViewChoice:
    """What selects a view. `missing` says why the requested workspace is not available.

    `scope` is the only workspace that the client may see; None for the owner, who may see all.
    """

    directory: Path | None
    server: str | None = None
    style: NamingStyle = field(default_factory=NamingStyle)
    toolsets: frozenset[str] = frozenset()
    servers: bool = True
    missing: Absence | None = None
    scope: Path | None = None
    # Whether tools are searched instead of listed.
    search: bool = False


class WorkspaceLookup(Protocol):
    """Finds workspaces by project and name, by path, or by their own git folder; None if there is none.

    `has_token` returns whether the token of a workspace belongs to the workspace that is at its path now.
    """

    @property
    def has_token(self) -> Callable[[Path], bool]: ...

    async def find(self, project: str, name: str) -> LocatedWorkspace | None: ...

    async def find_at(self, path: str) -> LocatedWorkspace | None: ...

    async def explain_missing(self, path: str) -> RookeryError: ...

    async def find_by_git_folder(self, own: Path) -> LocatedWorkspace | None: ...


@dataclass(frozen=True)
class ViewSelector:
    """Selects views. `toolsets` are all toolsets, `agents` those for agents, `search` the default mode."""

    lookup: WorkspaceLookup
    toolsets: frozenset[str]
    agents: frozenset[str]
    search: bool = False

    async def choose(self, scope: Scope, prefix: str) -> ViewChoice:
        """Return the choice for a request.

        `prefix` is the path without its last segment, with all names percent-encoded in the same way.
        """
        principal: Principal = scope["state"]["principal"]
        view_query = parse_view_query(scope["query_string"])
        if principal.workspace is not None and not self.lookup.has_token(principal.workspace):
            raise _forbidden()
        if prefix:
            return await self._by_path(principal, prefix, view_query)
        headers = RequestHead.from_headers(scope["headers"]).all(HEADER)
        path = _decode_header(headers) if headers else None
        located = await self._by_header(principal, path)
        offered, servers = self._available(principal)
        if principal.kind == "loopback" and not headers:
            raise RookeryError(
                "invalid-input",
                "name a workspace with X-Workspace-Path or by its path; everything else requires a token",
            )
        if located is None and not headers and principal.workspace is None:
            return ViewChoice(
                None,
                None,
                view_query.style,
                self._limit_toolsets(offered, view_query),
                servers,
                search=self._is_search(view_query),
            )
        directory = located.workspace.path if located is not None and _exists(located) else None
        missing = await self._explain_absence(path, is_registered=located is not None) if directory is None else None
        visible = directory if principal.kind != "owner" else None
        toolsets = self._limit_toolsets(offered, view_query)
        search = self._is_search(view_query)
        return ViewChoice(directory, None, view_query.style, toolsets, servers, missing, visible, search)

    def _available(self, principal: Principal) -> tuple[frozenset[str], bool]:
        """Return the toolsets for a principal at the app-wide endpoint, and whether it may use servers."""
        if principal.kind == "loopback":
            return _WORKSPACE_TOOLSETS, False
        if principal.workspace is None:
            return self.toolsets, True
        return self.agents - _ON_REQUEST, _HUB in self.agents

    async def _by_header(self, principal: Principal, path: str | None) -> LocatedWorkspace | None:
        """Return the workspace of the header, else that of the token. Raise if the token is for another one."""
        token_workspace = principal.workspace
        if path is None:
            return await self.lookup.find_by_git_folder(token_workspace) if token_workspace is not None else None
        located = await self._find_at(path)
        if token_workspace is not None and (located is None or located.git_folder != token_workspace):
            raise _forbidden()
        return located

    async def _find_at(self, path: str) -> LocatedWorkspace | None:
        """Return the workspace at a path, tried literally first: the name of a folder may contain a percent sign."""
        located = await self.lookup.find_at(path) if path.startswith("/") else None
        if located is not None:
            return located
        try:
            decoded = unquote(path, errors="strict")
        except UnicodeDecodeError:
            raise RookeryError("invalid-input", "X-Workspace-Path is not valid UTF-8") from None
        if not decoded.startswith("/") or "\0" in decoded:
            raise RookeryError("invalid-input", "X-Workspace-Path must be an absolute path")
        return await self.lookup.find_at(decoded) if decoded != path else None

    async def _explain_absence(self, path: str | None, *, is_registered: bool) -> Absence:
        """Return why there is no workspace to act in.

        Only the owner, or the workspace itself, gets here with a path.
        """
        if path is None:
            message = "the workspace of this token no longer has a folder"
            return Absence("workspace-not-found", message, "register its repository: rookery project add PATH")
        # As in `_find_at`: literally first.
        for spelling in dict.fromkeys((path, unquote(path))) if not is_registered else ():
            error = await self.lookup.explain_missing(spelling) if spelling.startswith("/") else None
            if error is not None and error.code == "project-not-found":
                return Absence.of(error)
        # The same for all such paths, so that they share one endpoint.
        message = "no workspace is registered at the path in X-Workspace-Path"
        return Absence("workspace-not-found", message, "list the workspaces: rookery ws list")

    async def _by_path(self, principal: Principal, prefix: str, view_query: ViewQuery) -> ViewChoice:
        """Return the choice for a path of a workspace's endpoint, or of one of its servers."""
        style = view_query.style
        toolsets = self._limit_toolsets(_WORKSPACE_TOOLSETS, view_query)
        search = self._is_search(view_query)
        # Every name is one percent-encoded segment.
        match prefix.split("/")[2:]:
            case [project, workspace]:
                server = None
            case [project, workspace, "s", server] if server:
                server = unquote(server)
                style = BARE
                toolsets = frozenset[str]()
                # At the endpoint of a single server, tools are listed unless the query says otherwise.
                search = view_query.search or False
            case _:
                raise RookeryError("route-not-found", "there is no endpoint at this path")
        if principal.kind == "loopback" and server is not None:
            raise RookeryError("forbidden", "the endpoint of a single server requires a token")
        located = await self.lookup.find(unquote(project), unquote(workspace))
        if principal.workspace is not None and (located is None or located.git_folder != principal.workspace):
            raise _forbidden()
        if located is None or not _exists(located):
            raise RookeryError("workspace-not-found", f"there is no workspace {project}/{workspace}")
        visible = located.workspace.path if principal.kind != "owner" else None
        servers = principal.kind != "loopback"
        return ViewChoice(located.workspace.path, server, style, toolsets, servers, scope=visible, search=search)

    async def is_taken(self, prefix: str) -> bool:
        """Return whether a workspace has the name in this path now."""
        names = [unquote(part) for part in prefix.split("/")[2:4]]
        return len(names) == 2 and await self.lookup.find(*names) is not None

    def default_choice(self, directory: Path) -> ViewChoice:
        """Return the choice for a workspace's own endpoint without a query."""
        view_query = ViewQuery()
        return ViewChoice(
            directory,
            toolsets=self._limit_toolsets(_WORKSPACE_TOOLSETS, view_query),
            search=self._is_search(view_query),
        )

    def _limit_toolsets(self, offered: frozenset[str], view_query: ViewQuery) -> frozenset[str]:
        available = self.toolsets & offered
        return available - _ON_REQUEST if view_query.toolsets is None else available & view_query.toolsets

    def _is_search(self, view_query: ViewQuery) -> bool:
        return self.search if view_query.search is None else view_query.search


def encode_endpoint_path(parts: Sequence[str]) -> str:
    """Return the path of these parts, each percent-encoded in the same way."""
    return "/".join(quote(unquote(part), safe="@") for part in parts)


def _exists(located: LocatedWorkspace) -> bool:
    return located.workspace.state not in ("missing", "deleting")


def _decode_header(values: Sequence[bytes]) -> str:
    """Return the value of `X-Workspace-Path`, which may be percent-encoded. It authorises nothing."""
    if len(values) > 1 or len(values[0]) > _MAX_PATH_BYTES:
        raise RookeryError("invalid-input", f"send X-Workspace-Path once, with at most {_MAX_PATH_BYTES} bytes")
    try:
        return values[0].decode()
    except UnicodeDecodeError:
        raise RookeryError("invalid-input", "X-Workspace-Path is not valid UTF-8") from None


def _forbidden() -> RookeryError:
    return RookeryError("forbidden", "the token of a workspace gives access to that workspace only")
