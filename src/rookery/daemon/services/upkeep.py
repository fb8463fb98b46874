"""What goes on by itself while the daemon runs: open workspaces come back, the trash is emptied, the user is told."""

import asyncio
import logging
from collections.abc import Sequence

from rookery.daemon.follow import follow
from rookery.daemon.notifying import Notifier
from rookery.daemon.settings import Settings
from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")

_DAY = 86_400.0
# Looked at more often than needed: a machine that slept does not know how long.
_PAUSE = 900.0


class Emptying:
    """Empties the trash at the start, and then each day."""

    def __init__(self, workspaces: Workspaces, clock: Clock = SYSTEM_CLOCK) -> None:
        self._workspaces, self._clock = workspaces, clock
        self._last: float | None = None

    async def look(self) -> bool:
        """Empty it if a day has passed, or the clock was set back; whether it was looked through."""
        now = self._clock.wall()
        if self._last is not None and 0 <= now - self._last < _DAY:
            return False
        self._last = now
        try:
            await self._workspaces.removals.empty_trash()
        except (RookeryError, OSError) as error:
            logger.error("the trash could not be emptied: %s", error)
        return True

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_PAUSE)


class UpkeepService:
    name = "upkeep"
    needs: Sequence[str] = ("agents",)

    def __init__(self, settings: Settings, workspaces: Workspaces, spawner: Spawner, events: Bus) -> None:
        self._workspaces, self._events = workspaces, events
        self._notifier = Notifier(settings.notify.command, workspaces, spawner)
        self._emptying = Emptying(workspaces)
        self._tasks = TaskSet("upkeep")

    async def start(self) -> None:
        await self._notifier.begin()
        if self._notifier.command:
            self._tasks.start(follow(self._events, self._notifier.heard), "notify")
        self._tasks.start(self._emptying.run(), "trash")
        await self._workspaces.bring_back()

    async def stop(self) -> None:
        await self._tasks.close()
        await self._notifier.close()
