"""Each open workspace has an MCP server on a port of its own, which serves what its endpoint on the app port serves."""

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from rookery.api.doors import Doors
from rookery.api.status import State, Tool
from rookery.daemon.endpoint_ports import EndpointPorts
from rookery.daemon.endpoint_server import WorkspaceServer
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
from rookery.workspaces.worktrees import named_git_folder

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
        self._lookup, self._taken, self._events = gateway.lookup, gateway.hub.workspace_ports, events
        self._ports = EndpointPorts(store, settings.endpoints.first_port)
        # By the path of the workspace, as it is shown.
        self._servers: dict[str, WorkspaceServer] = {}
        self._told: dict[str, State] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._listed: dict[str, tuple[Raw, list[Tool]]] = {}
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
        key = as_text(workspace.path)
        if not self._works or key in self._servers:
            return
        server = self._servers[key] = WorkspaceServer(workspace, self._doors, self._tokens, self._settings)
        try:
            own = named_git_folder(workspace.path)
            if own is None:
                raise RookeryError("workspace-not-found", f"{workspace.path} is no worktree", "bring its folder back")
            own = own.resolve()
            await server.start(await self._ports.hold(own), functools.partial(self._place, own))
        except (RookeryError, OSError) as error:
            server.failed(error)
        self._taken |= {server.port} if server.port is not None else set()
        if server.error is not None:
            logger.warning("the MCP server of %s: %s", workspace.path, server.error)
        self._tell(key)

    async def closed(self, workspace: Workspace) -> bool:
        """Its port is free after this; calls that are under way, such as one to close it, may still be answered."""
        server = self._servers.pop(key := as_text(workspace.path), None)
        self._listed.pop(key, None)
        if server is None:
            return False
        self._taken.discard(server.port or 0)
        server.leave()
        self._tasks.start(server.stop(_DRAIN_SECONDS), f"drain {workspace.name}")
        self._tell(key, server.workspace)
        return False  # nothing of it was in the folder

    async def _heard(self, event: Event) -> None:
        if event.type == "project.removed":
            for server in list(self._servers.values()):
                if server.workspace.project.path == event.data["project"]["path"]:
                    await self.closed(server.workspace)

    async def _place(self, own: Path) -> str:
        """Where its endpoint is on the app port: by the name that it has now."""
        found = await self._lookup.with_own(own)
        if found is None:
            raise RookeryError("workspace-not-found", "the workspace of this port is gone")
        return _address(found.workspace.project.id, found.workspace.name)

    # ---- what is told

    def state(self, shown: Mapping[str, Any]) -> State:
        key: str = shown["path"]
        server = self._servers.get(key)
        usage = self._doors.usages.find(server.workspace.path if server is not None else Path(key))
        clients = usage.clients if usage is not None else 0
        if server is None:
            return State(connected_clients=clients)
        return State(server.running, server.port, server.url, clients, server.error)

    async def tools(self, shown: Mapping[str, Any]) -> Sequence[Tool]:
        server = self._servers.get(key := shown["path"])
        if server is None:
            return []
        try:
            listed = await self._doors.tools(server.workspace.path, _address(shown["project"], shown["name"]))
        except RookeryError:
            return []
        known = self._listed.get(key)
        if known is None or known[0] is not listed:
            known = self._listed[key] = listed, _tools(listed)
        return known[1]

    def traffic(self, shown: Mapping[str, Any]) -> Sequence[Line]:
        server = self._servers.get(shown["path"])
        usage = self._doors.usages.find(server.workspace.path if server is not None else Path(shown["path"]))
        return usage.traffic.lines() if usage is not None else []

    def _clients_changed(self, directory: Path) -> None:
        if self._works and (key := as_text(directory)) in self._servers:
            self._tell_in(key, _TELL_SECONDS)

    def _tell_in(self, key: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            if timer is not None:
                timer.cancel()
            self._timers[key] = loop.call_later(seconds, self._tell, key)

    def _tell(self, key: str, closed: Workspace | None = None) -> None:
        """Publish what is different from the last time."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        workspace = closed or self._servers[key].workspace
        state = self.state({"path": key}) if closed is None else State()
        if state != self._told.get(key, State()):
            told = {"project": workspace.project.id, "name": workspace.name, "path": key}
            self._events.publish("workspace.mcp", **told, mcp=msgspec.structs.asdict(state))
        self._told[key] = state
        if closed is not None:
            del self._told[key]
        elif state.connected_clients:
            self._tell_in(key, _LOOK_AGAIN_SECONDS)


def _address(project: str, name: str) -> str:
    return f"/w/{quote(project, safe='@')}/{quote(name, safe='@')}"


class _Listed(msgspec.Struct):
    name: str
    description: Any = ""
    inputSchema: Any = None


class _List(msgspec.Struct):
    tools: list[_Listed]


def _tools(listed: Raw) -> list[Tool]:
    """Some servers describe their tools as they please."""
    found = msgspec.json.decode(listed, type=_List).tools
    return [Tool(one.name, str(one.description or ""), one.inputSchema or {}) for one in found]
