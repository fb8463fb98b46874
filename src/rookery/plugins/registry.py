"""The plugins that run: who is told what, and who is asked."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.plugins.containment import Containment
from rookery.plugins.events import CallEvent, Event
from rookery.plugins.house import House
from rookery.plugins.plugin import Plugin
from rookery.plugins.records import Limits, PluginShown
from rookery.plugins.running import Hooked, RunningPlugin
from rookery.sessions.service import Sessions
from rookery.system.clock import SYSTEM_CLOCK, Clock, iso
from rookery.system.errors import RookeryError
from rookery.system.files import append_line
from rookery.system.places import ensure_private_folder


@dataclass(frozen=True)
class Origin:
    """Where a plugin comes from: `text` says so. `project` is the id of the only project that it is told of."""

    text: str
    project: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Key:
    """Each project may have a plugin of a name; one of everybody's has no project."""

    project: str | None
    name: str


@dataclass
class Ground:
    """What all plugins live on. `settings` are their tables by name."""

    sessions: Sessions
    state: Path
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    clock: Clock = SYSTEM_CLOCK

    def house(self, key: Key, contained: Containment) -> House:
        above = self.state / "projects" / key.project if key.project is not None else self.state
        try:
            above.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            message = f"{above} cannot be made: {error.strerror}"
            raise RookeryError("state-unusable", message, "see that there is room, and that it is yours") from error
        folder = ensure_private_folder(ensure_private_folder(above / "plugins") / key.name)
        return House(
            plugin=key.name,
            sessions=self.sessions,
            clock=self.clock,
            tasks=contained.tasks,
            state_folder=folder,
            audit=lambda line: append_line(folder / "audit.log", f"{iso(self.clock.wall())} {' '.join(line.split())}"),
            settings=self.settings.get(key.name, {}),
            log=logging.getLogger(f"rookery.plugins.{key.name}"),
        )


class Registry:
    """`on_change` is called when which hooks are wanted may have changed."""

    def __init__(self, ground: Ground) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._ground = ground
        self._running: dict[Key, tuple[RunningPlugin, Origin]] = {}
        self._hooks: dict[str, list[Hooked]] = {}
        self._changing = asyncio.Lock()

    # ---- coming and going

    async def add(self, plugin: Plugin, origin: Origin) -> Key:
        """Start it; raises RookeryError if its name is taken, or it fails to start."""
        key = Key(origin.project, plugin.name)
        async with self._changing:
            if key in self._running or Key(None, plugin.name) in self._running:
                raise RookeryError("invalid-input", f"another plugin is called {plugin.name}", "rename one of them")
            contained = Containment(plugin.name, self._ground.clock)
            house = self._ground.house(key, contained)
            running = RunningPlugin(plugin, house, contained, self._ground.limits, self._changed)
            try:
                await running.start()
            except BaseException:
                await contained.close()
                raise
            self._running[key] = running, origin
        self._changed()
        return key

    async def remove(self, key: Key) -> None:
        async with self._changing:
            running, _ = self._running.pop(key)
            self._changed()
            await running.stop()

    async def close(self) -> None:
        """What came last goes first."""
        for key in reversed(list(self._running)):
            await self.remove(key)

    def _changed(self) -> None:
        self._hooks = {}
        for running, _ in self._running.values():
            for one in running.hooks:
                self._hooks.setdefault(one.hook.name, []).append(one)
        self.on_change()

    # ---- what is told

    def wants(self, *hooks: str) -> bool:
        for hook in hooks:
            for one in self._hooks.get(hook, ()):
                if one.wants(hook):
                    return True
        return False

    def tell(self, event: Event, only: Key | None = None) -> None:
        """Tell everybody whom it concerns, or one of them."""
        for key, (running, _) in self._running.items():
            if only in (None, key) and _concerns(key, event):
                running.tell(event)

    async def passed(self, event: CallEvent) -> CallEvent:
        """The call as all of them leave it, one after the other."""
        for key, (running, _) in list(self._running.items()):
            if _concerns(key, event):
                event = await running.passed(event)
        return event

    # ---- what is asked

    def seen(self, project: str | None) -> dict[Key, RunningPlugin]:
        """Those that a project is told of; of the owner's, who has none, all."""
        return {
            key: running
            for key, (running, _) in self._running.items()
            if project is None or key.project in (None, project)
        }

    async def shown(self, key: Key, scope: Path | None) -> PluginShown | None:
        """None where it has just ended."""
        if key not in self._running:
            return None
        running, origin = self._running[key]
        last = running.contained.last
        try:
            keys = tuple(await running.state(scope))
        except RookeryError:
            keys, last = (), running.contained.last
        return PluginShown(
            name=key.name,
            kind="rookery",
            origin=origin.text,
            status="loaded",
            version=running.plugin.version or origin.version,
            description=running.plugin.description,
            project=key.project,
            hooks=tuple(one.shown() for one in running.hooks),
            actions=running.actions_shown(),
            state=keys,
            error=f"{last.where}: {last.message}" if last is not None else None,
            error_at=last.at if last is not None else None,
            failures=running.contained.failures,
        )


def _concerns(key: Key, event: Event) -> bool:
    return key.project in (None, event.project)
