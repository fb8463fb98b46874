"""The steps by which a worktree goes into the trash. Each leaves it whole, and can be done again after a crash."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.files import remove
from rookery.system.git import Git, failed
from rookery.workspaces.holding import hold
from rookery.workspaces.intents import Deleting, Intents
from rookery.workspaces.locks import write_git
from rookery.workspaces.steps import step
from rookery.workspaces.trash import Trash, Trashed
from rookery.workspaces.worktrees import Worktree, named_git_folder

logger = logging.getLogger("rookery.workspaces")

# As the reason of a lock: what is locked, git does not prune while it is half-way.
LOCKED = b"Rookery moves it to or from the trash\n"


class Binning:
    """For whoever holds the lock of the repository."""

    def __init__(self, git: Git, trash: Trash, intents: Intents[Deleting]) -> None:
        self._git, self._trash, self._intents = git, trash, intents

    def is_moved(self, one: Trashed) -> bool:
        """Whether the trash has it: from then on there is only forward."""
        return any(map(os.path.lexists, (self._trash.folder_of(one), self._trash.git_folder_of(one))))

    async def carry_out(self, intent: Deleting, at: Callable[[str], None]) -> None:
        one, path, own = intent.trashed, Path(intent.trashed.path), Path(intent.trashed.own)
        at("keep")
        if not self.is_moved(one):
            await self._keep(one, own)
            await step("delete.kept")
            self._trash.write(one)
            await step("delete.recorded")
            if not (own / "locked").exists():
                (own / "locked").write_bytes(LOCKED)
            await step("delete.locked")
        at("move")
        if intent.copying or _is_worktree(path, own):
            intent = await self._intents.move(intent, path, self._trash.folder_of(one))
        await step("delete.moved")
        at("unregister")
        await self._intents.move(intent, own, self._trash.git_folder_of(one))
        await step("delete.unregistered")
        if one.branch is not None and not one.kept_branch:
            at("branch")
            await self._delete_branch(one, one.branch)
        await step("delete.branch")

    async def take_back(self, one: Trashed) -> None:
        """Undo what was done before the move; refs that cannot be dropped now are left to the emptying of the trash."""
        unlock(Path(one.own))
        try:
            await self._drop_refs(one)
        except RookeryError as error:
            logger.warning("what was kept of %s stays for a while: %s", one.name, error.message)
            self._trash.write(msgspec.structs.replace(one, purging=True))
        else:
            self._trash.forget(one)

    async def _keep(self, one: Trashed, own: Path) -> None:
        """Refs on all that would go with the branch, the index and the reflog."""
        checkout = Path(one.project.path)
        worktree = Worktree(Path(one.path), one.head, one.branch)
        held = await hold(self._git, checkout, own, worktree, one.at, staged=one.staged)
        for ref, commit in ((one.ref, one.head), (one.held, held)):
            if commit is not None:
                await self._write_ref(checkout, ref, commit)

    async def _delete_branch(self, one: Trashed, branch: str) -> None:
        """Only at the commit that the trash keeps, and if nobody uses it: one that has moved on since stays."""
        checkout, ref = Path(one.project.path), f"refs/heads/{branch}"
        # A pattern matches what is below it too. Last is where it is checked out: nowhere, if it is to go.
        wanted = "--format=%(objectname) %(refname) %(worktreepath)"
        listed = os.fsdecode(await self._git.told(checkout, "for-each-ref", wanted, ref)).splitlines()
        if one.head is not None and f"{one.head} {ref} " in listed:
            await self._write_ref(checkout, "-d", ref, one.head)
            if one.config:
                await write_git(self._git, checkout, "config", "--local", "--remove-section", f"branch.{branch}")

    async def _drop_refs(self, one: Trashed) -> None:
        for ref in (one.ref, one.held):
            await self._write_ref(Path(one.project.path), "-d", ref)

    async def _write_ref(self, checkout: Path, *args: str) -> None:
        written = await write_git(self._git, checkout, "update-ref", *args)
        if written.returncode != 0:
            raise failed(checkout, "update-ref", written)


def unlock(own: Path) -> None:
    """Take our lock away, and nobody else's."""
    place = own / "locked"
    if place.is_file() and place.read_bytes() == LOCKED:
        remove(place)


def _is_worktree(path: Path, own: Path) -> bool:
    """Whether the folder at the path is still the worktree, and not something that came in its place."""
    named = named_git_folder(path) if path.is_dir() else None
    return named is not None and named.resolve() == own.resolve()
