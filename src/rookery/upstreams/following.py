"""Follows the files that define servers, so that what a user changes counts without a restart."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Set
from pathlib import Path

from rookery.system.filewatch import FileWatch, file_watch
from rookery.system.tasks import TaskSet
from rookery.upstreams.configuration import Configuration
from rookery.upstreams.permissions import Permissions, permissions_of
from rookery.upstreams.sources import Found, files_of

logger = logging.getLogger("rookery.upstreams")

# An editor writes a file in several steps.
_SETTLE_SECONDS = 0.1


class Following:
    """Reads files off the loop, one after the other. `changed` hears of the directories that may be others now."""

    def __init__(self, changed: Callable[[Path | None], Awaitable[None]]) -> None:
        self._changed = changed
        self._configuration = Configuration(os.environ)
        self._directories: set[Path | None] = set()
        self._reading = asyncio.Lock()
        self._watch: FileWatch | None = None
        self._files: set[Path] = set()
        self._tasks = TaskSet("following files")

    def start(self) -> None:
        self._watch = file_watch(self._told)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        await self._tasks.close()

    async def read(self, directory: Path | None) -> tuple[Found, Permissions]:
        """What the files of a directory say; from now on they are watched."""
        async with self._reading:
            self._directories.add(directory)
            found = await asyncio.to_thread(self._read, directory)
            self._follow()
        return found

    async def read_again(self) -> None:
        """Somebody has just written to one of the files, and does not want to wait until that is noticed."""
        await self._take(self._configuration.files())

    def _read(self, directory: Path | None) -> tuple[Found, Permissions]:
        return self._configuration.found(directory), permissions_of(directory)

    def _follow(self) -> None:
        if self._watch is not None:
            self._watch.watch(self._configuration.files())

    def _told(self, files: Set[Path]) -> None:
        if not self._files:
            self._tasks.start(self._settle(), "changes")
        self._files |= files

    async def _settle(self) -> None:
        await asyncio.sleep(_SETTLE_SECONDS)
        files, self._files = self._files, set()
        await self._take(files)

    async def _take(self, files: set[Path]) -> None:
        async with self._reading:
            changed = set(await asyncio.to_thread(self._configuration.refresh, files))
            self._follow()
        # A file says more than which servers there are.
        changed |= {one for one in self._directories if not files.isdisjoint(file.path for file in files_of(one))}
        for directory in changed:
            logger.info("the servers of %s may have changed", directory or "everywhere")
            await self._changed(directory)
