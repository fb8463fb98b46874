"""Plugins that run in the test process, without sessions, and a record of their events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from rookery.plugins import CallEvent, Plugin, SessionEvent
from rookery.plugins.records import PluginLimits, PluginShown
from rookery.plugins.registry import PluginContext, PluginKey, PluginOrigin, PluginRegistry
from rookery.sessions.service import Sessions
from tests.support.clock import SetClock
from tests.support.mcp.client import LIMIT
from tests.support.tasks import require_no_tasks_since

QUICK = PluginLimits(seconds=LIMIT, event_seconds=LIMIT, queue=1000, failures=3)
# For what is to be given up: long enough for whatever is not.
IMPATIENT = PluginLimits(seconds=1.0, event_seconds=1.0, queue=1000, failures=3)
BUILT_IN = PluginOrigin("built in")


@asynccontextmanager
async def start_registry(
    folder: Path,
    *plugins: Plugin,
    limits: PluginLimits = QUICK,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> AsyncGenerator[PluginRegistry]:
    """Run a registry with these plugins; at the end no task is left."""
    before = asyncio.all_tasks()
    made = PluginRegistry(PluginContext(cast(Sessions, None), folder, settings or {}, limits, SetClock()))
    for plugin in plugins:
        await made.add(plugin, BUILT_IN)
    try:
        yield made
    finally:
        await made.close()
    require_no_tasks_since(before)


async def shown(registry: PluginRegistry, name: str) -> PluginShown:
    found = await registry.describe(PluginKey(None, name), None)
    assert found is not None
    return found


def idle(session: str = "ses_1", project: str = "app-1", **more: Any) -> SessionEvent:
    return SessionEvent(hook="session.idle", session_id=session, project=project, **more)


def make_call_event(hook: str = "tool.execute.before", **more: Any) -> CallEvent:
    given: dict[str, Any] = {"server": "files", "tool": "read", "name": "files_read", "arguments": {"path": "a"}}
    return CallEvent(hook=hook, **given | more)


class HookRecorder(list[Any]):
    """A record of a hook's events, for tests that wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def take(self, one: Any) -> None:
        self.append(one)
        self._more.set()

    async def until(self, true: Callable[["HookRecorder"], object]) -> None:
        async with asyncio.timeout(LIMIT):
            while not true(self):
                self._more.clear()
                await self._more.wait()

    async def has(self, count: int) -> None:
        await self.until(lambda heard: len(heard) >= count)
