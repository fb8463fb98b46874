"""The set of open workspaces, the hooks that start and stop with them, and a watch for folders deleted by others.

The set is stored: a workspace that was open is opened again when the daemon starts.
"""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Set
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from rookery.system.bus import Bus
from rookery.system.fs.beneath import PATH
from rookery.system.fs.watch import FileWatch, watch_files
from rookery.system.store import Store
from rookery.system.tasks import TaskSet
from rookery.workspaces.model import Workspace
from rookery.workspaces.worktrees import read_creation_time

logger = logging.getLogger("rookery.workspaces")


class _WatchedFolder(NamedTuple):
    workspace: Workspace
    path: Path
    handle: int


async def _ignore(workspace: Workspace, own: Path) -> None: ...


class FolderDeletionWatch:
    """Watches the folders of workspaces and calls `on_deleted` when one was deleted.

    `on_deleted` receives the workspace and its own git folder.
    """

    def __init__(self) -> None:
        self.on_deleted: Callable[[Workspace, Path], Awaitable[None]] = _ignore
        self._watched: dict[Path, _WatchedFolder] = {}
        self._watch: FileWatch | None = None
        self._tasks = TaskSet("workspaces that vanish")

    def add(self, workspace: Workspace, own: Path) -> None:
        """Watch the folder that is now at the path of a workspace, and no later one. Raise OSError if there is none."""
        self.remove(own)
        handle = os.open(workspace.path, PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._watched[own] = watched = _WatchedFolder(workspace, Path(os.path.realpath(workspace.path)), handle)
        self._update_watch()
        # The folder may have been deleted before it was watched.
        self._on_changed({watched.path})

    def remove(self, own: Path) -> None:
        if (watched := self._watched.pop(own, None)) is not None:
            os.close(watched.handle)
            self._update_watch()

    async def close(self) -> None:
        for own in list(self._watched):
            self.remove(own)
        if self._watch is not None:
            self._watch.close()
        await self._tasks.close()

    def _update_watch(self) -> None:
        """Update the set of watched paths."""
        if self._watch is None:
            self._watch = watch_files(self._on_changed)
        self._watch.watch({watched.path for watched in self._watched.values()})

    def _on_changed(self, paths: Set[Path]) -> None:
        for own, watched in list(self._watched.items()):
            # A moved folder still has a name, and is handled where the workspaces are listed.
            if watched.path in paths and os.fstat(watched.handle).st_nlink == 0:
                self.remove(own)
                self._tasks.start(self._notify(watched.workspace, own), watched.workspace.name)

    async def _notify(self, workspace: Workspace, own: Path) -> None:
        await self.on_deleted(workspace, own)


class LifecycleHook(Protocol):
    """Something that starts and stops with an open workspace, such as its agent. Slow work runs in its own task."""

    async def on_opened(self, workspace: Workspace) -> None:
        """Start the services of a workspace that was opened."""
        ...

    async def on_closed(self, workspace: Workspace) -> bool:
        """Stop everything of a workspace, even if it was never opened, and return whether anything was running."""
        ...


class Lifecycle:
    """The set of open workspaces. Each workspace is opened or closed by one caller at a time.

    Hooks are called in order to open, and in reverse order to close.
    """

    def __init__(self, store: Store, events: Bus) -> None:
        self.hooks: list[LifecycleHook] = []
        self.deletion_watch = FolderDeletionWatch()
        self._store = store
        self._events = events
        self._open: dict[Path, int] = {}
        self._locks: defaultdict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self) -> None:
        """Load the workspaces that were open when the daemon stopped. Those that no longer exist are dropped."""
        rows: list[tuple[str, int]] = await self._store.read(
            lambda db: db.execute("SELECT workspace, made FROM open_workspaces").fetchall()
        )
        self._open = {Path(workspace): created for workspace, created in rows}
        for own in [path for path in self._open if not path.is_dir() or path not in self]:
            await self._remove(own)

    def __contains__(self, own: object) -> bool:
        """Return whether the workspace with this git folder is open, and not only an earlier one at the same path."""
        return isinstance(own, Path) and own in self._open and read_creation_time(own) == self._open[own]

    async def open(self, workspace: Workspace, own: Path) -> Workspace:
        """Open a workspace unless it is open, and return its new state."""
        async with self._locks[own]:
            opened = msgspec.structs.replace(workspace, open=True)
            if await self._mark_open(opened, own):
                await self._start(opened, own)
            return opened

    async def mark_open(self, workspace: Workspace, own: Path) -> None:
        """Mark a workspace as open without starting its hooks; `start` starts them."""
        async with self._locks[own]:
            await self._mark_open(msgspec.structs.replace(workspace, open=True), own)

    async def start(self, workspace: Workspace, own: Path) -> None:
        """Start the hooks of a workspace that is already open."""
        async with self._locks[own]:
            if own in self:
                await self._start(workspace, own)

    async def close(self, workspace: Workspace, own: Path) -> bool:
        """Stop everything that runs for a workspace, open or not, and return whether anything was running."""
        async with self._locks[own]:
            self.deletion_watch.remove(own)
            results = [await self._close_hook(hook, workspace) for hook in reversed(self.hooks)]
            if own in self._open:
                await self._remove(own)
                self._events.publish("workspace.closed", **msgspec.structs.replace(workspace, open=False).as_dict())
            return any(results)

    async def _mark_open(self, workspace: Workspace, own: Path) -> bool:
        """Store a workspace as open, and return whether it was closed before."""
        if own in self:
            return False
        created = read_creation_time(own)
        await self._write("INSERT OR REPLACE INTO open_workspaces VALUES (?, ?)", str(own), created)
        self._open[own] = created
        self._events.publish("workspace.opened", **workspace.as_dict())
        return True

    async def _start(self, workspace: Workspace, own: Path) -> None:
        try:
            self.deletion_watch.add(workspace, own)
        except OSError as error:
            logger.warning("%s is open, but cannot be watched: %s", workspace.path, error.strerror)
        for hook in self.hooks:
            try:
                await hook.on_opened(workspace)
            except Exception:
                logger.exception("%s is open, but not everything could be started for it", workspace.path)

    async def _close_hook(self, hook: LifecycleHook, workspace: Workspace) -> bool:
        try:
            return await hook.on_closed(workspace)
        except Exception:
            logger.exception("could not stop everything that runs for %s", workspace.path)
            return True

    async def _remove(self, own: Path) -> None:
        self._open.pop(own, None)
        await self._write("DELETE FROM open_workspaces WHERE workspace = ?", str(own))

    async def _write(self, sql: str, *values: str | int) -> None:
        await self._store.write(lambda db: db.execute(sql, values))
