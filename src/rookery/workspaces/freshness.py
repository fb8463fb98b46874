"""Whether folders are still as they were: told by the system where it can watch them, else seen by looking at them."""

import asyncio
import logging
import os
from collections.abc import Collection
from pathlib import Path

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.treewatch import LimitReached, TreeWatch

logger = logging.getLogger("rookery.workspaces")

# The kernel stamps files by a clock that ticks every few milliseconds.
_TICK = 20_000_000

# Number of entries, their newest change, and the sum of all: no entry can change without changing this.
Look = tuple[int, int, int]


class Place:
    """Folders that an answer depends on, with all that is in them but what is ignored."""

    def __init__(self, key: str, folders: tuple[Path, ...], flat: tuple[Path, ...]) -> None:
        self.key = key
        self.folders, self.flat = folders, flat
        self.ignored = frozenset[str]()
        # Known to be as they were when last asked about; and whether the watch covers all of them.
        self.fresh = False
        self.covered = False
        self.covering: asyncio.Task[None] | None = None
        # How they looked, where they cannot be watched.
        self.look: Look | None = None


class Places:
    """All places of all workspaces, on one watch. `problem` says why some are looked at instead."""

    def __init__(self) -> None:
        self.problem = ""
        self._places: dict[str, Place] = {}
        self._one_at_a_time = asyncio.Lock()
        self._watch: TreeWatch | None = None
        self._begun = False

    def _begin(self) -> None:
        """Not before the first question: a watch needs a running loop."""
        self._begun = True
        try:
            self._watch = TreeWatch(self._changed)
        except OSError as error:
            self._say(f"no inotify here ({error.strerror})")

    def place(self, key: str, folders: tuple[Path, ...], flat: tuple[Path, ...] = ()) -> Place:
        """The place of that key; of the `flat` folders only what lies directly in them counts."""
        if not self._begun:
            self._begin()
        found = self._places.get(key)
        if found is None or (found.folders, found.flat) != (folders, flat):
            self.forget(key)
            found = self._places[key] = Place(key, folders, flat)
        return found

    def catch_up(self) -> None:
        """Hear of all that has changed by now."""
        if self._watch is not None:
            self._watch.catch_up()

    def forget(self, key: str) -> None:
        if self._places.pop(key, None) is not None and self._watch is not None:
            self._watch.drop(key)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def is_fresh(self, place: Place) -> bool:
        """Whether nothing has changed there since it was last made fresh."""
        if place.covering is not None:
            await place.covering
        if place.fresh and place.look is not None:
            place.fresh = await asyncio.to_thread(_look, place) == place.look
        return place.fresh

    async def cover(self, place: Place, ignored: Collection[str], since: float) -> None:
        """Watch what is there now; what changed after the moment `since` makes the place stale at once."""
        if place.covered and place.ignored == frozenset(ignored):
            return
        place.ignored = frozenset(ignored)
        async with self._one_at_a_time:
            newest = await self._watch_all(place)
        if self._places.get(place.key) is not place and self._watch is not None:
            self._watch.drop(place.key)
        if newest >= since * 1e9 - _TICK:
            place.fresh = False

    async def _watch_all(self, place: Place) -> int:
        """Answers when something there last changed."""
        if self._watch is not None and place.look is None:
            place.covered = True
            # Also of what was moved away: a watch goes with its folder.
            self._watch.drop(place.key)
            try:
                return (await asyncio.to_thread(_look, place, self._watch))[1]
            except LimitReached:
                self._watch.drop(place.key)
                self._say("the limit of watched folders is reached (fs.inotify.max_user_watches)")
        place.covered = False
        place.look = await asyncio.to_thread(_look, place)
        return place.look[1]

    def _changed(self, key: str, name: bytes, folders: bool) -> None:
        place = self._places.get(key)
        # A lock of git's says nothing yet: what it guards is renamed into place when it has changed.
        if place is not None and not name.endswith(b".lock"):
            place.fresh = False
            if folders:
                place.covered = False

    def _say(self, why: str) -> None:
        if not self.problem:
            self.problem = f"{why}: some workspaces are looked through at every question, which is slower"
            logger.warning("%s", self.problem)


def now() -> float:
    return SYSTEM_CLOCK.wall()


def _look(place: Place, watch: TreeWatch | None = None) -> Look:
    """Go through a place; with a watch, each folder is watched before it is read, so that nothing slips between."""
    count, newest, total = 0, 0, 0
    for top, deep in [*((folder, True) for folder in place.folders), *((folder, False) for folder in place.flat)]:
        waiting = [("", os.fspath(top))]
        while waiting:
            prefix, folder = waiting.pop()
            try:
                if watch is not None:
                    watch.add(place.key, os.fsencode(folder))
                stamps = [os.stat(folder, follow_symlinks=False).st_ctime_ns]  # noqa: PTH116 - half the time of Path
                with os.scandir(folder) as entries:
                    for entry in entries:
                        stamps.append(entry.stat(follow_symlinks=False).st_ctime_ns)
                        if not deep or not entry.is_dir(follow_symlinks=False) or entry.name == ".git":
                            continue
                        inner = f"{prefix}{entry.name}/"
                        if inner not in place.ignored:
                            waiting.append((inner, entry.path))
            except OSError:
                # Gone, or closed to us: git cannot see more of it either.
                stamps = [-1]
            count, newest, total = count + len(stamps), max(newest, *stamps, 0), total + sum(stamps)
    return count, newest, total
