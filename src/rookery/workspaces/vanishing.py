"""Sees that the folder of an open workspace was deleted by other hands than ours, where it was when it was opened."""

import os
from collections.abc import Awaitable, Callable, Set
from pathlib import Path
from typing import NamedTuple

from rookery.system.beneath import PATH
from rookery.system.filewatch import FileWatch, file_watch
from rookery.system.tasks import TaskSet
from rookery.workspaces.record import Workspace


class _Held(NamedTuple):
    workspace: Workspace
    place: Path
    handle: int


async def _nothing(workspace: Workspace, own: Path) -> None: ...


class Vanishing:
    """`gone` is called with a workspace whose folder is no more, and its own git folder."""

    def __init__(self) -> None:
        self.gone: Callable[[Workspace, Path], Awaitable[None]] = _nothing
        self._held: dict[Path, _Held] = {}
        self._watch: FileWatch | None = None
        self._tasks = TaskSet("workspaces that vanish")

    def hold(self, workspace: Workspace, own: Path) -> None:
        """Keep an eye on its folder: on the one that is there now, and no other in its place. OSError if none is."""
        self.drop(own)
        handle = os.open(workspace.path, PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held[own] = held = _Held(workspace, Path(os.path.realpath(workspace.path)), handle)
        self._look_after()
        # It may have gone before it was watched.
        self._changed({held.place})

    def drop(self, own: Path) -> None:
        if (held := self._held.pop(own, None)) is not None:
            os.close(held.handle)
            self._look_after()

    async def close(self) -> None:
        for own in list(self._held):
            self.drop(own)
        if self._watch is not None:
            self._watch.close()
        await self._tasks.close()

    def _look_after(self) -> None:
        if self._watch is None:
            self._watch = file_watch(self._changed)
        self._watch.watch({one.place for one in self._held.values()})

    def _changed(self, places: Set[Path]) -> None:
        for own, held in list(self._held.items()):
            # One that was moved away still has a name; whoever sees it elsewhere looks after it.
            if held.place in places and os.fstat(held.handle).st_nlink == 0:
                self.drop(own)
                self._tasks.start(self._tell(held.workspace, own), held.workspace.name)

    async def _tell(self, workspace: Workspace, own: Path) -> None:
        await self.gone(workspace, own)
