"""Runs an MCP server for each open workspace, on a port of its own, with the same view as on the app port."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from starlette.types import Receive, Scope, Send

from rookery.api.endpoint.router import EndpointRouter, FindEndpointPath
from rookery.daemon.callers import Callers
from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.services.core import listen_on_port, listener_limits
from rookery.daemon.services.endpoint_ports import BoundPort, EndpointPorts, resolve_git_folder
from rookery.daemon.services.gateway import GatewayService
from rookery.daemon.settings.schema import Settings
from rookery.operations.status import EndpointState, EndpointTool, endpoint_path
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.wire.http.listener import LOOPBACK_ADDRESS, Listener
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.fastpath import FastPathMatcher
from rookery.wire.server.http_request import HttpRequest
from rookery.wire.server.traffic import Traffic
from rookery.wire.shares import Shares
from rookery.workspaces.model import Workspace, format_path

logger = logging.getLogger("rookery.mcp.endpoints")

# Clients connect and disconnect in groups; their changes are published together.
_PUBLISH_DELAY_SECONDS = 0.2
# Clients without a session leave without notice, so the state is checked again.
_RECHECK_SECONDS = 60.0
# A little more than the endpoint gives to calls in progress.
_DRAIN_SECONDS = 65.0
_PATHS = frozenset({b"/mcp", b"/sse", b"/messages", b"/ws"})
_NOT_FOUND = WireError(
    INVALID_REQUEST, "there is nothing at this path; the MCP server of a workspace serves /mcp, /sse and /ws"
)
# The share of the file descriptors of this process; there may be many such servers.
_SHARE = 16
_LEAST_CONNECTIONS = 64


class EndpointRoot:
    """An ASGI app that serves one endpoint of the router at the root, and nothing else."""

    def __init__(self, router: EndpointRouter, find_path: FindEndpointPath) -> None:
        self._router = router
        self._find_path = find_path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"] not in _PATHS:
            return HttpRequest(scope, receive, send).refuse(404, _NOT_FOUND)
        scope["state"]["find_path"] = self._find_path
        return self._router(scope, receive, send)

    def find_fast_path(self, scope: Scope) -> FastPathMatcher | None:
        scope["state"]["find_path"] = self._find_path
        return self._router.find_fast_path(scope)


class WorkspaceServer:
    """The MCP server of one workspace. `error` says why it does not run, or what else the user has to know."""

    def __init__(
        self, workspace: Workspace, router: EndpointRouter, callers: Callers, settings: Settings, shares: Shares
    ) -> None:
        self._shares = shares
        self.workspace = workspace
        self.port: int | None = None
        self.error: str | None = None
        self._router = router
        self._callers = callers
        self._settings = settings
        self._listener: Listener | None = None

    @property
    def is_running(self) -> bool:
        return self.port is not None

    @property
    def url(self) -> str | None:
        return f"http://{LOOPBACK_ADDRESS}:{self.port}/mcp" if self.port is not None else None

    async def start(self, bound: BoundPort, find_path: FindEndpointPath) -> None:
        """Serve on a socket that is already bound."""
        limits = listener_limits(self._settings, _SHARE, _LEAST_CONNECTIONS)
        listener = listen_on_port(
            bound.socket, EndpointRoot(self._router, find_path), self._callers, limits, self._shares
        )
        try:
            await listener.start()
        except BaseException:
            bound.socket.close()
            raise
        self._listener = listener
        self.port = bound.port
        if bound.previous is not None:
            self.error = (
                f"port {bound.previous} is in use by another program; the server now uses {bound.port}: "
                "update the configs of clients with rookery client install"
            )

    def set_error(self, error: Exception) -> None:
        """Record why the server could not be started."""
        parts = [error.message, error.remedy] if isinstance(error, RookeryError) else [str(error)]
        self.error = "; ".join(filter(None, parts))

    def release_port(self) -> None:
        """Release the port; requests in progress are still served."""
        self.port = None
        if self._listener is not None:
            self._listener.stop_accepting()

    async def stop(self, seconds: float) -> None:
        self.port = None
        if self._listener is not None:
            await self._listener.stop(seconds)


class _ListedTool(msgspec.Struct):
    name: str
    description: Any = ""
    inputSchema: Any = None


class _ToolList(msgspec.Struct):
    tools: list[_ListedTool]


def decode_tools(listed: Raw) -> list[EndpointTool]:
    """Return the tools of a response to tools/list, with defaults for missing descriptions and schemas."""
    tools = msgspec.json.decode(listed, type=_ToolList).tools
    return [EndpointTool(tool.name, str(tool.description or ""), tool.inputSchema or {}) for tool in tools]


class EndpointsService:
    """Opens and closes the MCP servers of workspaces with them, from its own start on."""

    name = "endpoints"
    needs: Sequence[str] = ("http",)

    def __init__(
        self,
        settings: Settings,
        store: Store,
        callers: Callers,
        router: EndpointRouter,
        shares: Shares,
        gateway: GatewayService,
        events: Bus,
    ) -> None:
        self._shares = shares
        self._settings = settings
        self._callers = callers
        self._router = router
        self._gateway = gateway
        self._used_ports = gateway.hub.workspace_ports
        self._events = events
        self._ports = EndpointPorts(store, settings.endpoints.first_port)
        # By the workspace's own git folder, which stays the same when the workspace is moved.
        self._servers: dict[Path, WorkspaceServer] = {}
        self._published: dict[Path, EndpointState] = {}
        self._timers: dict[Path, asyncio.TimerHandle] = {}
        self._listed: dict[Path, tuple[Raw, list[EndpointTool]]] = {}
        self._tasks = TaskSet("endpoints")
        self._is_started = False
        router.usages.on_changed = self._on_clients_changed

    async def start(self) -> None:
        self._is_started = True
        self._tasks.keep_running(follow_bus(self._events, self._on_event), "projects")

    async def stop(self) -> None:
        """Stop all servers. Connected clients are notified."""
        self._is_started = False
        for timer in self._timers.values():
            timer.cancel()
        self._router.close()
        seconds = self._settings.daemon.stop_seconds / 3
        await asyncio.gather(*(server.stop(seconds) for server in self._servers.values()))
        await self._tasks.close()

    # Opening and closing

    async def on_opened(self, workspace: Workspace) -> None:
        """Start the MCP server of a workspace. A failure is recorded in the server, not raised."""
        own = resolve_git_folder(workspace.path)
        key = own or workspace.path
        if not self._is_started or key in self._servers:
            return
        server = self._servers[key] = WorkspaceServer(
            workspace, self._router, self._callers, self._settings, self._shares
        )
        try:
            if own is None:
                raise RookeryError(
                    "workspace-not-found", f"{workspace.path} is not a git worktree", "restore its folder"
                )
            await server.start(await self._ports.bind(own), functools.partial(self._find_endpoint_path, own))
        except (RookeryError, OSError) as error:
            server.set_error(error)
        if self._servers.get(key) is not server or not self._is_started:
            # The workspace was closed while its port was chosen.
            await server.stop(0)
            return
        self._used_ports |= {server.port} if server.port is not None else set()
        if server.error is not None:
            logger.warning("the MCP server of %s: %s", workspace.path, server.error)
        self._publish_changes(key)

    async def on_closed(self, workspace: Workspace) -> bool:
        """Release the port of a workspace; calls in progress, such as the one that closes it, are still served."""
        if (key := self._find_key(format_path(workspace.path))) is not None:
            self._close(key)
        return False  # no process of the server ran in the folder

    def _close(self, key: Path) -> None:
        server = self._servers.pop(key)
        self._listed.pop(key, None)
        self._used_ports.discard(server.port or 0)
        server.release_port()
        self._tasks.start(server.stop(_DRAIN_SECONDS), f"drain {server.workspace.name}")
        self._publish_changes(key, server.workspace)

    async def _on_event(self, event: Event) -> None:
        if event.type == "project.removed":
            for key, server in list(self._servers.items()):
                if server.workspace.project.path == event.data["project"]["path"]:
                    self._close(key)

    async def _find_endpoint_path(self, git_folder: Path) -> str:
        """Return the path of a workspace's endpoint on the app port, by its current name."""
        located = await self._gateway.lookup.find_by_git_folder(git_folder)
        if located is None:
            raise RookeryError("workspace-not-found", "the workspace of this port no longer exists")
        if git_folder in self._servers:
            self._update_workspace(git_folder, located.workspace)
        return endpoint_path(located.workspace.project.id, located.workspace.name)

    # State and events

    def state(self, workspace: Mapping[str, Any]) -> EndpointState:
        if (key := self._find_key(workspace["path"])) is not None:
            return self._state(self._servers[key])
        return EndpointState(connected_clients=self._router.usages.clients(Path(workspace["path"])))

    def _state(self, server: WorkspaceServer) -> EndpointState:
        clients = self._router.usages.clients(server.workspace.path)
        return EndpointState(server.is_running, server.port, server.url, clients, server.error)

    async def tools(self, workspace: Mapping[str, Any]) -> Sequence[EndpointTool]:
        if (key := self._find_key(workspace["path"])) is None:
            return []
        directory = self._servers[key].workspace.path
        try:
            listed = await self._router.tools(directory, endpoint_path(workspace["project"], workspace["name"]))
        except RookeryError:
            return []
        cached = self._listed.get(key)
        if cached is None or cached[0] is not listed:
            cached = listed, decode_tools(listed)
            if key in self._servers:
                self._listed[key] = cached
        return cached[1]

    def traffic(self, workspace: Mapping[str, Any]) -> Traffic:
        key = self._find_key(workspace["path"])
        return self._router.usages.traffic(
            self._servers[key].workspace.path if key is not None else Path(workspace["path"])
        )

    def _find_key(self, path_text: str) -> Path | None:
        """Return the key of the server at a path. A moved workspace is identified by its git folder, and updated."""
        matches = [key for key, server in self._servers.items() if format_path(server.workspace.path) == path_text]
        # A path that is not valid text is displayed differently, so the server's own is used.
        path = self._servers[matches[0]].workspace.path if matches else Path(path_text)
        if (own := resolve_git_folder(path)) is None:
            return next(iter(matches), None)
        if own not in self._servers:
            return path if path in self._servers else None
        self._update_workspace(own, msgspec.structs.replace(self._servers[own].workspace, path=path))
        return own

    def _update_workspace(self, git_folder: Path, workspace: Workspace) -> None:
        """Update the workspace of a server; if it was moved, release what the gateway holds for the old path."""
        server = self._servers[git_folder]
        previous, server.workspace = server.workspace, workspace
        if previous.path != workspace.path and resolve_git_folder(previous.path) is None:
            self._tasks.start(self._gateway.release(previous.path, f"{workspace.name} was moved"), "moved")

    def _on_clients_changed(self, directory: Path) -> None:
        if self._is_started and (key := self._find_key(format_path(directory))) is not None:
            self._publish_later(key, _PUBLISH_DELAY_SECONDS)

    def _publish_later(self, key: Path, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            if timer is not None:
                timer.cancel()
            self._timers[key] = loop.call_later(seconds, self._publish_changes, key)

    def _publish_changes(self, key: Path, closed: Workspace | None = None) -> None:
        """Publish the state of a server if it has changed since the last time."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        workspace = closed or self._servers[key].workspace
        state = self._state(self._servers[key]) if closed is None else EndpointState()
        previous = self._published.pop(key, EndpointState())
        if closed is None:
            self._published[key] = state
        if state != previous and state.connected_clients:
            self._tasks.start(self._publish_with_tools(key, workspace, state), f"tell of {workspace.name}")
        elif state != previous:
            listed = self._listed.get(key)
            self._publish(workspace, state, listed[1] if listed is not None else [])
        if state.connected_clients:
            self._publish_later(key, _RECHECK_SECONDS)

    async def _publish_with_tools(self, key: Path, workspace: Workspace, state: EndpointState) -> None:
        """Publish the state with the tools of an endpoint that is in use, whose tools are known or soon will be."""
        fields = {"project": workspace.project.id, "name": workspace.name, "path": format_path(workspace.path)}
        tools = await self.tools(fields)
        if self._published.get(key) == state:
            self._publish(workspace, state, tools)

    def _publish(self, workspace: Workspace, state: EndpointState, tools: Sequence[EndpointTool]) -> None:
        fields = {"project": workspace.project.id, "name": workspace.name, "path": format_path(workspace.path)}
        mcp = {**msgspec.structs.asdict(state), "tools": tools, "traffic": self.traffic(fields).lines()}
        self._events.publish("workspace.mcp", **fields, mcp=mcp)
