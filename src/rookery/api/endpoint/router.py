"""The MCP endpoints: each serves the view that a path, a header and a query select.

The endpoint of a request is cached, so that similar requests are routed without a lookup. Clients and traffic of each
workspace's endpoint are counted for all transports.
"""

import asyncio
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Raw
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.api.endpoint.selection import HEADER, ViewChoice, ViewSelector, encode_endpoint_path
from rookery.gateway.audit import NO_RECORDER, CallRecorder
from rookery.gateway.conversations import Conversations
from rookery.gateway.elicitation import ParkedCalls
from rookery.gateway.hooks import Hooks
from rookery.gateway.provider import CatalogProvider
from rookery.gateway.rules import ToolPolicy
from rookery.gateway.search.view import SearchableView, SearchView, ViewSearch
from rookery.gateway.unavailable import UnavailableView
from rookery.gateway.view import View
from rookery.operations.status import ClientSession
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.config.permissions import Permissions
from rookery.upstreams.hub import Hub
from rookery.upstreams.server_set import ServerSet, ServerSetMembership
from rookery.wire.http.head import RequestHead
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.endpoint import Endpoint
from rookery.wire.server.fastpath import FastPathMatcher
from rookery.wire.server.http_request import HttpRequest
from rookery.wire.server.service import Service
from rookery.wire.server.session import Session
from rookery.wire.server.traffic import Traffic
from rookery.wire.shares import Shares
from rookery.workspaces.model import format_path
from rookery.workspaces.worktrees import read_git_folder

# How long a cached route is used without a check of the folder.
RECHECK_SECONDS = 0.5
_LAST_SEGMENTS = frozenset({"mcp", "sse", "messages", "ws"})
_MAX_ENDPOINTS = 1000
# Fewer than endpoints, so that routes are dropped first: endpoints that are requested after that are in use.
_MAX_ROUTES = 500
# How long calls may continue in a workspace that is closed; one of them may be the client waiting for its deletion.
_DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class ViewDependencies:
    """The dependencies of views."""

    hub: Hub
    hooks: Hooks
    make_policy: Callable[[Permissions], ToolPolicy]
    # Takes the names of toolsets, the workspace that a view acts in, and the only workspace that its client may see;
    # None for no restriction.
    toolsets: Callable[[frozenset[str], Path | None, Path | None, ViewSearch], Sequence[CatalogProvider]]
    # Returns the provider of Rookery's tools for a view in search mode.
    make_search_provider: Callable[[ViewSearch], CatalogProvider]
    info: dict[str, Any]
    parked_calls: ParkedCalls
    shares: Shares
    recorder: CallRecorder = NO_RECORDER
    conversations: Conversations | None = None


@dataclass(slots=True)
class CachedRoute:
    """The cached endpoint of a request. It is valid while the folder is the same worktree, by its `.git` link.

    If the workspace was selected by name, which may be that of a branch, a change of `head` requires a new lookup.
    """

    endpoint: Endpoint
    path: bytes
    link: Path | None
    link_mark: tuple[int, ...] | None
    head: Path | None = None
    head_mark: tuple[int, ...] | None = None
    checked_at: float = 0.0
    clock: Clock = SYSTEM_CLOCK

    def is_valid(self) -> bool:
        """Return whether the route is still valid.

        The check is made at intervals only: a worktree that Rookery deletes is removed from the cache immediately.
        """
        if self.link is None or (now := self.clock.monotonic()) < self.checked_at + RECHECK_SECONDS:
            return True
        if self.is_gone or (self.head is not None and read_link_mark(self.head) != self.head_mark):
            # `checked_at` is not set, so that the next request gets the same result.
            return False
        self.checked_at = now
        return True

    @property
    def is_gone(self) -> bool:
        """Whether the worktree is gone, or another one is at its path."""
        return self.link is not None and read_link_mark(self.link) != self.link_mark

    def renew(self) -> "CachedRoute":
        """Keep the route after a change of branch, because no other workspace has its name."""
        self.head_mark = read_link_mark(self.head) if self.head is not None else None
        return self


def find_head_file(directory: Path | None) -> Path | None:
    """Return the file that git rewrites when another branch is checked out; None without a repository."""
    own = read_git_folder(directory) if directory is not None else None
    return own / "HEAD" if own is not None else None


def route_key(scope: Scope) -> tuple[object, ...]:
    """Return everything that selects an endpoint: path, query, token, port and header."""
    state = scope["state"]
    principal = state["principal"]
    headers = RequestHead.from_headers(scope["headers"]).all(HEADER)
    return (
        scope["raw_path"],
        scope["query_string"],
        principal.kind,
        principal.workspace,
        state.get("find_path"),
        *headers,
    )


def find_fast_path(routes: Mapping[tuple[object, ...], CachedRoute], scope: Scope) -> FastPathMatcher | None:
    """Return a matcher for similar requests, which is valid while their route does not change; None without a route."""
    key = route_key(scope)
    route = routes.get(key)
    if route is None:
        return None
    return route.endpoint.find_fast_path(scope, route.path, lambda: routes.get(key) is route and route.is_valid())


def read_link_mark(link: Path) -> tuple[int, ...] | None:
    """Return what distinguishes one `.git` from another; None if there is none.

    In a main checkout it is a folder, whose time changes with its content, so the time is not used.
    """
    try:
        status = link.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns


class EndpointUsage:
    """The clients and traffic of one workspace, over all its endpoints."""

    def __init__(self, on_changed: Callable[[], None]) -> None:
        self.traffic = Traffic(on_changed)
        self._endpoints: list[Service] = []
        # The endpoints of single servers: an agent has a session at each of them.
        self._single: list[Service] = []

    def record(self, server: str | None) -> Traffic:
        """Return the record of an endpoint's messages; `server` is set for the endpoint of a single server."""
        return self.traffic if server is None else Traffic(self.traffic.on_changed, server=server, shared=self.traffic)

    def add(self, endpoint: Service, server: str | None) -> None:
        """Count the clients of an endpoint."""
        self._endpoints, self._single = _list_active(self._endpoints), _list_active(self._single)
        (self._endpoints if server is None else self._single).append(endpoint)

    @property
    def clients(self) -> int:
        """The number of open sessions and connections, and of clients without one.

        A client without one counts if it made a request in the last minute or still listens. A client that uses several
        servers at their own endpoints counts once, and not at all if it uses an endpoint with all servers too.
        """
        endpoints = _list_active(self._endpoints)
        single = _list_active(self._single)
        stateless = self.traffic.list_present().union(*(endpoint.listeners() for endpoint in [*endpoints, *single]))
        only_single = _list_clients(single) - _list_clients(endpoints)
        return sum(endpoint.count_connected for endpoint in endpoints) + len(stateless) + len(only_single)


def _list_active(endpoints: Sequence[Service]) -> list[Service]:
    return [endpoint for endpoint in endpoints if not endpoint.is_closing]


def _list_clients(endpoints: Sequence[Service]) -> set[tuple[str, str]]:
    """Return the clients with a session, by their token and by what they call themselves."""
    return {
        (session.owner, str(session.client.info.get("name")))
        for endpoint in endpoints
        for session in endpoint.sessions.list_current()
    }


class UsageTable:
    """The usage of all workspaces. `on_changed` is called with a directory whose clients may have changed."""

    def __init__(self) -> None:
        self.on_changed: Callable[[Path], None] = lambda directory: None
        self._usages: dict[Path, EndpointUsage] = {}

    def get(self, directory: Path) -> EndpointUsage:
        """Return the usage of a workspace, created when it is first needed."""
        if directory not in self._usages:
            self._usages[directory] = EndpointUsage(lambda: self.on_changed(directory))
        return self._usages[directory]

    def clients(self, directory: Path) -> int:
        return self._usages[directory].clients if directory in self._usages else 0

    def traffic(self, directory: Path) -> Traffic:
        """Return the record of the last messages of a workspace's endpoints."""
        return self.get(directory).traffic

    def forget(self, directory: Path) -> None:
        if (usage := self._usages.pop(directory, None)) is not None:
            usage.traffic.log.wake()


OpenEndpoint = tuple[Endpoint, View | UnavailableView]
# Returns the current path of an endpoint without its last segment: the name of a workspace may change.
FindEndpointPath = Callable[[], Awaitable[str]]


class EndpointRouter:
    """Routes MCP requests to endpoints, and all others to the REST routes. An ASGI app."""

    def __init__(
        self, dependencies: ViewDependencies, selector: ViewSelector, rest: ASGIApp, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._dependencies = dependencies
        self._clock = clock
        self._selector = selector
        self._rest = rest
        # Endpoints are reused; the least recently used comes first.
        self._endpoints: OrderedDict[tuple[ViewChoice, str], OpenEndpoint] = OrderedDict()
        # Routes by path, query, token, port and header.
        self._routes: dict[tuple[object, ...], CachedRoute] = {}
        self._closing: set[Endpoint] = set()
        self.usages = UsageTable()
        self._tasks = TaskSet("endpoints")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        # Set for the port of a single workspace.
        find_path: FindEndpointPath | None = scope["state"].get("find_path")
        key = route_key(scope)
        route = self._routes.get(key)
        if route is None or not route.is_valid():
            prefix, _, last_segment = raw.decode("latin-1").rpartition("/")
            if last_segment not in _LAST_SEGMENTS or (prefix and not prefix.startswith("/w/")):
                await self._rest(scope, receive, send)
                return
            try:
                # Normalised, because clients differ in the characters that they encode.
                prefix = encode_endpoint_path(prefix.split("/")) if find_path is None else await find_path()
                route = await self._find(scope, key, prefix, last_segment)
            except RookeryError as error:
                status = 403 if error.code == "forbidden" else 404 if error.code.endswith("-not-found") else 400
                await HttpRequest(scope, receive, send).refuse(status, WireError(INVALID_REQUEST, error.message))
                return
        scope["raw_path"] = route.path
        await route.endpoint(scope, receive, send)

    def find_fast_path(self, scope: Scope) -> FastPathMatcher | None:
        """Return a matcher that routes similar requests without this app; None without a cached route."""
        return find_fast_path(self._routes, scope)

    async def _find(self, scope: Scope, key: tuple[object, ...], prefix: str, last_segment: str) -> CachedRoute:
        """Select the endpoint of a request and cache the route."""
        if (cached := self._routes.pop(key, None)) is not None and cached.link is not None:
            if cached.is_gone:
                # The worktree was deleted or replaced by another program.
                self.retire(directory := cached.link.parent, "the workspace is gone")
                await self._dependencies.hub.release(directory)
            elif not await self._selector.is_taken(prefix):
                self._routes[key] = cached.renew()
                return cached
        choice = await self._selector.choose(scope, prefix)
        link = choice.directory / ".git" if choice.directory is not None else None
        mark = read_link_mark(link) if link is not None else None
        # The port of a workspace is not looked up by name.
        head = find_head_file(choice.directory) if prefix and "find_path" not in scope["state"] else None
        branch = read_link_mark(head) if head is not None else None
        endpoint, _ = await self._get_endpoint(choice, prefix)
        path = f"{prefix}/{last_segment}".encode()
        route = CachedRoute(endpoint, path, link, mark, head, branch, clock=self._clock)
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        # A workspace that does not exist now may exist at the next request.
        if choice.missing is None:
            self._routes[key] = route
        return route

    def knows_session(self, session: str) -> bool:
        return any(session in endpoint.service.sessions for endpoint, _ in self._endpoints.values())

    def clients(self) -> list[ClientSession]:
        """Return all clients that have a session."""
        return [
            _format_client(session, choice.directory, beside)
            for (choice, beside), (endpoint, _) in self._endpoints.items()
            for session in endpoint.service.sessions.list_current()
        ]

    def retire(self, directory: Path, reason: str) -> bool:
        """Close the endpoints of a workspace when its calls have ended or timed out; return whether any was in use.

        New requests are routed again.
        """
        keys = [key for key in self._endpoints if key[0].directory == directory]
        self._routes.clear()
        self.usages.forget(directory)
        used = False
        for key in keys:
            endpoint, view = self._endpoints.pop(key)
            used = used or not endpoint.service.is_idle
            self._closing.add(endpoint)
            self._tasks.start(self._drain(endpoint, view, reason), "drain")
        return used

    async def _drain(self, endpoint: Endpoint, view: View | UnavailableView, reason: str) -> None:
        """Wait for the running calls of an endpoint, and close it."""
        if calls := endpoint.service.running_calls():
            await asyncio.wait(calls, timeout=_DRAIN_SECONDS)
        endpoint.close(reason)
        view.close()
        self._closing.discard(endpoint)

    def close(self) -> None:
        """End every call and every stream. The listener is stopped afterwards."""
        for endpoint in self._closing:
            endpoint.close()
        for endpoint, view in self._endpoints.values():
            endpoint.close()
            view.close()

    async def tools(self, directory: Path, prefix: str) -> Raw:
        """Return the tools of a workspace's endpoint as far as they are known; no server is started."""
        _, view = await self._get_endpoint(self._selector.default_choice(directory), prefix)
        assert isinstance(view, View)
        return view.table(None).lists["tools/list"]

    async def _get_endpoint(self, choice: ViewChoice, prefix: str) -> OpenEndpoint:
        """Return the endpoint of a choice, created when it is first needed."""
        key = choice, prefix
        if key not in self._endpoints:
            server_set = await self._dependencies.hub.server_set(choice.directory)
            if choice.server:
                server_set.find(choice.server)
            # Another request may have created the same endpoint meanwhile.
            if key not in self._endpoints:
                self._endpoints[key] = self._make(choice, prefix, server_set)
                self._close_unused()
        self._endpoints.move_to_end(key)
        return self._endpoints[key]

    def _make(self, choice: ViewChoice, prefix: str, server_set: ServerSet) -> OpenEndpoint:
        dependencies = self._dependencies
        view_search = ViewSearch()
        toolsets = dependencies.toolsets(choice.toolsets, choice.directory, choice.scope, view_search)
        if choice.missing is not None:
            unavailable = UnavailableView(toolsets, dependencies.info, choice.missing)
            return Endpoint(unavailable, f"{prefix}/mcp", shares=dependencies.shares), unavailable
        members = ServerSetMembership(server_set, dependencies.make_policy, toolsets, choice.server, choice.servers)
        kind = SearchView if choice.search else SearchableView
        view = view_search.view = kind(
            members,
            choice.style,
            dependencies.info,
            dependencies.hooks,
            dependencies.parked_calls,
            dependencies.recorder,
            dependencies.conversations,
        )
        if isinstance(view, SearchView):
            view.finder = dependencies.make_search_provider(view_search)
        # Usage is counted for the workspace's own endpoint, and for every endpoint that is used with its token, as its
        # agent does. What the owner does elsewhere is not the workspace's.
        is_counted = (prefix and not choice.server) or choice.scope is not None
        usage = self.usages.get(choice.directory) if choice.directory and is_counted else None
        endpoint = Endpoint(
            view,
            f"{prefix}/mcp",
            on_session_end=lambda session: dependencies.hub.end_session(session.id),
            traffic=usage.record(choice.server) if usage is not None else None,
            shares=dependencies.shares,
        )
        if usage is not None:
            usage.add(endpoint.service, choice.server)
        return endpoint, view

    def _close_unused(self) -> None:
        """Close the least recently used endpoints above the limit.

        Endpoints in use are kept, whatever their number: that costs less than disconnecting a client.
        """
        unused = [key for key, (endpoint, _) in self._endpoints.items() if endpoint.service.is_idle]
        for key in unused[: max(0, len(self._endpoints) - _MAX_ENDPOINTS)]:
            endpoint, view = self._endpoints.pop(key)
            self._routes.clear()
            endpoint.close()
            view.close()


def _format_client(session: Session, directory: Path | None, prefix: str) -> ClientSession:
    info = session.client.info
    return ClientSession(
        session=session.id,
        name=str(info.get("name", "")),
        version=str(info.get("version", "")),
        revision=session.client.revision,
        workspace=format_path(directory) if directory is not None else None,
        path=f"{prefix}/mcp",
    )
