"""The running plugins: start and stop them, deliver events to them, and query them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.plugins.api import CallEvent, Event, House, Plugin
from rookery.plugins.records import PluginLimits, PluginShown
from rookery.plugins.runner import HookState, PluginCalls, RunningPlugin
from rookery.sessions.service import Sessions
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import append_line
from rookery.system.fs.paths import ensure_private_folder


@dataclass(frozen=True)
class PluginOrigin:
    """The origin of a plugin, as `text`. `project` is the id of the only project whose events the plugin receives."""

    text: str
    project: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class PluginKey:
    """Identifies a plugin. Each project may have one of the same name; a plugin for all projects has no project."""

    project: str | None
    name: str


@dataclass
class PluginContext:
    """The services that all plugins share. `settings` has their tables by name."""

    sessions: Sessions
    state: Path
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    limits: PluginLimits = PluginLimits()  # noqa: RUF009 - frozen
    clock: Clock = SYSTEM_CLOCK

    def create_house(self, key: PluginKey, caller: PluginCalls) -> House:
        """Return the services for one plugin, and create its state folder."""
        above = self.state / "projects" / key.project if key.project is not None else self.state
        try:
            above.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            message = f"{above} cannot be created: {error.strerror}"
            raise RookeryError("state-unusable", message, "check the free space and the owner of the folder") from error
        folder = ensure_private_folder(ensure_private_folder(above / "plugins") / key.name)
        return House(
            plugin=key.name,
            sessions=self.sessions,
            clock=self.clock,
            tasks=caller.tasks,
            state_folder=folder,
            audit=lambda line: append_line(folder / "audit.log", f"{iso(self.clock.wall())} {' '.join(line.split())}"),
            settings=self.settings.get(key.name, {}),
            log=logging.getLogger(f"rookery.plugins.{key.name}"),
        )


class PluginRegistry:
    """The running plugins. `on_change` is called when the set of wanted hooks may have changed."""

    def __init__(self, context: PluginContext) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._context = context
        self._running: dict[PluginKey, tuple[RunningPlugin, PluginOrigin]] = {}
        self._hooks: dict[str, list[HookState]] = {}
        self._lock = asyncio.Lock()

    # Lifecycle

    async def add(self, plugin: Plugin, origin: PluginOrigin) -> PluginKey:
        """Start a plugin; raise RookeryError if its name is taken, or if it fails to start."""
        key = PluginKey(origin.project, plugin.name)
        async with self._lock:
            if key in self._running or PluginKey(None, plugin.name) in self._running:
                raise RookeryError("invalid-input", f"another plugin has the name {plugin.name}", "rename one of them")
            contained = PluginCalls(plugin.name, self._context.clock)
            house = self._context.create_house(key, contained)
            running = RunningPlugin(plugin, house, contained, self._context.limits, self._changed)
            try:
                await running.start()
            except BaseException:
                await contained.close()
                raise
            self._running[key] = running, origin
        self._changed()
        return key

    async def remove(self, key: PluginKey) -> None:
        async with self._lock:
            running, _ = self._running.pop(key)
            self._changed()
            await running.stop()

    async def close(self) -> None:
        """Stop all plugins, the newest first."""
        for key in reversed(list(self._running)):
            await self.remove(key)

    def _changed(self) -> None:
        self._hooks = {}
        for running, _ in self._running.values():
            for hook_state in running.hooks:
                self._hooks.setdefault(hook_state.hook.name, []).append(hook_state)
        self.on_change()

    # Events

    def wants(self, *hooks: str) -> bool:
        """Return whether any plugin wants events of one of these hooks."""
        for hook in hooks:
            for hook_state in self._hooks.get(hook, ()):
                if hook_state.wants(hook):
                    return True
        return False

    def publish(self, event: Event, only: PluginKey | None = None) -> None:
        """Deliver an event to all plugins that it concerns, or to one of them."""
        for key, (running, _) in self._running.items():
            if only in (None, key) and _concerns(key, event):
                running.enqueue(event)

    async def apply_call_hooks(self, event: CallEvent) -> CallEvent:
        """Pass a call through the hooks of all plugins, one after the other, and return the result."""
        for key, (running, _) in list(self._running.items()):
            if _concerns(key, event):
                event = await running.apply_call_hooks(event)
        return event

    # Queries

    def visible_to(self, project: str | None) -> dict[PluginKey, RunningPlugin]:
        """Return the plugins that a project may see; None is for the owner, who sees all."""
        return {
            key: running
            for key, (running, _) in self._running.items()
            if project is None or key.project in (None, project)
        }

    async def describe(self, key: PluginKey, scope: Path | None) -> PluginShown | None:
        """Describe a plugin; None if it has just been stopped."""
        if key not in self._running:
            return None
        running, origin = self._running[key]
        last = running.caller.last
        try:
            keys = tuple(await running.state(scope))
        except RookeryError:
            keys = ()
            last = running.caller.last
        return PluginShown(
            name=key.name,
            kind="rookery",
            origin=origin.text,
            status="loaded",
            version=running.plugin.version or origin.version,
            description=running.plugin.description,
            project=key.project,
            hooks=tuple(hook_state.describe() for hook_state in running.hooks),
            actions=running.describe_actions(),
            state=keys,
            error=f"{last.where}: {last.message}" if last is not None else None,
            error_at=last.at if last is not None else None,
            failures=running.caller.failures,
        )


def _concerns(key: PluginKey, event: Event) -> bool:
    return key.project in (None, event.project)
