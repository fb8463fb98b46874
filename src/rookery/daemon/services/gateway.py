"""The gateway as a service of the daemon: servers, policy, views and endpoints."""

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import rookery
from rookery.api.endpoint.router import EndpointRouter, ViewDependencies
from rookery.api.endpoint.selection import ViewSelector
from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.lookup import WorkspaceLookup
from rookery.daemon.pins import ResultGuard, ServerPinGuard
from rookery.daemon.settings.schema import GatewaySettings, GuardSettings, ServerSettings
from rookery.gateway.audit import NO_RECORDER, CallRecorder
from rookery.gateway.elicitation import ParkedCalls
from rookery.gateway.hooks import Hooks
from rookery.gateway.provider import CatalogProvider
from rookery.gateway.rules import Switches, ToolPolicy
from rookery.gateway.search.view import ViewSearch, list_search_tools
from rookery.guard.approvals import Approvals
from rookery.guard.audit.log import AuditLog
from rookery.guard.audit.records import RecordDecision, ignore_decision
from rookery.guard.policy import Policy, Rule, read_rules
from rookery.guard.server import definition_content, server_key, server_subject
from rookery.guard.subject import Key, Subject
from rookery.operations.operation import ADMIN_TOOLSET, BoundOperation
from rookery.system.bus import Bus, Event
from rookery.system.process.environment import EnvironmentFilter
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.toolsets.hub import hub_toolset, search_toolset
from rookery.toolsets.operations import operation_toolset
from rookery.upstreams.catalog_store import CatalogStore
from rookery.upstreams.config.definition import ConfigProblem, Definition
from rookery.upstreams.config.permissions import PermissionEntry, Permissions
from rookery.upstreams.config.sources import ServerConfig
from rookery.upstreams.connect import Connector
from rookery.upstreams.hub import Hub
from rookery.upstreams.oauth.credentials import SignInTarget
from rookery.upstreams.oauth.manager import SignInManager
from rookery.upstreams.pool import ServerPool
from rookery.upstreams.sandbox import ServerSandboxes
from rookery.upstreams.server import Server
from rookery.upstreams.tool_costs import estimate_tokens
from rookery.wire.http_client.proxy import ProxySettings
from rookery.wire.shares import Shares
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Projects

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from rookery.gateway.conversations import Conversations
    from rookery.wire.http_client.client import HttpClient

_GRACE_SECONDS = 30.0


def make_policy(permissions: Permissions) -> ToolPolicy:
    """Return the policy of the user and of the project, as a function for views."""
    return Policy(_rules(permissions.user), _rules(permissions.project)).evaluate


def _rules(entries: Sequence[PermissionEntry]) -> list[Rule]:
    return [rule for entry in entries for rule in read_rules(entry.permission, entry.source)[0]]


def check_rules(config: ServerConfig) -> ServerConfig:
    """Return the config with the errors in its tool rules added to its problems."""
    rules = config.permissions.user + config.permissions.project
    problems = [
        ConfigProblem(entry.source, entry.line, message)
        for entry in rules
        for message in read_rules(entry.permission, entry.source)[1]
    ]
    return msgspec.structs.replace(config, problems=[*config.problems, *problems])


def _record_sign_in(record: RecordDecision, target: SignInTarget, verdict: str, why: str) -> None:
    record("sign-in", verdict, server=target.name, detail={"why": why})


def make_search_toolset(search: ViewSearch) -> CatalogProvider:
    return search_toolset(search.find)


def count_search_tokens() -> int:
    """Return how many tokens the tool list of a search view costs a model before its first call."""
    return estimate_tokens(list_search_tools(make_search_toolset(ViewSearch())))


class GatewayService:
    """Runs the MCP servers of projects and workspaces, and makes the endpoints through which clients use them."""

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
        workspaces: WorkspaceOperations,
        agent_toolsets: frozenset[str],
        settings: GatewaySettings,
        server_settings: ServerSettings,
        find_opencode: Callable[[], Path | None],
        operations: Sequence[BoundOperation[Any]],
        shares: Shares,
        sandboxes: ServerSandboxes | None = None,
        audit: AuditLog | None = None,
        guard_settings: GuardSettings | None = None,
    ) -> None:
        self._recorder: CallRecorder = audit if audit is not None else NO_RECORDER
        self._operations = operations
        self._shares = shares
        self.hooks = Hooks()
        self.parked_calls = ParkedCalls(
            settings.parked_seconds,
            settings.parked_calls,
            settings.parked_calls_each,
            held_bytes=shares.kept_bytes,
        )
        self._agent_toolsets = agent_toolsets
        self._search_by_default = settings.mode == "search"
        self._workspaces = workspaces
        self._approvals = approvals
        self._events = events
        self._projects = projects
        self._http: HttpClient | None = None
        # Longer than a call is parked: a question expires here before its server is notified that nobody has replied.
        patience = settings.parked_seconds + _GRACE_SECONDS
        self._proxies = ProxySettings()
        if server_settings.proxy == "environment":
            self._proxies = ProxySettings.from_environment(os.environ)
        signins = SignInManager(state, spawner, self._proxies)
        if audit is not None:
            signins.on_ended = functools.partial(_record_sign_in, audit.record)
        connector = Connector(
            spawner,
            self.client,
            self._is_approved,
            signins,
            EnvironmentFilter.parse("servers.env", server_settings.env),
            find_opencode,
            sandboxes=sandboxes,
            question_seconds=patience,
        )
        self.lookup = WorkspaceLookup(projects, workspaces.workspaces)
        record = audit.record if audit is not None else ignore_decision
        self.guard = ServerPinGuard(store, events, guard_settings or GuardSettings(), self.lookup.project_of, record)
        if guard_settings is not None and guard_settings.results != "off":
            self.hooks.check_result = ResultGuard(guard_settings, os.environ, events).check
        pool = ServerPool(connector, CatalogStore(store), self._on_server_changed, self.guard)
        self.hub = Hub(pool, Switches(store), events, check_rules)
        self.hub.find_project = self.lookup.project_of
        # Further built-in toolsets of a view, made for the only workspace that its clients may access, None for the
        # owner, and for the workspace that the view acts in, if any.
        self.toolsets: list[Callable[[Path | None, Path | None], CatalogProvider]] = []
        # The sessions of agents, set before the router is made.
        self.conversations: Conversations | None = None
        self._tasks = TaskSet("gateway")
        self._router: EndpointRouter | None = None

    def make_router(self, rest: "ASGIApp") -> EndpointRouter:
        """Return the router of all MCP endpoints, which passes other requests on to `rest`."""
        info = {"name": "rookery", "version": rookery.__version__}
        dependencies = ViewDependencies(
            self.hub,
            self.hooks,
            make_policy,
            self._toolsets,
            make_search_toolset,
            info,
            self.parked_calls,
            self._shares,
            self._recorder,
            self.conversations,
        )
        toolsets = frozenset(toolset.name for toolset in self._make_toolsets(None, None, ViewSearch()))
        router = self._router = EndpointRouter(
            dependencies,
            ViewSelector(self.lookup, toolsets | {ADMIN_TOOLSET}, self._agent_toolsets, self._search_by_default),
            rest,
        )
        self.hub.is_session_open = router.knows_session
        self._workspaces.workspaces.lifecycle.hooks.append(self)
        return router

    def on_bound(self, port: int) -> None:
        self.hub.own_port = port

    async def start(self) -> None:
        # At once: a store of an earlier version gets its seal with the first read.
        await self.guard.start()
        await self.hub.start()
        self._tasks.keep_running(follow_bus(self._events, self._on_event), "projects")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.parked_calls.close()
        await self.hub.close()
        if self._http is not None:
            await self._http.close()

    def client(self) -> "HttpClient":
        """Return the HTTP client, shared by all servers. It is made on first use, because importing it imports TLS."""
        if self._http is None:
            from rookery.wire.http_client.client import HttpClient

            self._http = HttpClient(proxies=self._proxies)
        return self._http

    def _on_server_changed(self, server: Server) -> None:
        workspace = None if server.definition.is_app_wide else str(server.directory)
        self._events.publish(
            "mcp.status", server=server.name, workspace=workspace, status=server.status, error=server.error
        )

    # Approvals

    async def subject(self, definition: Definition, checkout: Path) -> Subject:
        """Return the definition of a server as a subject of approval."""
        return await server_subject(
            name=definition.name,
            kind=definition.kind,
            entry=definition.written,
            place=self.lookup.project_of(checkout),
            checkout=checkout,
            command=definition.command,
            cwd=definition.cwd,
            search=definition.environment.get("PATH") or os.environ.get("PATH", ""),
            source=str(definition.source),
        )

    async def list_waiting(self) -> list[Subject]:
        """Return the servers that need approval, of every project and of the workspaces in use."""
        for project in await self._projects.all():
            await self.hub.server_set(Path(project.path))
        # One after the other: many at once would take the threads that other work needs.
        return [await self.subject(definition, checkout) for definition, checkout in self.hub.awaiting_approval()]

    async def list_repository_servers(self) -> list[Subject]:
        """Return the servers that repositories define, approved or not, of the same checkouts as `list_waiting`."""
        for project in await self._projects.all():
            await self.hub.server_set(Path(project.path))
        return [await self.subject(definition, checkout) for definition, checkout in self.hub.from_repositories()]

    async def review_again(self, name: str | None = None) -> None:
        """Decide again what of the servers with this name is served, after a decision about pins; with None of all."""
        await self.hub.pool.review_again(name)

    async def on_approvals_changed(self, key: Key) -> None:
        """Refresh all workspaces of a project: an approval for its main checkout is valid for all of them."""
        for directory in self.lookup.list_of_project(Path(key.place)):
            await self.hub.refresh(directory)

    async def _is_approved(self, definition: Definition, checkout: Path | None) -> bool:
        if definition.source.place == "user" or checkout is None:
            return True
        # The cheap check comes first: a repository that was merely cloned must not cause all files it names to be read.
        written = definition_content(definition.kind, definition.written)
        if not await self._approvals.may_be_approved(
            server_key(definition.name, self.lookup.project_of(checkout)), written
        ):
            return False
        return await self._approvals.state(await self.subject(definition, checkout)) == "approved"

    # Workspaces

    async def on_opened(self, workspace: Workspace) -> None:
        """Record the project of a workspace, which decides on its servers. Servers start on first use."""
        self.lookup.remember(workspace)

    async def on_closed(self, workspace: Workspace) -> bool:
        """Stop the servers of a workspace, and disconnect the clients that use them."""
        return await self.release(workspace.path, f"the workspace {workspace.name} was closed")

    async def release(self, directory: Path, reason: str) -> bool:
        """Release the endpoints and servers of a folder; return whether there were any."""
        used = self._router is not None and self._router.retire(directory, reason)
        stopped = await self.hub.release(directory)
        self.lookup.forget(directory)
        return used or stopped

    async def _on_event(self, event: Event) -> None:
        if event.type == "project.removed":
            for directory in self.lookup.list_of_project(Path(event.data["project"]["path"])):
                await self.release(directory, "the project was removed")

    # Toolsets

    def _toolsets(
        self, names: frozenset[str], directory: Path | None, scope: Path | None, search: ViewSearch
    ) -> Sequence[CatalogProvider]:
        toolsets = [toolset for toolset in self._make_toolsets(directory, scope, search) if toolset.name in names]
        # Made only for the few views that have it: it is large.
        if ADMIN_TOOLSET in names and scope is None:
            toolsets.append(operation_toolset(self._operations, ADMIN_TOOLSET, None, directory))
        return toolsets

    def _make_toolsets(
        self, directory: Path | None, scope: Path | None, search: ViewSearch
    ) -> Sequence[CatalogProvider]:
        more = [make(scope, directory) for make in self.toolsets]
        workspace_toolset = operation_toolset(self._operations, "workspace", scope, directory)
        return [workspace_toolset, *more, hub_toolset(self._operations, scope, directory, search.find)]
