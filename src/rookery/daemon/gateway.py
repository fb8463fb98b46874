"""The gateway as a service of the daemon: servers, views and endpoints, put together."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import rookery
from rookery.api.doors import Doors, Rooms
from rookery.gateway.hooks import Hooks
from rookery.gateway.member import Member
from rookery.gateway.rules import Judge
from rookery.gateway.switches import Switches
from rookery.guard.approvals import Approvals
from rookery.guard.definitions import content_of, key_of, server_subject
from rookery.guard.policy import Policy, Rule, read_rules
from rookery.guard.subject import Key, Subject
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.toolsets.hub import hub as hub_toolset
from rookery.toolsets.workspace import workspace_toolset
from rookery.upstreams.connector import Connector
from rookery.upstreams.definition import Definition, Problem
from rookery.upstreams.hub import Hub
from rookery.upstreams.permissions import Permissions, Written
from rookery.upstreams.pool import Pool
from rookery.upstreams.server import Server
from rookery.upstreams.slots import Record
from rookery.upstreams.sources import Found
from rookery.workspaces.projects import Projects
from rookery.workspaces.tools import WorkspaceTools

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rookery.wire.http_client import HttpClient

_MAIN = "@main"


class GatewayService:
    name = "gateway"
    needs: Sequence[str] = ("workspaces",)

    def __init__(
        self,
        store: Store,
        spawner: Spawner,
        events: Bus,
        projects: Projects,
        approvals: Approvals,
        workspaces: WorkspaceTools,
    ) -> None:
        self.hooks = Hooks()
        self._workspaces = workspaces
        self._approvals = approvals
        self._events = events
        self._projects = projects
        self._http: HttpClient | None = None
        pool = Pool(Connector(spawner, self._client, self._approved), self._server_changed)
        self.hub = Hub(pool, Switches(store), events, checked)

    def doors(self, rest: "ASGIApp") -> Doors:
        info = {"name": "rookery", "version": rookery.__version__}
        rooms = Rooms(self.hub, self.hooks, judge, self._toolsets, self._named, self._at, info)
        doors = Doors(rooms, rest)
        self.hub.knows_session = doors.knows_session
        return doors

    def bound(self, port: int) -> None:
        self.hub.own_port = port

    async def start(self) -> None:
        await self.hub.start()

    async def stop(self) -> None:
        await self.hub.close()
        if self._http is not None:
            await self._http.close()

    def _client(self) -> "HttpClient":
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
            place=checkout,
            checkout=checkout,
            command=definition.command,
            cwd=definition.cwd,
            search=definition.environment.get("PATH") or os.environ.get("PATH", ""),
            source=str(definition.source),
        )

    async def waiting(self) -> list[Subject]:
        """What the user is to look at, of every project."""
        for project in await self._projects.all():
            await self.hub.fleet(Path(project.path))
        # One after the other: many at once would take the threads that others need.
        return [await self.subject(definition, checkout) for definition, checkout in self.hub.waiting()]

    async def approvals_changed(self, key: Key) -> None:
        await self.hub.refresh(Path(key.place))

    async def _approved(self, definition: Definition, checkout: Path | None) -> bool:
        if definition.source.place == "user" or checkout is None:
            return True
        # First what costs nothing: whoever only clones a repository must not wait for all that it names to be read.
        written = content_of(definition.kind, definition.written)
        if not await self._approvals.may_count(key_of(definition.name, checkout), written):
            return False
        return await self._approvals.state(await self.subject(definition, checkout)) == "approved"

    # ---- workspaces: until there are others, the main checkouts of the projects

    async def workspace(self, given: str) -> Path:
        """A workspace by its path, or as `<project>/<name>`."""
        project, _, name = given.rpartition("/")
        found = await self._at(given) if given.startswith("/") else await self._named(project, name)
        if found is None:
            raise RookeryError(
                "workspace-not-found",
                f"there is no workspace {given}",
                "register its repository: rookery project add PATH",
            )
        return found

    async def _named(self, project: str, workspace: str) -> Path | None:
        found = [one for one in await self._projects.all() if one.id == project and workspace == _MAIN]
        return Path(found[0].path) if found else None

    async def _at(self, path: str) -> Path | None:
        real = await asyncio.to_thread(os.path.realpath, path)
        return next((Path(one.path) for one in await self._projects.all() if one.path in (path, real)), None)

    # ---- what of ours is shown

    def _toolsets(self, directory: Path | None) -> Sequence[Member]:
        async def records(session: str | None) -> list[Record]:
            return await self.hub.records(directory, session)

        return [workspace_toolset(self._workspaces, directory), hub_toolset(records)]


def judge(permissions: Permissions) -> Judge:
    """The policy of the user and of the project, as a view asks for it."""
    return Policy(_rules(permissions.user), _rules(permissions.project)).verdict


def _rules(written: Sequence[Written]) -> list[Rule]:
    return [rule for one in written for rule in read_rules(one.permission, one.source)[0]]


def checked(found: Found) -> Found:
    """With what is wrong in the rules about tools among the problems."""
    rules = found.permissions.user + found.permissions.project
    wrong = [Problem(one.source, one.line, said) for one in rules for said in read_rules(one.permission, one.source)[1]]
    return msgspec.structs.replace(found, problems=[*found.problems, *wrong])
