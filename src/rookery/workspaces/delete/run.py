"""Run deletions: refuse those that would lose work, report progress, and continue after a crash.

`DeletionService` combines deletion, restore and the trash for the service of the workspaces.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.causes import explain_os_error
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.delete.check import DeletionCheck, examine_workspace, find_refusal
from rookery.workspaces.delete.move import TrashMover
from rookery.workspaces.delete.processes import end_processes_in
from rookery.workspaces.delete.progress import Progress
from rookery.workspaces.delete.restore import RestoreService
from rookery.workspaces.delete.trash import DeletionIntent, IntentJournal, OrphanedEntry, Trash, TrashEntry
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.lookup import LocatedWorkspace, list_workspaces
from rookery.workspaces.metadata import BASE_KEY, read_metadata
from rookery.workspaces.model import Workspace
from rookery.workspaces.worktrees import has_head_moved

logger = logging.getLogger("rookery.workspaces")

# Stops what Rookery runs in a workspace, and returns whether anything was running.
StopWorkspace = Callable[[Workspace], Awaitable[bool]]
# Returns the folders of all projects and their worktrees, none of which may be deleted with another.
ListRoots = Callable[[], Awaitable[Sequence[Path]]]
# How old the check of a workspace may be when the workspace is moved.
_MAX_CHECK_AGE_SECONDS = 1.0


class DeletionRunner:
    """Runs deletions in tasks of their own, recorded in the intent journal."""

    def __init__(
        self,
        state: Path,
        git: Git,
        spawner: Spawner,
        locks: RepositoryLocks,
        events: Bus,
        trash: Trash,
        stop: StopWorkspace,
        clock: Clock = SYSTEM_CLOCK,
        roots: ListRoots | None = None,
    ) -> None:
        self._state = state
        self._git = git
        self._spawner = spawner
        self._locks = locks
        self._events = events
        self._trash = trash
        self._stop = stop
        self._clock = clock
        self._roots = roots
        self.intents = IntentJournal(state, DeletionIntent, "deleting")
        self._mover = TrashMover(git, trash, self.intents)
        self._tasks = TaskSet("deletions")
        self._running: dict[Path, asyncio.Task[Progress]] = {}

    async def start(
        self, located: LocatedWorkspace, *, force: bool = False, keep_branch: bool = False
    ) -> asyncio.Task[Progress]:
        """Check and start a deletion. The task ends with it. A running deletion is not started again."""
        path = located.workspace.path
        async with self._locks.write_lock(located.workspace.project.path):
            if path in self._running:
                return self._running[path]
            intent = next((other for other in self.intents.all() if Path(other.trashed.path) == path), None)
            if intent is None:
                checked_at = self._clock.monotonic()
                findings = await self._examine(located)
                if refusal := find_refusal(findings, force=force, keep_branch=keep_branch):
                    raise refusal
                intent = DeletionIntent(self._make_entry(findings, keep_branch), force)
                self._write(intent)
                return self._start_task(intent, (located, checked_at))
            return self._start_task(intent)

    async def resume(self) -> None:
        """Finish the deletions that an earlier daemon left unfinished."""
        for intent in self.intents.all():
            logger.warning("the deletion of %s was interrupted, and continues", intent.trashed.name)
            try:
                progress = await self._start_task(intent)
            except Exception:
                # The other deletions must be finished, and the daemon must start.
                logger.exception("%s is not deleted", intent.trashed.name)
                continue
            if progress.error is not None:
                logger.error("%s is not deleted: %s", intent.trashed.name, progress.error.message)

    async def close(self) -> None:
        await self._tasks.close()

    def _start_task(
        self, intent: DeletionIntent, checked: tuple[LocatedWorkspace, float] | None = None
    ) -> asyncio.Task[Progress]:
        """Start a deletion. `checked` is the workspace and when it was checked, if this process did that."""
        path = Path(intent.trashed.path)
        task = self._running[path] = self._tasks.start(self._run(intent, checked), f"delete {intent.trashed.name}")
        task.add_done_callback(lambda _: self._running.pop(path, None))
        return task

    async def _run(self, intent: DeletionIntent, checked: tuple[LocatedWorkspace, float] | None) -> Progress:
        """Carry out a deletion and return its progress. A failure before the move is undone."""
        entry = intent.trashed
        progress = Progress(self._events, entry, "deleting")
        try:
            await fault_point("delete.intended")
            intent = await self._stop_and_recheck(intent, checked, progress)
            async with self._locks.write_lock(entry.project.path):
                await self._mover.run(intent, progress.start_step)
        except (RookeryError, OSError) as error:
            progress.fail(await self._undo(intent, error))
            return progress
        self.intents.remove(intent)
        await fault_point("delete.struck")
        progress.finish()
        return progress

    async def _undo(self, intent: DeletionIntent, error: RookeryError | OSError) -> RookeryError:
        """Undo a deletion that failed before the move, and return its error."""
        if not self._mover.is_moved(intent.trashed):
            try:
                async with self._locks.write_lock(intent.trashed.project.path):
                    await self._mover.undo(intent.trashed)
                self.intents.remove(intent)
            except OSError:
                logger.exception("the deletion of %s could not be undone", intent.trashed.name)
        return error if isinstance(error, RookeryError) else _deletion_failed(error)

    async def _stop_and_recheck(
        self, intent: DeletionIntent, checked: tuple[LocatedWorkspace, float] | None, progress: Progress
    ) -> DeletionIntent:
        """Stop what Rookery runs in a workspace, list other processes, and repeat the check if it is too old."""
        entry = intent.trashed
        path = Path(intent.trashed.path)
        if self._mover.is_moved(entry) or intent.copying:
            return intent
        located = checked[0] if checked is not None else await self._locate(entry)
        progress.start_step("stop")
        stopped = await self._stop(located.workspace)
        progress.start_step("processes")
        progress.set_occupants(await end_processes_in(path, self._spawner.match_started_in(path)))
        # A crash may be days ago, and what was stopped may have written and committed until then.
        if not stopped and checked is not None and self._clock.monotonic() - checked[1] <= _MAX_CHECK_AGE_SECONDS:
            return intent
        findings = await self._examine(located)
        if refusal := find_refusal(findings, force=intent.force, keep_branch=entry.kept_branch):
            raise refusal
        updated = DeletionIntent(self._make_entry(findings, entry.kept_branch, entry), intent.force)
        self._write(updated)
        return updated

    async def _examine(self, located: LocatedWorkspace) -> DeletionCheck:
        base = read_metadata(located.git_folder).metadata.get(BASE_KEY)
        return await examine_workspace(self._git, located, base, await self._roots() if self._roots is not None else ())

    async def _locate(self, entry: TrashEntry) -> LocatedWorkspace:
        for located in await list_workspaces(self._git, self._state, entry.project):
            if located.workspace.path == Path(entry.path):
                return located
        raise RookeryError("workspace-not-found", f"{entry.path} is no longer a workspace")

    def _make_entry(self, check: DeletionCheck, keep_branch: bool, before: TrashEntry | None = None) -> TrashEntry:
        """Return the trash entry for a workspace; `before` is the entry that was recorded when the deletion started."""
        workspace = check.located.workspace
        changes = check.changes
        at = self._clock.wall() if before is None else before.at
        return TrashEntry(
            id=self._trash.new_id(workspace.name, at) if before is None else before.id,
            project=workspace.project,
            name=workspace.name,
            path=str(workspace.path),
            own=str(check.located.git_folder),
            branch=check.worktree.branch,
            head=check.worktree.head,
            kept_branch=keep_branch or check.shared,
            at=at,
            since=self._trash.time.now() if before is None else before.since,
            # If the folder is missing, it is not known whether files were staged.
            staged=changes is None or bool(changes.staged or changes.unmerged),
            config=check.config,
            merged_into=check.merged.branch if check.merged and has_head_moved(check.located.git_folder) else None,
        )

    def _write(self, intent: DeletionIntent) -> None:
        try:
            self.intents.write(intent)
        except OSError as error:
            raise _deletion_failed(error) from error
        except UnicodeEncodeError as error:
            raise RookeryError(
                "invalid-input", f"{intent.trashed.path!r} is not valid UTF-8", "rename the folder"
            ) from error


def _deletion_failed(error: OSError) -> RookeryError:
    explained = explain_os_error(error)
    why = explained.message if explained is not None else error.strerror or str(error)
    remedy = explained.remedy if explained is not None else "fix the cause, and try again"
    return RookeryError("deletion-failed", f"nothing was deleted: {why}", remedy)


class DeletionService:
    """Deletes and restores workspaces, and empties the trash.

    `days` and `limit` (in bytes) say when the trash is emptied.
    """

    def __init__(
        self,
        state: Path,
        git: Git,
        spawner: Spawner,
        locks: RepositoryLocks,
        events: Bus,
        stop: StopWorkspace,
        *,
        days: float = 14.0,
        limit: int = 20 * 2**30,
        clock: Clock = SYSTEM_CLOCK,
        roots: ListRoots | None = None,
    ) -> None:
        self.trash = Trash(state, git, locks, clock)
        self._deletions = DeletionRunner(state, git, spawner, locks, events, self.trash, stop, clock, roots)
        self._restores = RestoreService(state, git, locks, events, self.trash)
        self._days = days
        self._limit = limit

    async def resume(self) -> None:
        """Finish what an earlier daemon left unfinished.

        Must run before the search for worktrees that were moved or are unfinished.
        """
        await self._restores.resume()
        await self._deletions.resume()

    async def close(self) -> None:
        await self._deletions.close()

    async def delete(
        self, located: LocatedWorkspace, *, force: bool = False, keep_branch: bool = False, wait: bool = False
    ) -> Progress | None:
        """Check and start a deletion; with `wait`, wait for the end and return its progress, or raise its error."""
        task = await self._deletions.start(located, force=force, keep_branch=keep_branch)
        if not wait:
            return None
        progress = await asyncio.shield(task)
        if progress.error is not None:
            raise progress.error
        return progress

    async def restore(self, wanted: str, project: str | None = None, to: Path | None = None) -> Progress:
        """Restore the trash entry with this id, or the newest with this name."""
        entry = self.trash.get(wanted, project)
        if entry.id in [intent.trashed.id for intent in self._deletions.intents.all()]:
            raise RookeryError(
                "invalid-input", f"{entry.name} is still being moved to the trash", "try again in a moment"
            )
        return await self._restores.restore(entry, to)

    async def empty_trash(self) -> list[TrashEntry]:
        """Purge entries that are too old or take too much space. Those without a readable record are left alone."""
        return await self.trash.empty(days=self._days, limit=self._limit, busy=self._list_busy_ids)

    def list_orphans(self) -> list[OrphanedEntry]:
        """Return the parts of the trash without a readable record."""
        return self.trash.list_orphans(self._list_busy_ids)

    async def purge(self, wanted: str | None = None, project: str | None = None) -> list[TrashEntry | OrphanedEntry]:
        """Purge one entry, or all of them (of a project), whatever their age."""
        orphans = [orphan for orphan in self.list_orphans() if wanted in (None, orphan.id)] if project is None else []
        for orphan in orphans:
            await self.trash.purge_orphan(orphan)
        if wanted is not None and orphans:
            return [*orphans]
        return [*orphans, *await self._purge_entries(wanted, project)]

    async def _purge_entries(self, wanted: str | None, project: str | None) -> list[TrashEntry]:
        entries = [self.trash.get(wanted, project)] if wanted is not None else self.trash.all()
        return [
            entry
            for entry in entries
            if project in (None, entry.project.id) and await self.trash.purge(entry, self._list_busy_ids)
        ]

    def _list_busy_ids(self) -> list[str]:
        """Return the ids of the entries that are being moved to the trash or restored."""
        under_way = (*self._deletions.intents.all(), *self._restores.intents.all())
        return [intent.trashed.id for intent in under_way]
