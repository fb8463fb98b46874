"""Deletes workspaces: refused where work would go unasked, told while it happens, continued after a crash."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.tasks import TaskSet
from rookery.workspaces.binning import Binning
from rookery.workspaces.intents import Deleting, Intents
from rookery.workspaces.listing import Found, find_workspaces
from rookery.workspaces.locks import RepositoryLocks
from rookery.workspaces.metadata import BASE, read_kept
from rookery.workspaces.occupants import ask_to_leave, find_occupants
from rookery.workspaces.preflight import Findings, examine, refusal
from rookery.workspaces.progress import Progress
from rookery.workspaces.record import Workspace
from rookery.workspaces.steps import step
from rookery.workspaces.trash import Trash, Trashed

logger = logging.getLogger("rookery.workspaces")

# Stops what is ours in a workspace; answers whether there was anything.
Stop = Callable[[Workspace], Awaitable[bool]]
# The folders of all projects and their worktrees, none of which may go along with another.
Roots = Callable[[], Awaitable[Sequence[Path]]]
# How old the look at a workspace may be when it is moved.
_SECONDS = 1.0


class Deletions:
    def __init__(
        self,
        state: Path,
        git: Git,
        locks: RepositoryLocks,
        events: Bus,
        trash: Trash,
        stop: Stop,
        clock: Clock = SYSTEM_CLOCK,
        roots: Roots | None = None,
    ) -> None:
        self._state, self._git, self._locks, self._events = state, git, locks, events
        self._trash, self._stop, self._clock, self._roots = trash, stop, clock, roots
        self.intents = Intents(state, Deleting, "deleting")
        self._binning = Binning(git, trash, self.intents)
        self._tasks = TaskSet("deletions")
        self._running: dict[Path, asyncio.Task[Progress]] = {}

    async def start(self, found: Found, *, force: bool = False, keep_branch: bool = False) -> asyncio.Task[Progress]:
        """Refuse, or begin; the task ends with the deletion. One that is under way is not begun again."""
        path = found.workspace.path
        async with self._locks.writing(found.workspace.project.path):
            if path in self._running:
                return self._running[path]
            intent = next((one for one in self.intents.all() if Path(one.trashed.path) == path), None)
            if intent is None:
                findings = await self._examined(found)
                if refused := refusal(findings, force=force, keep_branch=keep_branch):
                    raise refused
                intent = Deleting(self._entry(findings, keep_branch), force)
                self._write(intent)
                return self._begin(intent, found)
            return self._begin(intent)

    async def resume(self) -> None:
        """Finish what an earlier daemon was at."""
        for intent in self.intents.all():
            logger.warning("the deletion of %s was cut off, and goes on", intent.trashed.name)
            try:
                ended = await self._begin(intent)
            except Exception:
                # The others are to be finished all the same, and the daemon to start.
                logger.exception("%s is not deleted", intent.trashed.name)
                continue
            if ended.error is not None:
                logger.error("%s is not deleted: %s", intent.trashed.name, ended.error.message)

    async def close(self) -> None:
        await self._tasks.close()

    def _begin(self, intent: Deleting, found: Found | None = None) -> asyncio.Task[Progress]:
        """`found` where it was looked up a moment ago."""
        path = Path(intent.trashed.path)
        task = self._running[path] = self._tasks.start(self._run(intent, found), f"delete {intent.trashed.name}")
        task.add_done_callback(lambda _: self._running.pop(path, None))
        return task

    async def _run(self, intent: Deleting, found: Found | None) -> Progress:
        """Carry it out, and tell how it went; what failed before anything was moved is taken back."""
        one = intent.trashed
        progress = Progress(self._events, one, "deleting")
        try:
            await step("delete.intended")
            intent = await self._clear(intent, found, progress)
            async with self._locks.writing(one.project.path):
                await self._binning.carry_out(intent, progress.at)
        except (RookeryError, OSError) as error:
            progress.failed(await self._gave_up(intent, error))
            return progress
        self.intents.strike_out(intent)
        await step("delete.struck")
        progress.finished()
        return progress

    async def _gave_up(self, intent: Deleting, error: RookeryError | OSError) -> RookeryError:
        if not self._binning.is_moved(intent.trashed):
            try:
                async with self._locks.writing(intent.trashed.project.path):
                    await self._binning.take_back(intent.trashed)
                self.intents.strike_out(intent)
            except OSError:
                logger.exception("the deletion of %s could not be taken back", intent.trashed.name)
        return error if isinstance(error, RookeryError) else _failed(error)

    async def _clear(self, intent: Deleting, found: Found | None, progress: Progress) -> Deleting:
        """Stop what is ours, find who else lives there, and look again if the last look is old by now."""
        one, path = intent.trashed, Path(intent.trashed.path)
        if self._binning.is_moved(one) or intent.copying:
            return intent
        found = found or await self._found(one)
        progress.at("stop")
        stopped = await self._stop(found.workspace)
        progress.at("processes")
        occupants = await find_occupants(path)
        if occupants and intent.force:
            await ask_to_leave(occupants)
            occupants = await find_occupants(path)
        progress.occupied(occupants)
        # A crash may lie days back, and what was stopped may have written and committed until then.
        if not stopped and abs(self._clock.wall() - one.at) <= _SECONDS:
            return intent
        findings = await self._examined(found)
        if refused := refusal(findings, force=intent.force, keep_branch=one.kept_branch):
            raise refused
        now = Deleting(self._entry(findings, one.kept_branch, one), intent.force)
        self._write(now)
        return now

    async def _examined(self, found: Found) -> Findings:
        base = read_kept(found.own).metadata.get(BASE)
        return await examine(self._git, found, base, await self._roots() if self._roots is not None else ())

    async def _found(self, one: Trashed) -> Found:
        for found in await find_workspaces(self._git, self._state, one.project):
            if found.workspace.path == Path(one.path):
                return found
        raise RookeryError("workspace-not-found", f"{one.path} is no workspace any more")

    def _entry(self, findings: Findings, keep_branch: bool, before: Trashed | None = None) -> Trashed:
        """What the trash is to know of it; `before` is what was written down when the deletion began."""
        workspace, changes = findings.found.workspace, findings.changes
        at = self._clock.wall() if before is None else before.at
        return Trashed(
            id=self._trash.new_id(workspace.name, at) if before is None else before.id,
            project=workspace.project,
            name=workspace.name,
            path=str(workspace.path),
            own=str(findings.found.own),
            branch=findings.worktree.branch,
            head=findings.worktree.head,
            kept_branch=keep_branch or findings.shared,
            at=at,
            # Of a folder that is missing nobody knows what was staged.
            staged=changes is None or bool(changes.staged or changes.unmerged),
            config=findings.config,
        )

    def _write(self, intent: Deleting) -> None:
        try:
            self.intents.write(intent)
        except OSError as error:
            raise _failed(error) from error
        except UnicodeEncodeError as error:
            raise RookeryError("invalid-input", f"{intent.trashed.path!r} is not valid UTF-8", "rename it") from error


def _failed(error: OSError) -> RookeryError:
    return RookeryError(
        "deletion-failed", f"nothing was deleted: {error.strerror or error}", "mend that, and try again"
    )
