"""Plugins as a service of the daemon: built-in ones, those of projects, and a list of OpenCode's own.

A plugin is loaded once it is approved, receives events and calls through the gateway, and ends before all other
services. State files of OpenCode's plugins are read through the sandbox of their workspace.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.events import AgentEvent
from rookery.agents.run import AgentRun
from rookery.agents.workspace_agent import WorkspaceAgent
from rookery.daemon.approvals import PluginApprovals
from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.services.files import FilesService
from rookery.daemon.services.gateway import GatewayService
from rookery.daemon.settings.schema import Settings
from rookery.files.read import MAX_READ_BYTES, read_content
from rookery.gateway.hooks import After, Before, Hooks, ToolCall
from rookery.guard.subject import Key as ApprovalKey, Subject
from rookery.plugins.api import AFTER, BEFORE, CallEvent, Plugin
from rookery.plugins.load import PluginCandidate, describe_unloaded, find_installed, from_text, load_plugin
from rookery.plugins.observe import SessionObserver
from rookery.plugins.opencode import (
    FOLDERS,
    SUFFIXES,
    describe_running,
    describe_sleeping,
    describe_unapproved,
    list_named,
    read_load_errors,
)
from rookery.plugins.records import PluginLimits, PluginShown, PluginState
from rookery.plugins.registry import PluginContext, PluginKey, PluginOrigin, PluginRegistry
from rookery.plugins.service import Plugins
from rookery.sessions.service import Sessions
from rookery.system.bus import Bus, Event
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.ids import project_id
from rookery.system.tasks import TaskSet
from rookery.workspaces.model import Workspace, format_path
from rookery.workspaces.projects import Project, Projects
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

LoadPlugin = Callable[[Plugin, PluginOrigin], Awaitable[PluginKey]]
EndPlugin = Callable[[PluginKey], Awaitable[None]]
ReportUnloaded = Callable[[PluginCandidate, RookeryError], PluginShown]

_CHANGED_NOTE = "its file has changed; the loaded version runs until the new content is approved or the daemon restarts"
_DELETED_NOTE = "its file was deleted; it runs until the daemon restarts"

T = TypeVar("T")
# No plugin can have this name.
STATE_FILES_TABLE = "state_files"
KNOWN_STATE_FILES = {
    "oh-my-opencode": ".omo/boulder.json",
    "sisyphus": ".sisyphus/boulder.json",
    "nexus": ".nexus/boulder/state.json",
}
_CONFIG_SECONDS = 10.0
# More lines than the log of an agent ever holds.
_MAX_LOG_LINES = 1_000_000


@dataclass(frozen=True)
class _PluginFile:
    """The result of loading a file with this content: it runs, or could not be loaded."""

    project: str
    digest: str
    key: PluginKey | None = None
    failed: PluginShown | None = None


class ProjectPlugins:
    """Loads the approved plugin files of projects.

    When a file changes, the loaded plugin continues to run until other content of the file is approved.
    """

    def __init__(
        self, files: PluginApprovals, load: LoadPlugin, end: EndPlugin, report_unloaded: ReportUnloaded
    ) -> None:
        self._files = files
        self._start = load
        self._stop = end
        self._report_unloaded = report_unloaded
        self._loaded: dict[str, _PluginFile] = {}
        self._lock = asyncio.Lock()

    async def load(self, project: Project) -> None:
        """Load all plugins of a project that are approved and do not run."""
        async with self._lock:
            for subject in await self._files.read_subjects(project):
                loaded = self._loaded.get(subject.source)
                if loaded is None or (loaded.key is None and loaded.digest != subject.digest):
                    await self._load(project, subject)

    async def on_decision(self, project: Project, name: str) -> None:
        """Replace a running plugin by the content that is now approved; end it if none is."""
        async with self._lock:
            for subject in await self._files.read_subjects(project):
                if subject.name == name:
                    await self._end(subject.source)
                    await self._load(project, subject)
            # The file may have been deleted while its plugin still runs.
            for source in [path for path in self._list_sources(project.id) if PurePath(path).name == name]:
                if not any(subject.source == source for subject in await self._files.read_subjects(project)):
                    await self._end(source)

    async def forget(self, project: str) -> None:
        async with self._lock:
            for source in self._list_sources(project):
                await self._end(source)

    async def list_notes(self, projects: Iterable[Project]) -> Mapping[PluginKey, str]:
        """Return notes on the running plugins whose files have changed or were deleted."""
        digests = {
            subject.source: subject.digest
            for project in projects
            for subject in await self._files.read_subjects(project)
        }
        return {
            loaded.key: _CHANGED_NOTE if source in digests else _DELETED_NOTE
            for source, loaded in self._loaded.items()
            if loaded.key is not None and digests.get(source) != loaded.digest
        }

    async def list_not_running(self, project: Project) -> Sequence[PluginShown]:
        """Return the plugins of a project that do not run, and the content that needs approval."""
        await self.load(project)
        plugins: list[PluginShown] = []
        for subject in await self._files.read_subjects(project):
            loaded = self._loaded.get(subject.source)
            if loaded is not None and loaded.digest == subject.digest:
                plugins += [loaded.failed] if loaded.failed is not None else []
            elif not await self._files.is_approved(subject):
                plugins.append(_describe_waiting(project, subject, loaded is not None))
        return plugins

    async def _load(self, project: Project, subject: Subject) -> None:
        if not await self._files.is_approved(subject):
            return
        # The exact text that is approved: the file may have changed since.
        plugin = from_text(PurePath(subject.name).stem, subject.content, PluginOrigin(subject.source, project.id))
        try:
            key = await self._start(await load_plugin(plugin), plugin.origin)
            self._loaded[subject.source] = _PluginFile(project.id, subject.digest, key)
        except RookeryError as error:
            self._loaded[subject.source] = _PluginFile(
                project.id, subject.digest, failed=self._report_unloaded(plugin, error)
            )

    async def _end(self, source: str) -> None:
        loaded = self._loaded.pop(source, None)
        if loaded is not None and loaded.key is not None:
            await self._stop(loaded.key)

    def _list_sources(self, project: str) -> list[str]:
        return [source for source, loaded in self._loaded.items() if loaded.project == project]


def _describe_waiting(project: Project, subject: Subject, runs: bool) -> PluginShown:
    why = f"it cannot be approved: {subject.problem}" if subject.problem else f"rookery guard approve {subject.name}"
    return PluginShown(
        name=PurePath(subject.name).stem,
        kind="rookery",
        origin=subject.source,
        status="needs_approval",
        project=project.id,
        note=f"an earlier version of it runs; {why}" if runs else why,
    )


class GatewayHooks:
    """Adds plugin hooks to the gateway only while a plugin has such a hook: without any, calls take the fast path."""

    def __init__(self, hooks: Hooks, registry: PluginRegistry, project_of: Callable[[Path], Path]) -> None:
        self._hooks = hooks
        self._registry = registry
        self._project_of = project_of
        self._project_id = functools.lru_cache(maxsize=256)(project_id)
        # Kept, since each access to a method makes a new object.
        self._own_hooks: tuple[Before, After] = self._before, self._after

    def update(self) -> None:
        """Add or remove the hooks, after those of the plugins have changed."""
        before, after = self._own_hooks
        self._hooks.before = _with_hook(self._hooks.before, before, self._registry.wants(BEFORE))
        self._hooks.after = _with_hook(self._hooks.after, after, self._registry.wants(AFTER))

    async def _before(self, call: ToolCall) -> Raw | None:
        event = self._event(BEFORE, call)
        updated = await self._registry.apply_call_hooks(event)
        return Raw(msgspec.json.encode(updated.arguments)) if updated.arguments is not event.arguments else None

    async def _after(self, call: ToolCall, result: Raw) -> Raw | None:
        event = msgspec.structs.replace(self._event(AFTER, call), result=msgspec.json.decode(result))
        updated = await self._registry.apply_call_hooks(event)
        return Raw(msgspec.json.encode(updated.result)) if updated.result is not event.result else None

    def _event(self, hook: str, call: ToolCall) -> CallEvent:
        path = call.workspace
        return CallEvent(
            hook=hook,
            at=SYSTEM_CLOCK.wall() * 1000,
            project=self._project_id(self._project_of(Path(path))) if path is not None else "",
            path=path or "",
            server=call.server,
            tool=call.tool,
            name=call.public,
            arguments=msgspec.json.decode(call.arguments),
        )


def _with_hook(hooks: list[T], own: T, wanted: bool) -> list[T]:
    others = [hook for hook in hooks if hook is not own]
    return [*others, own] if wanted else others


class PluginStateFiles:
    """The state files that OpenCode's plugins keep in workspaces; settings can add paths."""

    def __init__(self, files: FilesService, workspaces: Workspaces, settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._files = files
        self._workspaces = workspaces
        self._paths = dict(KNOWN_STATE_FILES)
        for name, path in settings.get(STATE_FILES_TABLE, {}).items():
            if isinstance(path, str):
                self._paths[name] = path
            else:
                logger.warning("plugins.%s.%s is not a path and is ignored", STATE_FILES_TABLE, name)

    async def list_states(self, scope: Path | None) -> list[PluginState]:
        """Return the state files that exist, one record each; one that cannot be read has an error."""
        states: list[PluginState] = []
        for workspace in await self._workspaces.finder.list():
            if scope in (None, workspace.path) and workspace.state not in ("missing", "deleting"):
                records = [await self._read(workspace, name, path) for name, path in self._paths.items()]
                states += [record for record in records if record is not None]
        return states

    async def _read(self, workspace: Workspace, name: str, path: str) -> PluginState | None:
        fields = {"plugin": name, "workspace": format_path(workspace.path), "project": workspace.project.id}
        try:
            content = await read_content(
                (await self._files.get_files(workspace.path)).root, path, max_bytes=MAX_READ_BYTES
            )
        except RookeryError as error:
            return None if error.code == "file-not-found" else PluginState(**fields, error=error.message)
        if content.cut:
            return PluginState(**fields, error=f"{path}: {content.cut}")
        try:
            return PluginState(**fields, state=msgspec.json.decode(content.text))
        except (msgspec.DecodeError, RecursionError) as error:
            return PluginState(**fields, error=f"{path} is not valid JSON: {error}")


class OpenCodePlugins:
    """The plugins that OpenCode itself loads. No agent is started to list them."""

    def __init__(self, agents: AgentManager) -> None:
        self._agents = agents

    async def all(self, scope: Path | None) -> Sequence[PluginShown]:
        agents = [agent for path, agent in self._agents.agents.items() if scope in (None, path)]
        groups = await asyncio.gather(*map(self._list_of_agent, agents))
        return [plugin for group in groups for plugin in group]

    async def _list_of_agent(self, agent: WorkspaceAgent) -> list[PluginShown]:
        workspace = agent.workspace
        run = agent.supervisor.run
        folder = format_path(workspace.path)
        files = await asyncio.to_thread(_list_plugin_files, workspace.path)
        if run is None:
            return [describe_sleeping(file, folder) for file in files]
        try:
            async with asyncio.timeout(_CONFIG_SECONDS):
                specs = list_named(await run.client.config())
        except (RookeryError, TimeoutError):
            return [describe_sleeping(file, folder) for file in files]
        lines = await self._agents.log_lines(workspace, _MAX_LOG_LINES)
        # These are about two megabytes.
        errors = await asyncio.to_thread(read_load_errors, lines, run.client.directory)
        off = [] if run.started.context.project_config else [file for file in files if file not in specs]
        return [
            *(describe_running(spec, folder, errors) for spec in specs),
            *(describe_unapproved(file, folder) for file in off),
        ]


def _list_plugin_files(root: Path) -> list[str]:
    """Return the URIs of the files that OpenCode loads as plugins, as its config names them."""
    uris: list[str] = []
    for folder in FOLDERS:
        try:
            names = sorted(entry.name for entry in (root / folder).iterdir())
        except OSError:
            continue
        uris += [(root.resolve() / folder / name).as_uri() for name in names if name.endswith(SUFFIXES)]
    return uris


@dataclass(frozen=True)
class PluginCollaborators:
    """The parts of the daemon that plugins use."""

    projects: Projects
    agents: AgentManager
    sessions: Sessions
    gateway: GatewayService
    files: FilesService
    events: Bus


class PluginsService:
    """Loads and ends all plugins.

    Those in `built_in` are loaded at the start; the others are loaded in the background, so that none delays the start.
    """

    name = "plugins"
    needs: Sequence[str] = ("sessions",)

    def __init__(
        self,
        settings: Settings,
        state: Path,
        collaborators: PluginCollaborators,
        approvals: PluginApprovals,
        built_in: Sequence[Plugin] = (),
    ) -> None:
        hook_settings = settings.hooks
        limits = PluginLimits(
            hook_settings.seconds, hook_settings.event_seconds, hook_settings.queue, hook_settings.failures
        )
        self._built_in = built_in
        self.registry = PluginRegistry(PluginContext(collaborators.sessions, state, settings.plugins, limits))
        self.plugins = Plugins(self.registry, self, collaborators.sessions)
        self._projects = ProjectPlugins(approvals, self._load, self._end, self._report_unloaded)
        self._collaborators = collaborators
        self._opencode = OpenCodePlugins(collaborators.agents)
        workspaces = collaborators.gateway.lookup
        self._states = PluginStateFiles(
            collaborators.files, collaborators.files.workspaces.workspaces, settings.plugins
        )
        self.registry.on_change = GatewayHooks(collaborators.gateway.hooks, self.registry, workspaces.project_of).update
        self._observers: dict[Path, SessionObserver] = {}
        self._failed: list[PluginShown] = []
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._tasks = TaskSet("plugins")
        collaborators.agents.listeners.append(self._on_agent_started)

    async def start(self) -> None:
        for plugin in self._built_in:
            await self._load(plugin, PluginOrigin("built in", version=plugin.version))
        self._tasks.keep_running(follow_bus(self._collaborators.events, self._on_event), "projects")
        self._loaded.clear()
        self._tasks.start(self._load_all(), "load")

    async def stop(self) -> None:
        await self._tasks.close()
        await self.registry.close()

    # Loading

    async def _load_all(self) -> None:
        try:
            for plugin in await asyncio.to_thread(lambda: list(find_installed())):
                await self._load_installed(plugin)
            for project in await self._collaborators.projects.all():
                await self._projects.load(project)
        finally:
            self._loaded.set()

    async def _load_installed(self, plugin: PluginCandidate) -> None:
        try:
            await self._load(await load_plugin(plugin), plugin.origin)
        except RookeryError as error:
            self._failed.append(self._report_unloaded(plugin, error))

    async def _load(self, plugin: Plugin, origin: PluginOrigin) -> PluginKey:
        key = await self.registry.add(plugin, origin)
        logger.info("plugin %s runs (%s)", plugin.name, origin.text)
        self._collaborators.events.publish("plugin.loaded", plugin=key.name, project=key.project, origin=origin.text)
        now = SYSTEM_CLOCK.wall() * 1000
        for observer in self._observers.values():
            for event in observer.current_events(now):
                self.registry.publish(event, key)
        return key

    async def _end(self, key: PluginKey) -> None:
        await self.registry.remove(key)
        self._collaborators.events.publish("plugin.ended", plugin=key.name, project=key.project)

    def _report_unloaded(self, plugin: PluginCandidate, error: RookeryError) -> PluginShown:
        """Report that a plugin could not be loaded."""
        logger.error("%s", error.message)
        self._collaborators.events.publish(
            "plugin.failed", plugin=plugin.name, project=plugin.origin.project, error=error.as_dict()
        )
        return describe_unloaded(plugin, error, SYSTEM_CLOCK.wall() * 1000)

    async def on_decision(self, key: ApprovalKey) -> None:
        """Update a plugin after its file was approved, or its approval was withdrawn."""
        for project in await self._collaborators.projects.all():
            if os.path.realpath(project.path) == key.place:
                await self._projects.on_decision(project, key.name)

    async def _on_event(self, event: Event) -> None:
        if event.type == "project.added":
            await self._projects.load(msgspec.convert(event.data["project"], Project))
        elif event.type == "project.removed":
            await self._projects.forget(event.data["project"]["id"])

    # Events

    def _on_agent_started(self, agent: WorkspaceAgent, run: AgentRun) -> None:
        """Observe the events of an agent that has started, and pass them on to plugins."""
        for path in self._observers.keys() - self._collaborators.agents.agents.keys():
            del self._observers[path]
        path = agent.workspace.path
        if path not in self._observers:
            self._observers[path] = SessionObserver(agent.workspace, self.registry.wants)
        observer = self._observers[path]

        def on_event(event: AgentEvent) -> None:
            for observed in observer.on_event(event, run.watcher, SYSTEM_CLOCK.wall() * 1000):
                self.registry.publish(observed)

        run.listeners.append(on_event)

    # Functions for the REST and MCP interfaces

    async def wait_until_ready(self) -> None:
        """Wait until all plugins are loaded."""
        await self._loaded.wait()

    async def project_of(self, scope: Path) -> str | None:
        located = await self._collaborators.gateway.lookup.find_at(str(scope))
        return located.workspace.project.id if located is not None else None

    async def notes(self) -> Mapping[PluginKey, str]:
        return await self._projects.list_notes(await self._collaborators.projects.all())

    async def list_not_running(self, scope: Path | None) -> Sequence[PluginShown]:
        """Return the plugins that do not run, and those of OpenCode."""
        await self.wait_until_ready()
        own = await self.project_of(scope) if scope is not None else None
        projects = [
            project for project in await self._collaborators.projects.all() if scope is None or project.id == own
        ]
        idle = [plugin for project in projects for plugin in await self._projects.list_not_running(project)]
        return [*self._failed, *idle, *await self._opencode.all(scope)]

    async def list_state_files(self, scope: Path | None) -> Sequence[PluginState]:
        return await self._states.list_states(scope)
