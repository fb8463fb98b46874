"""The gateway as a service of the daemon: servers, views and endpoints, put together."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rookery
from rookery.api.choosing import Chooser
from rookery.api.doors import Doors
from rookery.api.rooms import Rooms
from rookery.daemon.follow import follow
from rookery.daemon.gateway_settings import Gateway
from rookery.daemon.lookup import WorkspaceLookup
from rookery.daemon.policy import checked, judge
from rookery.daemon.search import finder
from rookery.gateway.finding import Sight
from rookery.gateway.hooks import Hooks
from rookery.gateway.member import Member
from rookery.gateway.parking import Parking
from rookery.gateway.switches import Switches
from rookery.guard.approvals import Approvals
from rookery.guard.definitions import content_of, key_of, server_subject
from rookery.guard.subject import Key, Subject
from rookery.system.bus import Bus, Event
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.toolsets.hub import hub as hub_toolset
from rookery.toolsets.workspace import workspace_toolset
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition
from rookery.upstreams.hub import Hub
from rookery.upstreams.pool import Pool
from rookery.upstreams.server import Server
from rookery.upstreams.signin.signins import SignIns
from rookery.upstreams.slots import Record
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.tools import WorkspaceTools

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rookery.wire.http_client import HttpClient


_GRACE_SECONDS = 30.0


class GatewayService:
    name = "gateway"
    needs: Sequence[str] = ("workspaces",)

    def __init__(
        self,
        state: Path,
        store: Store,
        spawner: Spawner,
        events: Bus,
        projects: Projects,
        approvals: Approvals,
        workspaces: WorkspaceTools,
        agents: frozenset[str],
        settings: Gateway,
    ) -> None:
        self.hooks = Hooks()
        self.parking = Parking(settings.parked_seconds, settings.parked_calls, settings.parked_calls_each)
        self._agents = agents
        self._search = settings.mode == "search"
        self._workspaces = workspaces
        self._approvals = approvals
        self._events = events
        self._projects = projects
        self._http: HttpClient | None = None
        # A question is given up by who asked it here before its server is told that nobody answers.
        patience = settings.parked_seconds + _GRACE_SECONDS
        signins = SignIns(state, spawner)
        connector = Connector(spawner, self.client, self._approved, signins, patience=patience)
        pool = Pool(connector, self._server_changed)
        self.hub = Hub(pool, Switches(store), events, checked)
        self.lookup = WorkspaceLookup(projects, workspaces.workspaces)
        self.hub.project_of = self.lookup.project_of
        # What else of ours a view shows, made for the workspace that it acts in, or for none.
        self.toolsets: list[Callable[[Path | None], Member]] = []
        # The same, made for the only workspace that its clients may see, or for the owner.
        self.scoped: list[Callable[[Path | None], Member]] = []
        self._tasks = TaskSet("gateway")
        self._doors: Doors | None = None

    def doors(self, rest: "ASGIApp") -> Doors:
        info = {"name": "rookery", "version": rookery.__version__}
        rooms = Rooms(self.hub, self.hooks, judge, self._toolsets, finder, info, self.parking)
        toolsets = frozenset(one.name for one in self._toolsets(None, None, Sight()))
        doors = self._doors = Doors(rooms, Chooser(self.lookup, toolsets, self._agents, self._search), rest)
        self.hub.knows_session = doors.knows_session
        self._workspaces.workspaces.openness.companions.append(self)
        return doors

    def bound(self, port: int) -> None:
        self.hub.own_port = port

    async def start(self) -> None:
        await self.hub.start()
        self._tasks.start(follow(self._events, self._heard), "projects")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.parking.close()
        await self.hub.close()
        if self._http is not None:
            await self._http.close()

    def client(self) -> "HttpClient":
        """Made on first use: importing it means importing TLS. One for all, so that connections are shared."""
        if self._http is None:
            from rookery.wire.http_client import HttpClient

            self._http = HttpClient()
        return self._http

    def _server_changed(self, server: Server) -> None:
        workspace = None if server.definition.everywhere else str(server.directory)
        self._events.publish(
            "mcp.status", server=server.name, workspace=workspace, status=server.status, error=server.error
        )

    # ---- approvals

    async def subject(self, definition: Definition, checkout: Path) -> Subject:
        return await server_subject(
            name=definition.name,
            kind=definition.kind,
            written=definition.written,
            place=self.lookup.project_of(checkout),
            checkout=checkout,
            command=definition.command,
            cwd=definition.cwd,
            search=definition.environment.get("PATH") or os.environ.get("PATH", ""),
            source=str(definition.source),
        )

    async def waiting(self) -> list[Subject]:
        """What the user is to look at, of every project and of the workspaces that are in use."""
        for project in await self._projects.all():
            await self.hub.fleet(Path(project.path))
        # One after the other: many at once would take the threads that others need.
        return [await self.subject(definition, checkout) for definition, checkout in self.hub.waiting()]

    async def approvals_changed(self, key: Key) -> None:
        """What holds for the main checkout holds for all workspaces of the project."""
        for directory in self.lookup.of_project(Path(key.place)):
            await self.hub.refresh(directory)

    async def _approved(self, definition: Definition, checkout: Path | None) -> bool:
        if definition.source.place == "user" or checkout is None:
            return True
        # First what costs nothing: whoever only clones a repository must not wait for all that it names to be read.
        written = content_of(definition.kind, definition.written)
        if not await self._approvals.may_count(key_of(definition.name, self.lookup.project_of(checkout)), written):
            return False
        return await self._approvals.state(await self.subject(definition, checkout)) == "approved"

    # ---- workspaces

    async def opened(self, workspace: Workspace) -> None:
        """Its servers start when somebody uses them. Whoever looks at them first, they are those of its project."""
        self.lookup.note(workspace)

    async def closed(self, workspace: Workspace) -> bool:
        """End its servers, and the clients that use them."""
        return await self.let_go(workspace.path, f"the workspace {workspace.name} was closed")

    async def let_go(self, directory: Path, reason: str) -> bool:
        used = self._doors is not None and self._doors.retire(directory, reason)
        stopped = await self.hub.let_go(directory)
        self.lookup.forget(directory)
        return used or stopped

    async def _heard(self, event: Event) -> None:
        if event.type == "project.removed":
            for directory in self.lookup.of_project(Path(event.data["project"]["path"])):
                await self.let_go(directory, "the project was removed")

    # ---- what of ours is shown

    def _toolsets(self, directory: Path | None, scope: Path | None, sight: Sight) -> Sequence[Member]:
        async def records(session: str | None) -> list[Record]:
            return await self.hub.records(directory, session)

        more = [*(make(directory) for make in self.toolsets), *(make(scope) for make in self.scoped)]
        return [workspace_toolset(self._workspaces, directory), *more, hub_toolset(records, sight.find)]
