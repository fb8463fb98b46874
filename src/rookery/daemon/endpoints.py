"""Each open workspace has an MCP server on a port of its own, which serves what its endpoint on the app port serves."""

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rookery.api.doors import Doors
from rookery.api.status import State, Tool, place_of
from rookery.daemon.endpoint_ports import EndpointPorts, own_of
from rookery.daemon.endpoint_server import WorkspaceServer
from rookery.daemon.endpoint_tools import tools_in
from rookery.daemon.follow import follow
from rookery.daemon.gateway import GatewayService
from rookery.daemon.settings import Settings
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.wire.gate import Tokens
from rookery.wire.traffic import Line
from rookery.workspaces.record import Workspace, as_text

logger = logging.getLogger("rookery.endpoints")

# Clients come and go in crowds; they are told of together.
_TELL_SECONDS = 0.2
# Clients that were only seen go without a word.
_LOOK_AGAIN_SECONDS = 60.0
# A little more than the endpoint behind it gives to calls that are under way.
_DRAIN_SECONDS = 65.0


class EndpointsService:
    """A companion of workspaces. It starts none before it is started itself."""

    name = "endpoints"
    needs: Sequence[str] = ("http",)

    def __init__(
        self, settings: Settings, store: Store, tokens: Tokens, doors: Doors, gateway: GatewayService, events: Bus
    ) -> None:
        self._settings, self._tokens, self._doors = settings, tokens, doors
        self._gateway, self._taken, self._events = gateway, gateway.hub.workspace_ports, events
        self._ports = EndpointPorts(store, settings.endpoints.first_port)
        # By the workspace's own git folder, which stays the same when the workspace is moved.
        self._servers: dict[Path, WorkspaceServer] = {}
        self._told: dict[Path, State] = {}
        self._timers: dict[Path, asyncio.TimerHandle] = {}
        self._listed: dict[Path, tuple[Raw, list[Tool]]] = {}
        self._tasks = TaskSet("endpoints")
        self._works = False
        doors.usages.changed = self._clients_changed

    async def start(self) -> None:
        self._works = True
        self._tasks.start(follow(self._events, self._heard), "projects")

    async def stop(self) -> None:
        """Whoever is connected is told that the daemon stops."""
        self._works = False
        for timer in self._timers.values():
            timer.cancel()
        self._doors.close()
        seconds = self._settings.daemon.stop_seconds / 3
        await asyncio.gather(*(server.stop(seconds) for server in self._servers.values()))
        await self._tasks.close()

    # ---- with its workspace

    async def opened(self, workspace: Workspace) -> None:
        own = own_of(workspace.path)
        key = own or workspace.path
        if not self._works or key in self._servers:
            return
        server = self._servers[key] = WorkspaceServer(workspace, self._doors, self._tokens, self._settings)
        try:
            if own is None:
                raise RookeryError("workspace-not-found", f"{workspace.path} is no worktree", "bring its folder back")
            await server.start(await self._ports.hold(own), functools.partial(self._place, own))
        except (RookeryError, OSError) as error:
            server.failed(error)
        if self._servers.get(key) is not server or not self._works:
            # It was closed while its port was chosen.
            await server.stop(0)
            return
        self._taken |= {server.port} if server.port is not None else set()
        if server.error is not None:
            logger.warning("the MCP server of %s: %s", workspace.path, server.error)
        self._tell(key)

    async def closed(self, workspace: Workspace) -> bool:
        """Its port is free after this; calls that are under way, such as one to close it, may still be answered."""
        if (key := self._key(as_text(workspace.path))) is not None:
            self._close(key)
        return False  # nothing of it was in the folder

    def _close(self, key: Path) -> None:
        server = self._servers.pop(key)
        self._listed.pop(key, None)
        self._taken.discard(server.port or 0)
        server.leave()
        self._tasks.start(server.stop(_DRAIN_SECONDS), f"drain {server.workspace.name}")
        self._tell(key, server.workspace)

    async def _heard(self, event: Event) -> None:
        if event.type == "project.removed":
            for key, server in list(self._servers.items()):
                if server.workspace.project.path == event.data["project"]["path"]:
                    self._close(key)

    async def _place(self, own: Path) -> str:
        """Where its endpoint is on the app port: by the name that it has now."""
        found = await self._gateway.lookup.with_own(own)
        if found is None:
            raise RookeryError("workspace-not-found", "the workspace of this port is gone")
        if own in self._servers:
            self._seen(own, found.workspace)
        return place_of(found.workspace.project.id, found.workspace.name)

    # ---- what is told

    def state(self, shown: Mapping[str, Any]) -> State:
        if (key := self._key(shown["path"])) is not None:
            return self._state(self._servers[key])
        return State(connected_clients=self._doors.usages.clients(Path(shown["path"])))

    def _state(self, server: WorkspaceServer) -> State:
        clients = self._doors.usages.clients(server.workspace.path)
        return State(server.running, server.port, server.url, clients, server.error)

    async def tools(self, shown: Mapping[str, Any]) -> Sequence[Tool]:
        if (key := self._key(shown["path"])) is None:
            return []
        directory = self._servers[key].workspace.path
        try:
            listed = await self._doors.tools(directory, place_of(shown["project"], shown["name"]))
        except RookeryError:
            return []
        known = self._listed.get(key)
        if known is None or known[0] is not listed:
            known = listed, tools_in(listed)
            if key in self._servers:
                self._listed[key] = known
        return known[1]

    def traffic(self, shown: Mapping[str, Any]) -> Sequence[Line]:
        key = self._key(shown["path"])
        return self._doors.usages.lines(self._servers[key].workspace.path if key is not None else Path(shown["path"]))

    def _key(self, shown: str) -> Path | None:
        """Whose path this is. A workspace that was moved is known by its git folder, and is there from now on."""
        there = [key for key, one in self._servers.items() if as_text(one.workspace.path) == shown]
        # Its path may be no text, and is not what is shown then.
        path = self._servers[there[0]].workspace.path if there else Path(shown)
        if (own := own_of(path)) is None:
            return next(iter(there), None)
        if own not in self._servers:
            return path if path in self._servers else None
        self._seen(own, msgspec.structs.replace(self._servers[own].workspace, path=path))
        return own

    def _seen(self, own: Path, workspace: Workspace) -> None:
        """How a workspace is now. What was made for it where it was before goes."""
        server = self._servers[own]
        before, server.workspace = server.workspace, workspace
        if before.path != workspace.path and own_of(before.path) is None:
            self._tasks.start(self._gateway.let_go(before.path, f"{workspace.name} was moved"), "moved")

    def _clients_changed(self, directory: Path) -> None:
        if self._works and (key := self._key(as_text(directory))) is not None:
            self._tell_in(key, _TELL_SECONDS)

    def _tell_in(self, key: Path, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            if timer is not None:
                timer.cancel()
            self._timers[key] = loop.call_later(seconds, self._tell, key)

    def _tell(self, key: Path, closed: Workspace | None = None) -> None:
        """Publish what is different from the last time."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        workspace = closed or self._servers[key].workspace
        told = {"project": workspace.project.id, "name": workspace.name, "path": as_text(workspace.path)}
        state = self._state(self._servers[key]) if closed is None else State()
        if state != self._told.get(key, State()):
            self._events.publish("workspace.mcp", **told, mcp=msgspec.structs.asdict(state))
        self._told[key] = state
        if closed is not None:
            del self._told[key]
        elif state.connected_clients:
            self._tell_in(key, _LOOK_AGAIN_SECONDS)
