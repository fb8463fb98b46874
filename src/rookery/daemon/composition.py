"""Makes and connects all parts of the daemon; starts none of them."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rookery
from rookery.agents.opencode.install import find_installed_program, find_npm
from rookery.agents.opencode.project_config import APPROVAL_KIND as OPENCODE
from rookery.api import app as api
from rookery.api.openapi import make_openapi_document
from rookery.daemon.approvals import (
    LOCK,
    PLUGIN,
    JustfileApprovals,
    LockFiles,
    OpenCodeConfigApprovals,
    PluginApprovals,
    ProjectApprovals,
    WorkspaceFolders,
)
from rookery.daemon.callers import Callers
from rookery.daemon.services.agents import AgentsService, read_jsonc
from rookery.daemon.services.boulder import make_boulder
from rookery.daemon.services.context import ContextSources
from rookery.daemon.services.core import share_limits
from rookery.daemon.services.endpoints import EndpointsService
from rookery.daemon.services.files import FilesService
from rookery.daemon.services.gateway import GatewayService, count_search_tokens
from rookery.daemon.services.nested_folders import NestedFolders
from rookery.daemon.services.plugins import PluginCollaborators, PluginsService
from rookery.daemon.services.sessions import SaveFolders, SessionsService
from rookery.daemon.services.upkeep import UpkeepService
from rookery.daemon.services.workspaces import SETUP, WorkspacesService, sandbox_options
from rookery.daemon.settings.schema import Settings
from rookery.files.just.run import JustRunner
from rookery.guard.approvals import Approvals
from rookery.guard.audit.log import AuditLimits, AuditLog
from rookery.guard.lock.registry import PackageRegistries
from rookery.guard.server import KIND
from rookery.guard.subject import Key, Subject
from rookery.operations.agents import AgentOperations
from rookery.operations.daemon import DaemonOperations, DaemonServices
from rookery.operations.guard.approvals import GuardOperations
from rookery.operations.guard.audit import AuditOperations
from rookery.operations.guard.pins import PinOperations
from rookery.operations.operation import BoundOperation, bind_operations
from rookery.operations.plugins import PluginOperations
from rookery.operations.project.files import FileOperations
from rookery.operations.project.tasks import TaskOperations
from rookery.operations.projects import ProjectOperations
from rookery.operations.screens import ScreenOperations
from rookery.operations.servers.control import ServerOperations, ServerSelector
from rookery.operations.servers.lock import LockOperations
from rookery.operations.servers.signin import SignInOperations
from rookery.operations.sessions import SessionOperations
from rookery.operations.status import DaemonStatus, ReloadedSettings
from rookery.operations.trash import TrashOperations
from rookery.operations.workspaces import WorkspaceOperations
from rookery.plugins.boulder.plugin import boulder_plugin
from rookery.system.bus import Bus
from rookery.system.confinement.kernel import find_support
from rookery.system.git import Git
from rookery.system.process.environment import inherited_environment
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.toolsets.project import project_toolset
from rookery.upstreams.sandbox import CheckoutAccess, ServerSandboxes
from rookery.wire.http.auth import Principal, Tokens
from rookery.wire.shares import Shares
from rookery.workspaces.confinement import list_checkout_paths
from rookery.workspaces.projects import Projects
from rookery.workspaces.worktrees import find_home


@dataclass(frozen=True)
class DaemonCallbacks:
    """Functions of the running daemon that the HTTP routes call."""

    instance: str
    describe: Callable[[], DaemonStatus]
    reload: Callable[[], Awaitable[ReloadedSettings]]
    stop: Callable[[str], None]


class Composition:
    """All parts of the daemon, connected but not started."""

    def __init__(
        self,
        settings: Settings,
        state: Path,
        *,
        store: Store,
        spawner: Spawner,
        events: Bus,
        logs: Bus,
        callbacks: DaemonCallbacks,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        self.shares = Shares(share_limits(settings))
        # Complete once all services exist; routes and tools are made from it after that.
        operations: list[BoundOperation[Any]] = []
        spawner.find_workspace = find_home
        limits = settings.audit
        self.audit = AuditLog(state, AuditLimits(limits.calls, limits.days, limits.limit))
        self.projects = Projects(store, Git(spawner), events)
        self.approvals = Approvals(store, digests=digests or {}, record=self.audit.record)
        self.workspaces = WorkspacesService(settings, state, store, spawner, events, self.projects, self.approvals)
        agent_toolsets = frozenset(name.strip() for name in settings.agents.toolsets.split(","))
        workspaces = self.workspaces.tools
        self.gateway = GatewayService(
            state,
            store,
            spawner,
            events,
            self.projects,
            self.approvals,
            workspaces,
            agent_toolsets,
            settings.gateway,
            settings.servers,
            functools.partial(find_installed_program, state, settings.agents.version),
            operations,
            self.shares,
            ServerSandboxes(
                state,
                sandbox_options(settings),
                settings.servers.sandbox,
                settings.servers.repository_sandbox,
                unconfined_allowed=settings.sandbox.unavailable == "unconfined",
                find_access=self._find_checkout_access,
                has_confined_agent=lambda folder: (
                    settings.agents.sandbox != "off"
                    and find_support().abi > 0
                    and folder.resolve() != self.gateway.lookup.project_of(folder).resolve()
                ),
            ),
            self.audit,
            settings.guard,
        )
        self.pins = self.gateway.guard.pins
        self.locks = LockFiles(
            self.approvals,
            self.pins,
            self.projects,
            self.workspaces.workspaces,
            self.gateway.lookup.project_of,
        )
        self.gateway.guard.find_locked = self.locks.find_pins
        self.configs = OpenCodeConfigApprovals(self.approvals, self.projects, self.workspaces.workspaces, read_jsonc)
        git = Git(spawner)
        just = JustRunner(spawner)
        self.justfiles = JustfileApprovals(
            self.approvals, self.projects, self.workspaces.workspaces, just, settings.just.approval
        )
        context_sources = ContextSources(git, just, self.workspaces.agents, self.gateway.hub)
        self.files = FilesService(
            settings, state, self.projects, self.workspaces.tools, git, just, self.justfiles, context_sources, events
        )
        self.gateway.toolsets.append(functools.partial(project_toolset, operations, self.files))
        self.agents = AgentsService(state, self.workspaces.agents, self.gateway, self.configs, events)
        boulder = make_boulder(settings.boulder, store, self.files, self.gateway.lookup, self.projects, events)
        # Built-in plugins.
        self.builtins = [boulder_plugin(boulder)]
        self.sessions = SessionsService(settings, self.agents, self.workspaces.workspaces, events, boulder, operations)
        self.plugin_files = PluginApprovals(self.approvals, self.projects)
        sources = (
            self.configs.list_in_main_checkout,
            self.justfiles.list_in_main_checkout,
            self.plugin_files.read_subjects,
        )
        self.projects.hooks = ProjectApprovals(self.approvals, sources, self._on_decision)
        sessions = self.sessions.sessions
        agent_manager = self.workspaces.agents
        collaborators = PluginCollaborators(self.projects, agent_manager, sessions, self.gateway, self.files, events)
        self.plugins = PluginsService(settings, state, collaborators, self.plugin_files, self.builtins)
        nested = NestedFolders(state, self.projects, self.workspaces.workspaces)
        save_folders = SaveFolders(self.files, nested, state, settings.sessions.save_roots)
        self.gateway.toolsets.append(self.sessions.toolset)
        self.gateway.conversations = sessions.tool_asks
        self.upkeep = UpkeepService(settings, self.workspaces.tools, spawner, events)
        self.tokens = Tokens()
        self.agents.is_valid_token = lambda key: (
            (principal := self.tokens.find(key)) is not None and principal.kind == "workspace"
        )
        workspace_tokens = self.workspaces.workspaces.tokens
        workspace_tokens.on_valid = lambda token, own: self.tokens.add(token, Principal("workspace", workspace=own))
        workspace_tokens.on_revoked = lambda token, own: self.tokens.remove(token)
        self.callers = Callers(settings, spawner, self.tokens, workspace_tokens, self.gateway.lookup)
        record_view = agent_manager.mark_session_seen
        server_selector = ServerSelector(self.gateway.hub, self.gateway.lookup.find_folder, sessions.find_conversation)
        daemon_services = DaemonServices(
            instance=callbacks.instance,
            version=rookery.__version__,
            describe=callbacks.describe,
            projects=self.projects,
            workspaces=workspaces,
            endpoints=lambda: self.endpoints,
            list_servers=self.gateway.hub.all_records,
            list_clients=lambda: self.endpoint_router.clients(),
            events=events,
            logs=logs,
            reload=callbacks.reload,
            stop=callbacks.stop,
            make_document=functools.partial(make_openapi_document, operations, rookery.__version__),
        )
        operations += bind_operations(
            ProjectOperations(workspaces),
            WorkspaceOperations(workspaces, lambda: self.endpoints, lambda: callbacks.describe().url),
            AgentOperations(workspaces, agent_manager),
            TrashOperations(workspaces),
            FileOperations(workspaces, self.files, git),
            TaskOperations(workspaces, self.files),
            SessionOperations(sessions, record_view),
            ScreenOperations(sessions, record_view, save_folders),
            ServerOperations(server_selector, count_search_tokens()),
            SignInOperations(server_selector),
            PluginOperations(self.plugins.plugins),
            DaemonOperations(daemon_services),
            GuardOperations(
                self.approvals, events, self._list_subjects, self._on_decision, self.gateway.guard.on_approved
            ),
            PinOperations(
                self.gateway.guard.gate,
                server_selector,
                events,
                self.gateway.review_again,
                self.gateway.guard.find_owner,
                self.audit.record,
            ),
            LockOperations(server_selector, PackageRegistries(spawner, inherited_environment(), find_npm)),
            AuditOperations(self.audit),
            record=self.audit.record,
        )
        app_services = api.AppServices(
            workspaces=self.workspaces.tools,
            events=events,
            operations=operations,
            shares=self.shares,
        )
        self.endpoint_router = self.gateway.make_router(api.build_app(app_services))
        self.endpoints = EndpointsService(
            settings, store, self.callers, self.endpoint_router, self.shares, self.gateway, events
        )
        # Opened first: a folder is recorded before anything runs there.
        self.workspaces.workspaces.lifecycle.hooks.insert(0, WorkspaceFolders(self.approvals))
        # After the gateway, since the lifecycle hook that was added last is closed first.
        self.workspaces.workspaces.lifecycle.hooks += [self.files, self.endpoints, self.workspaces.agents]
        # Each service starts after those that it needs.
        inner = self.workspaces, self.files, self.gateway
        self.services = (*inner, self.endpoints, self.agents, self.sessions, self.plugins, self.upkeep)
        # Called while clients can still be notified that the daemon stops.
        self.on_closing: Sequence[Callable[[], None]] = [
            self.endpoint_router.close,
            *(functools.partial(bus.end_all, "shutdown") for bus in (events, logs)),
        ]

    async def _list_subjects(self) -> list[Subject]:
        """Return all content of repositories that needs approval, approved or not; equal content occurs once."""
        subjects = [
            *await self.gateway.list_repository_servers(),
            *await self.workspaces.list_subjects(),
            *await self.configs.list_subjects(),
        ]
        subjects += [*await self.justfiles.list_subjects(), *await self.plugin_files.list_subjects()]
        subjects += await self.locks.list_subjects()
        return list({subject.digest: subject for subject in reversed(subjects)}.values())[::-1]

    def _find_checkout_access(self, folder: Path) -> CheckoutAccess:
        paths = list_checkout_paths(folder, self.gateway.lookup.project_of(folder))
        return CheckoutAccess(paths.write, paths.linkless, paths.read)

    async def _on_decision(self, key: Key) -> None:
        if key.kind == KIND:
            await self.gateway.on_approvals_changed(key)
        elif key.kind == SETUP:
            await self.workspaces.workspaces.on_approved(key.place)
        elif key.kind == OPENCODE:
            await self.agents.on_decision(key)
        elif key.kind == LOCK:
            await self.gateway.review_again()
        elif key.kind == PLUGIN:
            await self.plugins.on_decision(key)
