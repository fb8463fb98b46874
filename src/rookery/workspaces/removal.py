"""Deleting, restoring and the trash as one thing: what the service of the workspaces needs of them."""

import asyncio
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.workspaces.deletion import Deletions, Roots, Stop
from rookery.workspaces.listing import Found
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.progress import Progress
from rookery.workspaces.restoring import Restorations
from rookery.workspaces.trash import Trash, Trashed


class Removals:
    """`days` and `limit` (in bytes) say when the trash is emptied."""

    def __init__(
        self,
        state: Path,
        git: Git,
        locks: RepositoryLocks,
        events: Bus,
        stop: Stop,
        *,
        days: float = 14.0,
        limit: int = 20 * 2**30,
        clock: Clock = SYSTEM_CLOCK,
        roots: Roots | None = None,
    ) -> None:
        self.trash = Trash(state, git, locks, clock)
        self._deletions = Deletions(state, git, locks, events, self.trash, stop, clock, roots)
        self._restorations = Restorations(state, git, locks, events, self.trash)
        self._days, self._limit = days, limit

    async def resume(self) -> None:
        """Finish what an earlier daemon was at: before anyone looks for worktrees that were moved or are half-made."""
        await self._restorations.resume()
        await self._deletions.resume()

    async def close(self) -> None:
        await self._deletions.close()

    async def delete(
        self, found: Found, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> Progress | None:
        """Refuse, or begin; with `wait` answers how it ended, and raises what made it fail."""
        task = await self._deletions.start(found, force=force, keep_branch=keep_branch)
        if not wait:
            return None
        ended = await asyncio.shield(task)
        if ended.error is not None:
            raise ended.error
        return ended

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Progress:
        """Bring back what has this id in the trash, or the newest of that name."""
        one = self.trash.get(wanted, project)
        if one.id in [intent.trashed.id for intent in self._deletions.intents.all()]:
            raise RookeryError("invalid-input", f"{one.name} is still on its way", "try again in a moment")
        return await self._restorations.restore(one, to)

    async def empty_trash(self) -> list[Trashed]:
        """Purge what is too old or too much."""
        return await self.trash.empty(days=self._days, limit=self._limit, busy=self._busy)

    async def purge(self, wanted: str | None = None, project: str | None = None) -> list[Trashed]:
        """Purge one entry, or all of them (of a project), whatever their age."""
        named = [self.trash.get(wanted, project)] if wanted is not None else self.trash.all()
        return [one for one in named if project in (None, one.project.id) and await self.trash.purge(one, self._busy)]

    def _busy(self) -> list[str]:
        under_way = (*self._deletions.intents.all(), *self._restorations.intents.all())
        return [intent.trashed.id for intent in under_way]
