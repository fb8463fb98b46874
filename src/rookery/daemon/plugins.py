"""Plugins as a service of the daemon: loaded once they may be, told what happens, and ended before all else."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rookery.agents.events import Event as AgentEvent
from rookery.agents.life import Life
from rookery.agents.service import AgentService
from rookery.agents.tenant import Tenant
from rookery.api.plugins import require_outsider
from rookery.daemon.files import FilesService
from rookery.daemon.follow import follow
from rookery.daemon.gateway import GatewayService
from rookery.daemon.opencode_plugins import OpenCodePlugins
from rookery.daemon.plugin_files import PluginFiles
from rookery.daemon.plugin_hooks import GatewayHooks
from rookery.daemon.plugin_state_files import StateFiles
from rookery.daemon.project_plugins import ProjectPlugins
from rookery.daemon.settings import Settings
from rookery.guard.subject import Key as ApprovalKey
from rookery.plugins.happenings import Happenings
from rookery.plugins.loading import Found, installed, loaded, not_loaded
from rookery.plugins.plugin import Plugin
from rookery.plugins.records import Limits, PluginShown, StateShown
from rookery.plugins.registry import Ground, Key, Origin, Registry
from rookery.plugins.service import Plugins
from rookery.sessions.service import Sessions
from rookery.system.bus import Bus, Event
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.toolsets.session_plugins import plugin_tools
from rookery.toolsets.toolset import Tool
from rookery.workspaces.projects import Project, Projects

logger = logging.getLogger("rookery.daemon")


@dataclass(frozen=True)
class Around:
    """What of the daemon plugins have to do with."""

    projects: Projects
    agents: AgentService
    sessions: Sessions
    gateway: GatewayService
    files: FilesService
    events: Bus


class PluginsService:
    """`built_in` are there from the start; the others are loaded beside it, so that none of them holds it up."""

    name = "plugins"
    needs: Sequence[str] = ("sessions",)

    def __init__(
        self, settings: Settings, state: Path, around: Around, found: PluginFiles, built_in: Sequence[Plugin] = ()
    ) -> None:
        given = settings.hooks
        limits = Limits(given.seconds, given.event_seconds, given.queue, given.failures)
        self._built_in = built_in
        self.registry = Registry(Ground(around.sessions, state, settings.plugins, limits))
        self.plugins = Plugins(self.registry, self, around.sessions)
        self._projects = ProjectPlugins(found, self._load, self._end, self._cannot)
        self._around = around
        self._opencode = OpenCodePlugins(around.agents)
        workspaces = around.gateway.lookup
        self._states = StateFiles(around.files, around.files.workspaces.workspaces, settings.plugins)
        self.registry.on_change = GatewayHooks(around.gateway.hooks, self.registry, workspaces.project_of).settle
        self._happenings: dict[Path, Happenings] = {}
        self._failed: list[PluginShown] = []
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._tasks = TaskSet("plugins")
        around.agents.listeners.append(self._began)

    def tools(self, scope: Path | None) -> list[Tool]:
        """For clients that see no more than the workspace `scope`, or for the owner."""
        return plugin_tools(self.plugins, scope, require_outsider)

    async def start(self) -> None:
        for plugin in self._built_in:
            await self._load(plugin, Origin("built in", version=plugin.version))
        self._tasks.start(follow(self._around.events, self._heard), "projects")
        self._loaded.clear()
        self._tasks.start(self._load_all(), "load")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.registry.close()

    # ---- loading

    async def _load_all(self) -> None:
        try:
            for found in await asyncio.to_thread(lambda: list(installed())):
                await self._load_installed(found)
            for project in await self._around.projects.all():
                await self._projects.load(project)
        finally:
            self._loaded.set()

    async def _load_installed(self, found: Found) -> None:
        try:
            await self._load(await loaded(found), found.origin)
        except RookeryError as error:
            self._failed.append(self._cannot(found, error))

    async def _load(self, plugin: Plugin, origin: Origin) -> Key:
        key = await self.registry.add(plugin, origin)
        logger.info("plugin %s runs (%s)", plugin.name, origin.text)
        self._around.events.publish("plugin.loaded", plugin=key.name, project=key.project, origin=origin.text)
        now = SYSTEM_CLOCK.wall() * 1000
        for one in self._happenings.values():
            for event in one.as_they_are(now):
                self.registry.tell(event, key)
        return key

    async def _end(self, key: Key) -> None:
        await self.registry.remove(key)
        self._around.events.publish("plugin.ended", plugin=key.name, project=key.project)

    def _cannot(self, found: Found, error: RookeryError) -> PluginShown:
        """Say that one could not be loaded."""
        logger.error("%s", error.message)
        self._around.events.publish(
            "plugin.failed", plugin=found.name, project=found.origin.project, error=error.as_dict()
        )
        return not_loaded(found, error, SYSTEM_CLOCK.wall() * 1000)

    async def decided(self, key: ApprovalKey) -> None:
        """A file of a project was approved, or is no longer."""
        for project in await self._around.projects.all():
            if os.path.realpath(project.path) == key.place:
                await self._projects.decided(project, key.name)

    async def _heard(self, event: Event) -> None:
        if event.type == "project.added":
            await self._projects.load(msgspec.convert(event.data["project"], Project))
        elif event.type == "project.removed":
            await self._projects.forget(event.data["project"]["id"])

    # ---- what happens

    def _began(self, tenant: Tenant, life: Life) -> None:
        for path in self._happenings.keys() - self._around.agents.tenants.keys():
            del self._happenings[path]
        path = tenant.workspace.path
        if path not in self._happenings:
            self._happenings[path] = Happenings(tenant.workspace, self.registry.wants)
        happenings = self._happenings[path]

        def heard(event: AgentEvent) -> None:
            for one in happenings.hear(event, life.watcher, SYSTEM_CLOCK.wall() * 1000):
                self.registry.tell(one)

        life.listeners.append(heard)

    # ---- what the faces ask for

    async def ready(self) -> None:
        await self._loaded.wait()

    async def project_of(self, scope: Path) -> str | None:
        found = await self._around.gateway.lookup.at(str(scope))
        return found.workspace.project.id if found is not None else None

    async def notes(self) -> Mapping[Key, str]:
        return await self._projects.notes(await self._around.projects.all())

    async def others(self, scope: Path | None) -> Sequence[PluginShown]:
        await self.ready()
        own = await self.project_of(scope) if scope is not None else None
        projects = [one for one in await self._around.projects.all() if scope is None or one.id == own]
        idle = [shown for one in projects for shown in await self._projects.others(one)]
        return [*self._failed, *idle, *await self._opencode.all(scope)]

    async def files(self, scope: Path | None) -> Sequence[StateShown]:
        return await self._states.all(scope)
