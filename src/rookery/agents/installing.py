"""OpenCode is brought when it is first needed: once, however many agents wait for it, and told while it happens."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from rookery.agents.install import Installed, Installer
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet

Tell = Callable[[str], None]


class Installations:
    """`version` is the setting. Progress is published as `agent.installing`."""

    def __init__(self, state: Path, spawner: Spawner, events: Bus, version: str) -> None:
        self.version = version
        self._state, self._spawner, self._events = state, spawner, events
        self._running: asyncio.Task[Installed | RookeryError] | None = None
        self._listeners: list[Tell] = []
        self._tasks = TaskSet("install")

    async def get(
        self, environment: Mapping[str, str], tell: Tell = lambda _: None, *, again: bool = False
    ) -> Installed:
        """What is installed, brought here first if it is not. A caller that goes away does not end that."""
        if not again and (found := await self._installer(environment).find(self.version)):
            return found
        if self._running is None:
            self._running = self._tasks.start(self._bring(environment, again), "install")
        self._listeners.append(tell)
        try:
            found = await asyncio.shield(self._running)
        finally:
            self._listeners.remove(tell)
        if isinstance(found, RookeryError):
            raise RookeryError(found.code, found.message, found.remedy)
        return found

    async def close(self) -> None:
        await self._tasks.close()

    async def _bring(self, environment: Mapping[str, str], again: bool) -> Installed | RookeryError:
        try:
            found = await self._installer(environment).install(self.version, self._tell, again=again)
            self._events.publish("agent.installing", version=found.version, text="installed", done=True, error=None)
            return found
        except RookeryError as error:
            self._events.publish(
                "agent.installing", version=self.version, text=error.message, done=True, error=error.as_dict()
            )
            return error
        finally:
            self._running = None

    def _tell(self, text: str) -> None:
        self._events.publish("agent.installing", version=self.version, text=text, done=False, error=None)
        for tell in self._listeners:
            tell(f"OpenCode is being installed: {text}")

    def _installer(self, environment: Mapping[str, str]) -> Installer:
        return Installer(self._state, self._spawner, environment)
