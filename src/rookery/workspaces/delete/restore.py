"""Restore a workspace from the trash: branch, folder, staged files and metadata."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import write_atomic
from rookery.system.git import Git, git_error
from rookery.workspaces.delete.move import remove_move_lock
from rookery.workspaces.delete.progress import Progress
from rookery.workspaces.delete.trash import IntentJournal, RestoreIntent, Trash, TrashEntry
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.locks import RepositoryLocks, run_git_write
from rookery.workspaces.lookup import LocatedWorkspace, find_common_git_folder, list_workspaces
from rookery.workspaces.worktrees import read_git_folder

logger = logging.getLogger("rookery.workspaces")


class RestoreService:
    """Restores workspaces from the trash, one at a time per repository."""

    def __init__(self, state: Path, git: Git, locks: RepositoryLocks, events: Bus, trash: Trash) -> None:
        self._state = state
        self._git = git
        self._locks = locks
        self._events = events
        self._trash = trash
        self.intents = IntentJournal(state, RestoreIntent, "restoring")

    async def restore(self, entry: TrashEntry, to: Path | None = None) -> Progress:
        """Restore an entry to its old path or to another. Raise if the path, the name or the branch is taken."""
        async with self._locks.write_lock(entry.project.path):
            # A restore that failed half-way continues where it stopped.
            intent = next((other for other in self.intents.all() if other.trashed.id == entry.id), None)
            if intent is None:
                intent = await self._plan(entry, _resolve_target(to) if to is not None else Path(entry.path))
                try:
                    self.intents.write(intent)
                except OSError as error:
                    raise _restore_failed(error) from error
            await fault_point("restore.intended")
            progress = await self._run(intent)
        await self._clean_up(intent)
        progress.finish()
        return progress

    async def resume(self) -> None:
        """Finish the restores that an earlier daemon left unfinished."""
        for intent in self.intents.all():
            logger.warning("the restore of %s was interrupted, and continues", intent.trashed.name)
            try:
                async with self._locks.write_lock(intent.trashed.project.path):
                    progress = await self._run(intent)
                await self._clean_up(intent)
            except RookeryError as error:
                logger.error("%s is not restored: %s", intent.trashed.name, error.message)
            else:
                progress.finish()

    async def _run(self, intent: RestoreIntent) -> Progress:
        """Carry out a restore.

        If it fails before anything was moved, its intent is removed, and it can be started again; else it can only be
        continued.
        """
        progress = Progress(self._events, intent.trashed, "restoring")
        try:
            await self._run_steps(intent, progress)
        except (RookeryError, OSError) as error:
            if self._trash.git_folder_of(intent.trashed).is_dir() and not Path(intent.own).exists():
                self.intents.remove(intent)
            progress.fail(error if isinstance(error, RookeryError) else _restore_failed(error))
            raise progress.error or error from error
        return progress

    async def _plan(self, entry: TrashEntry, path: Path) -> RestoreIntent:
        """Check that an entry can be restored to `path`, and return the intent."""
        common = find_common_git_folder(Path(entry.project.path))
        if common is None:
            raise RookeryError("project-not-found", f"{entry.project.path} is no longer a repository")
        current = self._trash.reload(entry)
        if current is None or current.purging or not self._trash.git_folder_of(entry).is_dir():
            raise RookeryError("workspace-not-found", f"{entry.name} is no longer complete in the trash")
        _refuse_taken(entry, path, await list_workspaces(self._git, self._state, entry.project))
        for reserved in (common, self._trash.folder_of(entry).parent.resolve()):
            if path.is_relative_to(reserved):
                raise RookeryError("invalid-input", f"{path} is inside {reserved}", "choose another place")
        own = _choose_free_path(common / "worktrees" / Path(entry.own).name)
        moved = (str(path), str(own)) != (entry.path, entry.own)
        if moved and (self._trash.git_folder_of(entry) / "modules").exists():
            raise RookeryError(
                "invalid-input", f"{entry.name} has submodules, and can only be restored to {entry.path}"
            )
        if entry.branch is not None:
            await self._refuse_other_branch(entry, entry.branch)
        return RestoreIntent(entry, str(path), str(own))

    async def _refuse_other_branch(self, entry: TrashEntry, branch: str) -> None:
        """Raise if the branch exists at another commit than when it was deleted."""
        output = await self._git.output(
            Path(entry.project.path), "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}"
        )
        # The pattern also matches refs below it, with which git could not create the branch.
        if output and output.decode("ascii") != entry.head:
            remedy = f"rename it first: git branch -m {branch} another-name"
            raise RookeryError("invalid-input", f"another branch {branch} exists", remedy)

    async def _run_steps(self, intent: RestoreIntent, progress: Progress) -> None:
        """Restore the branch, the git folder and the folder. Each step can be repeated after a crash."""
        entry = intent.trashed
        path = Path(intent.path)
        own = Path(intent.own)
        checkout = Path(entry.project.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.start_step("branch")
        if entry.branch is not None and entry.head is not None:
            await self._restore_branch(checkout, entry, f"refs/heads/{entry.branch}", entry.head)
        await fault_point("restore.branch")
        progress.start_step("register")
        trashed_git_folder = self._trash.git_folder_of(entry)
        if trashed_git_folder.is_dir() and not own.exists():
            write_atomic(trashed_git_folder / "gitdir", os.fsencode(path / ".git") + b"\n")
            own.parent.mkdir(exist_ok=True)
        intent = await self.intents.move(intent, trashed_git_folder, own)
        await fault_point("restore.registered")
        progress.start_step("move")
        intent = await self.intents.move(intent, self._trash.folder_of(entry), path)
        await fault_point("restore.moved")
        await self._connect(path, own)
        await fault_point("restore.joined")
        remove_move_lock(own)
        await fault_point("restore.unlocked")

    async def _restore_branch(self, checkout: Path, entry: TrashEntry, ref: str, head: str) -> None:
        """Restore the branch and its config unless the branch exists: it may have new commits after a crash."""
        existing = await self._git.run(checkout, "rev-parse", "--verify", "--quiet", ref)
        if existing.returncode == 0:
            return
        for key, value in entry.config:
            await self._run_git_write(checkout, "config", "--local", "--replace-all", key, value)
        await self._run_git_write(checkout, "update-ref", ref, head, "0" * len(head))

    async def _connect(self, path: Path, own: Path) -> None:
        """Connect the folder and its git folder.

        A folder that was missing when it was deleted is filled from the index.
        """
        fill = not path.exists()
        path.mkdir(exist_ok=True)
        git_folder = read_git_folder(path)
        if git_folder is None or git_folder.resolve() != own.resolve():
            write_atomic(path / ".git", b"gitdir: " + os.fsencode(own) + b"\n")
        if fill:
            await self._run_git_write(path, "checkout-index", "--all")

    async def _clean_up(self, intent: RestoreIntent) -> None:
        await self._trash.drop_refs(intent.trashed)
        await fault_point("restore.dropped")
        self._trash.remove_record(intent.trashed)
        await fault_point("restore.forgotten")
        self.intents.remove(intent)

    async def _run_git_write(self, folder: Path, *args: str) -> None:
        result = await run_git_write(self._git, folder, *args)
        if result.returncode != 0:
            raise git_error(folder, args[0], result)


def _refuse_taken(entry: TrashEntry, path: Path, workspaces: Sequence[LocatedWorkspace]) -> None:
    """Raise if the path, the name or the branch of an entry is taken."""
    if os.path.lexists(path):
        raise RookeryError("invalid-input", f"{path} already exists", "move it away, or restore to another place")
    for other in workspaces:
        if other.workspace.name == entry.name:
            raise RookeryError("workspace-exists", f"a workspace {entry.name} already exists at {other.workspace.path}")
        if entry.branch is not None and other.worktree.branch == entry.branch:
            raise RookeryError("invalid-input", f"the branch {entry.branch} is checked out at {other.workspace.path}")
        if other.workspace.path == path or (not other.workspace.main and (path.is_relative_to(other.workspace.path))):
            raise RookeryError("invalid-input", f"{path} is inside {other.workspace.path}", "choose another place")


def _resolve_target(to: Path) -> Path:
    """Return the target as git spells it, without links and `..`: git does not find other spellings."""
    if to.name in ("", ".."):
        raise RookeryError("invalid-input", f"{to} does not name a new folder", "name one that does not exist yet")
    return to.parent.resolve() / to.name


def _restore_failed(error: OSError) -> RookeryError:
    explained = explain_os_error(error)
    why = explained.message if explained is not None else error.strerror or str(error)
    remedy = explained.remedy if explained is not None else "fix the cause, and try again"
    return RookeryError("restore-failed", f"the workspace was not restored: {why}", remedy)


def _choose_free_path(own: Path) -> Path:
    """Return a path for the git folder that no other worktree has."""
    candidates = [own, *(own.with_name(f"{own.name}{number}") for number in range(1, 1000))]
    return next(path for path in candidates if not path.exists())
