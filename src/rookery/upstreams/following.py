"""Follows the files that define servers, so that what a user changes counts without a restart."""

import os
from collections.abc import Awaitable, Callable, Set
from pathlib import Path

from rookery.system.tasks import TaskSet
from rookery.upstreams.configuration import Configuration
from rookery.upstreams.sources import Found
from rookery.upstreams.watch import watch


class Following:
    """`changed` hears of each directory whose files say something else now."""

    def __init__(self, changed: Callable[[Path | None], Awaitable[None]]) -> None:
        self._changed = changed
        self._configuration = Configuration(os.environ)
        self._tasks = TaskSet("following files")
        self._changes = TaskSet("changed files")

    def start(self) -> None:
        self._tasks.start(watch(self._configuration, self._told), "watch")

    async def close(self) -> None:
        await self._tasks.close()
        await self._changes.close()

    def read(self, directory: Path | None) -> Found:
        """What the files of a directory say; from now on they are watched."""
        return self._configuration.found(directory)

    def forget(self, directory: Path) -> None:
        """Its files are read anew when it is next asked for."""
        self._configuration.forget(directory)

    async def read_again(self) -> None:
        """Whoever has just written to one of the files does not want to wait until that is noticed."""
        await self._refresh(None)

    async def catch_up(self, directory: Path | None) -> None:
        """The same for the files of one directory, if anybody has written to them."""
        await self._refresh(self._configuration.touched(directory))

    async def _refresh(self, files: Set[Path] | None) -> None:
        for directory in self._configuration.refresh(files):
            self._told(directory)
        await self._changes.finish()

    def _told(self, directory: Path | None) -> None:
        self._changes.start(self._take(directory), "change")

    async def _take(self, directory: Path | None) -> None:
        await self._changed(directory)
