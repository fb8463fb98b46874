"""The status of workspaces: computed side by side with few git processes, kept, and anew when files change."""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from rookery.system.git import Git, failed
from rookery.system.tasks import TaskSet
from rookery.workspaces.changes import STATUS, Changes, parse_status
from rookery.workspaces.divergence import Pair
from rookery.workspaces.freshness import Place, Places, now
from rookery.workspaces.history import Measured, find_against, measure_all, unmerged
from rookery.workspaces.record import Workspace
from rookery.workspaces.worktrees import list_worktrees, named_git_folder

# Git processes at a time: enough to keep every core busy while we read what another has printed.
_AT_ONCE = (os.cpu_count() or 1) * 2


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """`ahead` and `behind` count commits against the base, `unmerged_commits` those whose content is not in it."""

    is_dirty: bool
    unmerged_commits: int
    ahead: int
    behind: int
    conflicts: tuple[str, ...]
    base: str | None


class Statuses:
    """For use on one loop. `problem` tells if the system cannot watch all of it."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._places = Places()
        self._changes: dict[Path, Changes] = {}
        self._measured: dict[str, Measured] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks = TaskSet("status")

    @property
    def problem(self) -> str:
        return self._places.problem

    async def settled(self) -> None:
        """Wait until all that was asked about is watched."""
        await self._tasks.finish()

    async def close(self) -> None:
        await self._tasks.close()
        self._places.close()

    async def of(self, workspaces: Iterable[Workspace], bases: Mapping[Path, str]) -> dict[Path, Status]:
        """The status of each workspace that has a folder, by its path, against the base that `bases` names for it."""
        projects: dict[str, list[Workspace]] = {}
        for one in workspaces:
            if one.state != "missing":
                projects.setdefault(one.project.path, []).append(one)
        each = await asyncio.gather(*(self._of_project(path, ours, bases) for path, ours in projects.items()))
        return {path: status for found in each for path, status in found.items()}

    async def _of_project(
        self, project: str, workspaces: Sequence[Workspace], bases: Mapping[Path, str]
    ) -> dict[Path, Status]:
        # Whoever asks meanwhile gets what is being computed.
        async with self._locks.setdefault(project, asyncio.Lock()):
            self._places.catch_up()
            files = [place for one in workspaces if (place := self._place(one)) is not None]
            fresh = await asyncio.gather(*(self._places.is_fresh(place) for place in files))
            stale = [place for place, is_fresh in zip(files, fresh, strict=True) if not is_fresh]
            answered = asyncio.Event()
            try:
                # Each to its end: one that fails must not leave others half-way for whoever asks next.
                compared, looked = await asyncio.gather(
                    self._compare(Path(project), workspaces, bases, anew=bool(stale)),
                    asyncio.gather(*(self._look_at(place, answered) for place in stale), return_exceptions=True),
                    return_exceptions=True,
                )
            finally:
                answered.set()
            for one in (compared, looked, *(looked if isinstance(looked, list) else ())):
                if isinstance(one, BaseException):
                    raise one
            measured, pairs = cast(tuple[Measured, dict[Path, Pair]], compared)
            return {
                one.path: _status(self._changes[one.path], bases.get(one.path), pairs.get(one.path), measured)
                for one in workspaces
                if one.path in self._changes
            }

    async def _compare(
        self, project: Path, workspaces: Sequence[Workspace], bases: Mapping[Path, str], *, anew: bool
    ) -> tuple[Measured, dict[Path, Pair]]:
        """How heads stand to their bases, and which head and base each workspace has."""
        measured = await self._history(project, set(bases.values()), anew=anew)
        pairs = {
            one.path: (head, measured.bases[base].commit)
            for one in workspaces
            if (head := measured.heads.get(one.path)) and (base := bases.get(one.path)) in measured.bases
        }
        await measure_all(self._git, project, measured, set(pairs.values()))
        return measured, pairs

    def forget(self, path: Path) -> None:
        """No longer watch a workspace that is gone."""
        self._places.forget(str(path))
        self._changes.pop(path, None)

    def _place(self, workspace: Workspace) -> Place | None:
        own = named_git_folder(workspace.path)
        return None if own is None else self._places.place(str(workspace.path), (workspace.path,), (own,))

    async def _look_at(self, place: Place, answered: asyncio.Event) -> None:
        path = place.folders[0]
        async with self._turns:
            place.fresh, since = True, now()
            try:
                changes = await read_changes(self._git, path)
            except BaseException:
                place.fresh = False
                raise
        self._changes[path] = changes
        ignored = [one for one in changes.ignored if one.endswith("/")]
        place.covering = self._tasks.start(self._cover(place, ignored, since, answered), f"watch {path.name}")

    async def _cover(self, place: Place, ignored: Sequence[str], since: float, answered: asyncio.Event) -> None:
        """Who asked need not wait until all of it is watched, and git gets the cores first."""
        await answered.wait()
        await self._places.cover(place, ignored, since)

    async def _history(self, project: Path, bases: set[str], *, anew: bool) -> Measured:
        """Where the heads and the bases are now. A head that is on no branch moves with its worktree's files."""
        known = self._measured.get(str(project))
        common = await asyncio.to_thread(_common_folder, project)
        place = self._places.place(f"{project}:refs", (common / "refs", common / "reftable"), (common, common / "info"))
        if known is None:
            known = self._measured[str(project)] = Measured({}, {}, {}, {})
        moved = not await self._places.is_fresh(place)
        if moved:
            place.fresh, since = True, now()
            await self._places.cover(place, (), since)
        if moved or anew:
            known.heads = {
                one.path: one.head for one in await list_worktrees(self._git, project) if one.head is not None
            }
        wanted = bases if moved else bases - known.bases.keys()
        if moved:
            known.bases = {}
        found = await asyncio.gather(*(find_against(self._git, project, base) for base in wanted))
        known.bases |= {base: one for base, one in zip(wanted, found, strict=True) if one is not None}
        return known


async def read_changes(git: Git, path: Path) -> Changes:
    """What is not committed in a worktree, asked of git now."""
    ran = await git.run(path, *STATUS)
    if ran.returncode != 0 or ran.cut:
        raise failed(path, "status", ran)
    return parse_status(ran.stdout)


def _status(changes: Changes, base: str | None, pair: Pair | None, measured: Measured) -> Status:
    if pair is None or base is None:
        return Status(changes.dirty, 0, 0, 0, (), base)
    ahead, behind = measured.distances.get(pair, (0, 0))
    merge = measured.merges.get(pair)
    conflicts = merge.conflicts if merge is not None else ()
    return Status(changes.dirty, unmerged(measured, pair, measured.bases[base]), ahead, behind, conflicts, base)


def _common_folder(project: Path) -> Path:
    """The git folder that all worktrees of a project share."""
    own = named_git_folder(project)
    return project if own is None else own.resolve()
