"""Brings a workspace back from the trash: branch, folder, what was staged, and metadata."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.files import write_atomic
from rookery.system.git import Git, failed
from rookery.workspaces.binning import unlock
from rookery.workspaces.intents import Intents, Restoring
from rookery.workspaces.listing import Found, common_folder, find_workspaces
from rookery.workspaces.locks import RepositoryLocks, write_git
from rookery.workspaces.progress import Progress
from rookery.workspaces.steps import step
from rookery.workspaces.trash import Trash, Trashed
from rookery.workspaces.worktrees import named_git_folder

logger = logging.getLogger("rookery.workspaces")


class Restorations:
    def __init__(self, state: Path, git: Git, locks: RepositoryLocks, events: Bus, trash: Trash) -> None:
        self._state, self._git, self._locks, self._events, self._trash = state, git, locks, events, trash
        self.intents = Intents(state, Restoring, "restoring")

    async def restore(self, one: Trashed, to: Path | None = None) -> Progress:
        """To its old place, or another; refused if place, name or branch are taken by now."""
        async with self._locks.writing(one.project.path):
            # One that failed half-way goes on where it was.
            intent = next((other for other in self.intents.all() if other.trashed.id == one.id), None)
            if intent is None:
                intent = await self._plan(one, _spelt_out(to) if to is not None else Path(one.path))
                try:
                    self.intents.write(intent)
                except OSError as error:
                    raise RookeryError("restore-failed", f"nothing was restored: {error.strerror}") from error
            await step("restore.intended")
            progress = await self._carried_out(intent)
        await self._clean_up(intent)
        progress.finished()
        return progress

    async def resume(self) -> None:
        """Finish what an earlier daemon was at."""
        for intent in self.intents.all():
            logger.warning("the restoring of %s was cut off, and goes on", intent.trashed.name)
            try:
                async with self._locks.writing(intent.trashed.project.path):
                    progress = await self._carried_out(intent)
                await self._clean_up(intent)
            except RookeryError as error:
                logger.error("%s is not restored: %s", intent.trashed.name, error.message)
            else:
                progress.finished()

    async def _carried_out(self, intent: Restoring) -> Progress:
        """If nothing was moved yet when it fails, it may be tried anew; else only be gone on with."""
        progress = Progress(self._events, intent.trashed, "restoring")
        try:
            await self._carry_out(intent, progress)
        except (RookeryError, OSError) as error:
            if self._trash.git_folder_of(intent.trashed).is_dir() and not Path(intent.own).exists():
                self.intents.strike_out(intent)
            progress.failed(error if isinstance(error, RookeryError) else _failed(error))
            raise progress.error or error from error
        return progress

    async def _plan(self, one: Trashed, path: Path) -> Restoring:
        common = common_folder(Path(one.project.path))
        if common is None:
            raise RookeryError("project-not-found", f"{one.project.path} is no repository any more")
        now = self._trash.now(one)
        if now is None or now.purging or not self._trash.git_folder_of(one).is_dir():
            raise RookeryError("workspace-not-found", f"{one.name} is not whole in the trash any more")
        _refuse_taken(one, path, await find_workspaces(self._git, self._state, one.project))
        for kept in (common, self._trash.folder_of(one).parent.resolve()):
            if path.is_relative_to(kept):
                raise RookeryError("invalid-input", f"{path} lies in {kept}", "choose another place")
        own = _free(common / "worktrees" / Path(one.own).name)
        moved = (str(path), str(own)) != (one.path, one.own)
        if moved and (self._trash.git_folder_of(one) / "modules").exists():
            raise RookeryError("invalid-input", f"{one.name} has submodules, and can only go back to {one.path}")
        if one.branch is not None:
            await self._refuse_other_branch(one, one.branch)
        return Restoring(one, str(path), str(own))

    async def _refuse_other_branch(self, one: Trashed, branch: str) -> None:
        """The branch may be there, if it is where it was."""
        listed = await self._git.told(
            Path(one.project.path), "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}"
        )
        # A pattern also matches what is below it, where git could then make no branch.
        if listed and listed.decode("ascii") != one.head:
            remedy = f"rename it first: git branch -m {branch} another-name"
            raise RookeryError("invalid-input", f"there is another branch {branch} by now", remedy)

    async def _carry_out(self, intent: Restoring, progress: Progress) -> None:
        one, path, own = intent.trashed, Path(intent.path), Path(intent.own)
        checkout = Path(one.project.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.at("branch")
        if one.branch is not None and one.head is not None:
            await self._bring_branch_back(checkout, one, f"refs/heads/{one.branch}", one.head)
        await step("restore.branch")
        progress.at("register")
        kept = self._trash.git_folder_of(one)
        if kept.is_dir() and not own.exists():
            write_atomic(kept / "gitdir", os.fsencode(path / ".git") + b"\n")
            own.parent.mkdir(exist_ok=True)
        intent = await self.intents.move(intent, kept, own)
        await step("restore.registered")
        progress.at("move")
        intent = await self.intents.move(intent, self._trash.folder_of(one), path)
        await step("restore.moved")
        await self._join(path, own)
        await step("restore.joined")
        unlock(own)
        await step("restore.unlocked")

    async def _bring_branch_back(self, checkout: Path, one: Trashed, ref: str, head: str) -> None:
        """Never over one that is there: after a crash somebody may have worked on."""
        there = await self._git.run(checkout, "rev-parse", "--verify", "--quiet", ref)
        if there.returncode == 0:
            return
        for key, value in one.config:
            await self._write(checkout, "config", "--local", "--replace-all", key, value)
        await self._write(checkout, "update-ref", ref, head, "0" * len(head))

    async def _join(self, path: Path, own: Path) -> None:
        """Let the folder name its git folder; one that was missing when it was deleted is filled from the index."""
        fill = not path.exists()
        path.mkdir(exist_ok=True)
        named = named_git_folder(path)
        if named is None or named.resolve() != own.resolve():
            write_atomic(path / ".git", b"gitdir: " + os.fsencode(own) + b"\n")
        if fill:
            await self._write(path, "checkout-index", "--all")

    async def _clean_up(self, intent: Restoring) -> None:
        await self._trash.drop_refs(intent.trashed)
        await step("restore.dropped")
        self._trash.forget(intent.trashed)
        await step("restore.forgotten")
        self.intents.strike_out(intent)

    async def _write(self, folder: Path, *args: str) -> None:
        done = await write_git(self._git, folder, *args)
        if done.returncode != 0:
            raise failed(folder, args[0], done)


def _refuse_taken(one: Trashed, path: Path, found: Sequence[Found]) -> None:
    if os.path.lexists(path):
        raise RookeryError("invalid-input", f"{path} is in the way", "move it away, or restore to another place")
    for other in found:
        if other.workspace.name == one.name:
            raise RookeryError("workspace-exists", f"there is a workspace {one.name} again, at {other.workspace.path}")
        if one.branch is not None and other.worktree.branch == one.branch:
            raise RookeryError("invalid-input", f"the branch {one.branch} is checked out at {other.workspace.path}")
        if other.workspace.path == path or (not other.workspace.main and (path.is_relative_to(other.workspace.path))):
            raise RookeryError("invalid-input", f"{path} lies in {other.workspace.path}", "choose another place")


def _spelt_out(to: Path) -> Path:
    """As git spells it, which finds nothing by way of links or `..`."""
    if to.name in ("", ".."):
        raise RookeryError("invalid-input", f"{to} does not name a new folder", "name one that does not exist yet")
    return to.parent.resolve() / to.name


def _failed(error: OSError) -> RookeryError:
    return RookeryError("restore-failed", f"it is not restored: {error.strerror or error}", "mend that, and try again")


def _free(own: Path) -> Path:
    """A name for the git folder that no other worktree has."""
    names = [own, *(own.with_name(f"{own.name}{number}") for number in range(1, 1000))]
    return next(place for place in names if not place.exists())
