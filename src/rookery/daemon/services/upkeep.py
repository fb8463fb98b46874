"""Background work of the daemon: reopen workspaces, empty the trash, notify the user."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.services.notify import Notifier
from rookery.daemon.settings.schema import Settings
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

_DAY = 86_400.0
# Shorter than the interval of emptying: a machine that slept does not know how long, and each check saves the time.
_CHECK_SECONDS = 900.0


class TrashEmptying:
    """Empties the trash at the start, and then each day."""

    def __init__(self, workspaces: Workspaces, clock: Clock = SYSTEM_CLOCK) -> None:
        self._workspaces = workspaces
        self._clock = clock
        self._last: float | None = None

    async def empty_if_due(self) -> bool:
        """Empty the trash if a day has passed; return whether it was due."""
        # Uptime, which includes sleep; the time of day may be wrong.
        _, now = self._clock.uptime()
        due = self._last is None or now - self._last >= _DAY
        try:
            self._workspaces.deletions.trash.save_time()
            if not due:
                return False
            self._last = now
            purged = await self._workspaces.deletions.empty_trash()
            logger.debug("checked the trash: %d purged", len(purged))
        except (RookeryError, OSError) as error:
            logger.error("the trash could not be emptied: %s", error)
        return True

    async def run(self) -> None:
        while True:
            await self.empty_if_due()
            await asyncio.sleep(_CHECK_SECONDS)


class UpkeepService:
    """Runs the background work of the daemon."""

    name = "upkeep"
    needs: Sequence[str] = ("agents",)

    def __init__(self, settings: Settings, tools: WorkspaceOperations, spawner: Spawner, events: Bus) -> None:
        self._workspaces = tools.workspaces
        self._events = events
        notify = settings.notify
        self.notifier = Notifier(notify.command, tools.overview, spawner, events, notify.check_seconds)
        self._trash = TrashEmptying(tools.workspaces)
        self._tasks = TaskSet("upkeep")

    async def start(self) -> None:
        if self.notifier.command:
            follow_events = follow_bus(self._events, self.notifier.on_event)
            await self.notifier.begin()
            self._tasks.keep_running(follow_events, "notify events")
            self._tasks.keep_running(self.notifier.run, "notify")
        self._tasks.keep_running(self._trash.run, "trash")
        await self._workspaces.start_open_workspaces()

    async def stop(self) -> None:
        await self._tasks.close()
        with contextlib.suppress(OSError):  # then some of the time is lost, and entries are kept longer
            self._workspaces.deletions.trash.save_time()
        await self.notifier.close()
