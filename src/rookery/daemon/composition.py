"""All parts of the daemon made and joined; none of them is started here."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rookery
from rookery.agents.project_config import KIND as OPENCODE
from rookery.api import app as api
from rookery.api.guard import Guard
from rookery.api.mcp import Mcp
from rookery.api.status import Daemon
from rookery.daemon.adding import added_by_user
from rookery.daemon.agents import AgentsService, read_jsonc
from rookery.daemon.boulder import boulder
from rookery.daemon.context import Gathering
from rookery.daemon.endpoints import EndpointsService
from rookery.daemon.files import FilesService
from rookery.daemon.gateway import GatewayService
from rookery.daemon.justfiles import Justfiles
from rookery.daemon.nested import Nested
from rookery.daemon.opencode_configs import OpenCodeConfigs
from rookery.daemon.plugin_files import KIND as PLUGIN, PluginFiles
from rookery.daemon.plugins import Around, PluginsService
from rookery.daemon.saving import Places
from rookery.daemon.search import search_tokens
from rookery.daemon.sessions import SessionsService
from rookery.daemon.settings import Settings
from rookery.daemon.upkeep import UpkeepService
from rookery.daemon.workspaces import SETUP, WorkspacesService
from rookery.files.just import Just
from rookery.guard.approvals import Approvals
from rookery.guard.definitions import KIND
from rookery.guard.subject import Key, Subject
from rookery.plugins.boulder.plugin import boulder_plugin
from rookery.system.bus import Bus
from rookery.system.git import Git
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.wire.gate import Principal, Tokens
from rookery.workspaces.projects import Project, Projects


@dataclass(frozen=True)
class Hands:
    """What the routes can ask of the running daemon itself."""

    instance: str
    describe: Callable[[], Daemon]
    reload: Callable[[], Awaitable[dict[str, Any]]]
    stop: Callable[[str], None]


class Composition:
    def __init__(
        self,
        settings: Settings,
        state: Path,
        *,
        store: Store,
        spawner: Spawner,
        events: Bus,
        logs: Bus,
        hands: Hands,
    ) -> None:
        self.projects = Projects(store, Git(spawner), events)
        self.approvals = Approvals(store)
        self.workspaces = WorkspacesService(settings, state, store, spawner, events, self.projects, self.approvals)
        agents = frozenset(name.strip() for name in settings.agents.toolsets.split(","))
        workspaces = self.workspaces.tools
        self.gateway = GatewayService(
            state, store, spawner, events, self.projects, self.approvals, workspaces, agents, settings.gateway
        )
        self.configs = OpenCodeConfigs(self.approvals, self.projects, self.workspaces.workspaces, read_jsonc)
        git, just = Git(spawner), Just(spawner)
        self.justfiles = Justfiles(
            self.approvals, self.projects, self.workspaces.workspaces, just, settings.just.approval
        )
        gathering = Gathering(git, just, self.workspaces.agents, self.gateway.hub)
        self.files = FilesService(
            settings, state, self.projects, self.workspaces.tools, git, just, self.justfiles, gathering, events
        )
        self.gateway.toolsets.append(self.files.toolset)
        self.projects.adding = self._approve_with
        self.agents = AgentsService(state, self.workspaces.agents, self.gateway, self.configs, events)
        rolling = boulder(settings.boulder, store, self.files, self.gateway.lookup, self.projects, events)
        # Plugins of our own.
        self.builtins = [boulder_plugin(rolling)]
        self.sessions = SessionsService(settings, self.agents, self.workspaces.workspaces, events, rolling)
        self.plugin_files = PluginFiles(self.approvals, self.projects)
        sessions, agency = self.sessions.sessions, self.workspaces.agents
        around = Around(self.projects, agency, sessions, self.gateway, self.files, events)
        self.plugins = PluginsService(settings, state, around, self.plugin_files, self.builtins)
        nested = Nested(state, self.projects, self.workspaces.workspaces)
        self.sessions.tools += [Places(self.files, nested, state).tools(sessions), self.plugins.tools]
        self.gateway.scoped.append(self.sessions.toolset)
        self.upkeep = UpkeepService(settings, self.workspaces.workspaces, spawner, events)
        self.tokens = Tokens()
        self.agents.admits = lambda key: (found := self.tokens.find(key)) is not None and found.kind == "workspace"
        given = self.workspaces.workspaces.tokens
        given.valid = lambda token, own: self.tokens.add(token, Principal("workspace", workspace=own))
        given.void = lambda token, own: self.tokens.remove(token)
        house = api.House(
            instance=hands.instance,
            version=rookery.__version__,
            daemon=hands.describe,
            projects=self.projects,
            workspaces=self.workspaces.tools,
            events=events,
            logs=logs,
            reload=hands.reload,
            stop=hands.stop,
            guard=Guard(self.approvals, events, self._waiting, self._decided),
            mcp=Mcp(self.gateway.hub, self.gateway.lookup.directory, search_tokens()),
            agents=self.workspaces.agents,
            endpoints=lambda: self.endpoints,
            sessions=sessions,
            plugins=self.plugins.plugins,
        )
        self.doors = self.gateway.doors(api.build(house))
        self.endpoints = EndpointsService(settings, store, self.tokens, self.doors, self.gateway, events)
        # Behind the gateway, since what was opened last is closed first.
        self.workspaces.workspaces.openness.companions += [self.files, self.endpoints, self.workspaces.agents]
        # Each is started after those that it needs.
        inner = self.workspaces, self.files, self.gateway
        self.services = (*inner, self.endpoints, self.agents, self.sessions, self.plugins, self.upkeep)
        # Called while clients can still be told that the daemon stops.
        self.closing: Sequence[Callable[[], None]] = [
            self.doors.close,
            *(functools.partial(bus.end_all, "shutdown") for bus in (events, logs)),
        ]

    async def _approve_with(self, project: Project) -> None:
        """What a main checkout brings along is approved by adding its project, if it is the user who does that."""
        if await added_by_user():
            await self.configs.approve_with(project)
            await self.justfiles.approve_with(project)
            await self.plugin_files.approve_with(project)

    async def _waiting(self) -> list[Subject]:
        """What the user is to look at; what several workspaces have alike is shown once."""
        found = [*await self.gateway.waiting(), *await self.workspaces.waiting(), *await self.configs.waiting()]
        found += [*await self.justfiles.waiting(), *await self.plugin_files.waiting()]
        return list({one.digest: one for one in reversed(found)}.values())[::-1]

    async def _decided(self, key: Key) -> None:
        if key.kind == KIND:
            await self.gateway.approvals_changed(key)
        elif key.kind == SETUP:
            await self.workspaces.workspaces.approved_now(key.place)
        elif key.kind == OPENCODE:
            await self.agents.decided(key)
        elif key.kind == PLUGIN:
            await self.plugins.decided(key)
