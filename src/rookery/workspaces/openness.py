"""Which workspaces are open: what belongs to them runs, and is started again when the daemon starts."""

import asyncio
import logging
from collections import defaultdict
from pathlib import Path
from typing import Protocol

import msgspec

from rookery.system.bus import Bus
from rookery.system.store import Store
from rookery.workspaces.record import Workspace
from rookery.workspaces.vanishing import Vanishing
from rookery.workspaces.worktrees import made_at

logger = logging.getLogger("rookery.workspaces")


class Companion(Protocol):
    """Something that comes and goes with an open workspace, such as its agent. What takes time, it does by itself."""

    async def opened(self, workspace: Workspace) -> None: ...

    async def closed(self, workspace: Workspace) -> bool:
        """End all that is there of it, even if it was never opened; whether there was anything."""
        ...


class Openness:
    """Opening and closing take turns, one workspace apart from the other. Companions close in reverse order."""

    def __init__(self, store: Store, events: Bus) -> None:
        self.companions: list[Companion] = []
        self.vanishing = Vanishing()
        self._store, self._events = store, events
        self._open: dict[Path, int] = {}
        self._turns: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self) -> None:
        """What was open when the daemon stopped; those that are gone are forgotten."""
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, made FROM open_workspaces").fetchall()
        )
        self._open = {Path(workspace): made for workspace, made in rows}
        for own in [one for one in self._open if not one.is_dir() or one not in self]:
            await self._strike_out(own)

    def __contains__(self, own: object) -> bool:
        """Whether the workspace with this git folder is open, and not only an earlier one in its place."""
        return isinstance(own, Path) and own in self._open and made_at(own) == self._open[own]

    async def open(self, workspace: Workspace, own: Path) -> Workspace:
        """Open one that is not; answers how it is then."""
        async with self._turns[own]:
            now = msgspec.structs.replace(workspace, open=True)
            if await self._mark(now, own):
                await self._bring(now, own)
            return now

    async def mark(self, workspace: Workspace, own: Path) -> None:
        """Open one without starting anything yet; `bring` does that."""
        async with self._turns[own]:
            await self._mark(msgspec.structs.replace(workspace, open=True), own)

    async def bring(self, workspace: Workspace, own: Path) -> None:
        """Start what belongs to one that is open already."""
        async with self._turns[own]:
            if own in self:
                await self._bring(workspace, own)

    async def close(self, workspace: Workspace, own: Path) -> bool:
        """End what runs for a workspace, open or not; whether there was anything."""
        async with self._turns[own]:
            self.vanishing.drop(own)
            ended = [await self._ended(one, workspace) for one in reversed(self.companions)]
            if own in self._open:
                await self._strike_out(own)
                self._events.publish("workspace.closed", **msgspec.structs.replace(workspace, open=False).as_dict())
            return any(ended)

    async def _mark(self, workspace: Workspace, own: Path) -> bool:
        if own in self:
            return False
        made = made_at(own)
        await self._write("INSERT OR REPLACE INTO open_workspaces VALUES (?, ?)", str(own), made)
        self._open[own] = made
        self._events.publish("workspace.opened", **workspace.as_dict())
        return True

    async def _bring(self, workspace: Workspace, own: Path) -> None:
        try:
            self.vanishing.hold(workspace, own)
        except OSError as error:
            logger.warning("%s is open, but cannot be watched: %s", workspace.path, error.strerror)
        for companion in self.companions:
            try:
                await companion.opened(workspace)
            except Exception:
                logger.exception("%s is open, but not all that belongs to it runs", workspace.path)

    async def _ended(self, companion: Companion, workspace: Workspace) -> bool:
        try:
            return await companion.closed(workspace)
        except Exception:
            logger.exception("not all that belongs to %s has ended", workspace.path)
            return True

    async def _strike_out(self, own: Path) -> None:
        self._open.pop(own, None)
        await self._write("DELETE FROM open_workspaces WHERE workspace = ?", str(own))

    async def _write(self, sql: str, *values: str | int) -> None:
        await self._store.write(lambda db: db.execute(sql, values))
