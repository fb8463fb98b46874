"""Conditions for a first turn: the workspace is prepared, and few other first turns begin at the same time.

At the first turn in a worktree OpenCode takes a snapshot of all its files. That takes seconds on a large repository,
and several at once on few cores delay each other and all other requests to these agents.
"""

import asyncio
import contextlib
import os
from asyncio import Semaphore
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from rookery.system.bus import Event
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.workspaces.model import Workspace, format_path
from rookery.workspaces.service import Workspaces

# Events for a preparation that has begun or has ended.
_PREPARATION_EVENTS = frozenset({"workspace.preparing", "workspace.ready", "workspace.failed"})
PREPARING_TEXT = "the workspace is being prepared"
NEEDS_APPROVAL_TEXT = "the setup command of the workspace waits for approval"


class FirstTurnLimiter:
    """Limits the first turns that begin at the same time to `slots`, by default half the number of cores."""

    def __init__(self, slots: int | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._slots = Semaphore(max((os.cpu_count() or 1) // 2, 1) if slots is None else slots)
        self._waiters: list[Callable[[int], None]] = []
        self._clock = clock

    @contextlib.asynccontextmanager
    async def turn(self, on_position: Callable[[int], None]) -> AsyncGenerator[float]:
        """Wait for a slot, hold it until the end of the block, and yield the seconds that the wait took.

        `on_position` is called with the position in the queue, whenever that changes, and with 0 at the end of the
        wait.
        """
        started = self._clock.monotonic()
        if self._slots.locked():
            self._waiters.append(on_position)
            on_position(len(self._waiters))
        try:
            # Slots are assigned in the order of arrival.
            await self._slots.acquire()
        finally:
            self._leave(on_position)
        try:
            yield self._clock.monotonic() - started
        finally:
            self._slots.release()

    def _leave(self, on_position: Callable[[int], None]) -> None:
        if on_position not in self._waiters:
            return
        self._waiters.remove(on_position)
        on_position(0)
        for position, callback in enumerate(self._waiters, 1):
            callback(position)


class PreparationBarrier:
    """Holds agents back until their workspace is prepared.

    Agents also pass after a failed preparation. A preparation that waits for approval has not ended.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._changes: dict[str, asyncio.Event] = {}

    async def wait_until_prepared(self, workspace: Workspace, on_detail: Callable[[str], None]) -> Workspace:
        """Wait until the preparation has succeeded or failed, and return the workspace as it is then."""
        on_detail(PREPARING_TEXT)
        while True:
            changed = self._changes.setdefault(format_path(workspace.path), asyncio.Event())
            changed.clear()
            prepared = await self._workspaces.wait_until_prepared(workspace)
            if prepared.code != "needs-approval":
                return prepared
            on_detail(NEEDS_APPROVAL_TEXT)
            await changed.wait()

    def on_event(self, event: Event) -> None:
        """Wake the waiters of a workspace whose preparation has begun or has ended."""
        if event.type in _PREPARATION_EVENTS and (changed := self._changes.get(event.data["path"])):
            changed.set()

    def forget(self, path: Path) -> None:
        self._changes.pop(format_path(path), None)
