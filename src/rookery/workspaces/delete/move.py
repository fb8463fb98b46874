"""Move a worktree to the trash in steps. Each step leaves it complete and can be repeated after a crash.

Once the git folder of a worktree is in the trash, git no longer reads its index and its reflog, and may remove the
objects that only these name. `preserve_objects` creates one commit that refers to all of them, and a ref keeps that
commit.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import read_plain, remove_file
from rookery.system.git import Git, git_error
from rookery.workspaces.delete.trash import DeletionIntent, IntentJournal, Trash, TrashEntry
from rookery.workspaces.faultpoints import fault_point
from rookery.workspaces.locks import run_git_write
from rookery.workspaces.worktrees import Worktree, read_git_folder

_OBJECT = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_MAX_FILE_BYTES = 16 * 2**20
# For the list of the files in an index, which may be very long.
_MAX_INDEX_BYTES = 256 * 2**20
# Where git keeps commits of an operation in progress, and the reflogs.
_REF_FOLDERS = ("", "logs", "rebase-merge", "rebase-apply", "sequencer")
_FILES_WITHOUT_COMMITS = {"index", "commondir", "gitdir", "locked"}

logger = logging.getLogger("rookery.workspaces")

# Written as the reason of a lock: git does not prune a locked worktree while it is being moved.
MOVE_LOCK_REASON = b"Rookery moves it to or from the trash\n"


async def preserve_objects(
    git: Git, checkout: Path, own: Path, worktree: Worktree, at: float, *, staged: bool
) -> str | None:
    """Create a commit that refers to all objects of a worktree; None if the worktree's head refers to them already."""
    commits = await _filter_commits(git, checkout, _read_object_names(own, worktree.branch) - {worktree.head or ""})
    blobs: Sequence[bytes] = await _list_staged_blobs(git, checkout, own) if staged else ()
    if not commits and not blobs:
        return None
    lines = b"".join(b"100644 blob %s\t%s\0" % (blob, blob) for blob in blobs)
    tree = await _write_object(git, checkout, "mktree", "-z", input=lines)
    identity = f"Rookery <rookery@localhost> {int(at)} +0000"
    parents = [*([worktree.head] if worktree.head else []), *commits]
    text = "".join(
        [
            f"tree {tree}\n",
            *(f"parent {parent}\n" for parent in parents),
            f"author {identity}\n",
            f"committer {identity}\n",
        ]
    )
    return await _write_object(
        git, checkout, "hash-object", "-t", "commit", "-w", "--stdin", input=f"{text}\nheld\n".encode("ascii")
    )


def _read_object_names(own: Path, branch: str | None) -> set[str]:
    """Return all object names in the files where git may keep them."""
    names: set[str] = set()
    for file in _list_ref_files(own, branch):
        with contextlib.suppress(OSError):
            names |= {name.decode("ascii") for name in _OBJECT.findall(read_plain(file, _MAX_FILE_BYTES))}
    return {name for name in names if name.strip("0")}


def _list_ref_files(own: Path, branch: str | None) -> Iterator[Path]:
    for name in _REF_FOLDERS:
        folder = own / name
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if path.is_file() and path.name not in _FILES_WITHOUT_COMMITS)
    yield from (path for path in (own / "refs").rglob("*") if path.is_file())
    if branch is not None:
        yield own.parents[1] / "logs" / "refs" / "heads" / branch


async def _filter_commits(git: Git, checkout: Path, names: set[str]) -> list[str]:
    """Return the names that are commits of this repository."""
    if not names:
        return []
    lines_in = "".join(f"{name}\n" for name in sorted(names)).encode("ascii")
    result = await git.run(checkout, "cat-file", "--batch-check=%(objecttype) %(objectname)", input=lines_in)
    if result.returncode != 0:
        raise git_error(checkout, "cat-file", result)
    lines = result.stdout.decode("ascii", "replace").splitlines()
    return [line.removeprefix("commit ") for line in lines if line.startswith("commit ")]


async def _list_staged_blobs(git: Git, checkout: Path, own: Path) -> Sequence[bytes]:
    """Return every blob of the index.

    Git runs in the main checkout, because the worktree's folder may be missing.
    """
    result = await git.run(checkout, f"--git-dir={os.fspath(own)}", "ls-files", "--stage", "-z", limit=_MAX_INDEX_BYTES)
    if result.returncode != 0 or result.cut:
        raise RookeryError(
            "git-failed", f"the index in {own} cannot be read, so it cannot be kept", "repair or remove it"
        )
    entries = [entry.split(b"\t", 1)[0].split(b" ") for entry in result.stdout.split(b"\0") if entry]
    # The commit of a submodule is in its own repository.
    return sorted({name for mode, name, _ in entries if mode != b"160000"})


async def _write_object(git: Git, checkout: Path, *args: str, input: bytes) -> str:
    result = await git.run(checkout, *args, input=input, write=True)
    if result.returncode != 0:
        raise git_error(checkout, args[0], result)
    return result.stdout.decode("ascii").strip()


class TrashMover:
    """Moves worktrees to the trash. The caller holds the lock of the repository."""

    def __init__(self, git: Git, trash: Trash, intents: IntentJournal[DeletionIntent]) -> None:
        self._git = git
        self._trash = trash
        self._intents = intents

    def is_moved(self, entry: TrashEntry) -> bool:
        """Return whether the folder or the git folder is in the trash. From then on a deletion can only continue."""
        return any(map(os.path.lexists, (self._trash.folder_of(entry), self._trash.git_folder_of(entry))))

    async def run(self, intent: DeletionIntent, on_step: Callable[[str], None]) -> None:
        """Carry out a deletion, or continue an interrupted one. `on_step` is called with the name of each step."""
        entry = intent.trashed
        path = Path(intent.trashed.path)
        own = Path(intent.trashed.own)
        on_step("keep")
        if not self.is_moved(entry):
            await self._preserve(entry, own)
            await fault_point("delete.kept")
            self._trash.write(entry)
            await fault_point("delete.recorded")
            if not (own / "locked").exists():
                (own / "locked").write_bytes(MOVE_LOCK_REASON)
            await fault_point("delete.locked")
        on_step("move")
        if intent.copying or _is_worktree(path, own):
            intent = await self._intents.move(intent, path, self._trash.folder_of(entry))
        await fault_point("delete.moved")
        on_step("unregister")
        await self._intents.move(intent, own, self._trash.git_folder_of(entry))
        await fault_point("delete.unregistered")
        if entry.branch is not None and not entry.kept_branch:
            on_step("branch")
            await self._delete_branch(entry, entry.branch)
        await fault_point("delete.branch")

    async def undo(self, entry: TrashEntry) -> None:
        """Undo the steps before the move. Refs that cannot be deleted now are deleted when the trash is emptied."""
        remove_move_lock(Path(entry.own))
        try:
            await self._drop_refs(entry)
        except RookeryError as error:
            logger.warning("the refs of %s are kept until the trash is emptied: %s", entry.name, error.message)
            self._trash.write(msgspec.structs.replace(entry, purging=True))
        else:
            self._trash.remove_record(entry)

    async def _preserve(self, entry: TrashEntry, own: Path) -> None:
        """Create refs for everything that would be lost with the branch, the index and the reflog."""
        checkout = Path(entry.project.path)
        worktree = Worktree(Path(entry.path), entry.head, entry.branch)
        preserved = await preserve_objects(self._git, checkout, own, worktree, entry.at, staged=entry.staged)
        for ref, commit in ((entry.ref, entry.head), (entry.preserved_ref, preserved)):
            if commit is not None:
                await self._write_ref(checkout, ref, commit)

    async def _delete_branch(self, entry: TrashEntry, branch: str) -> None:
        """Delete the branch if it is at the commit that the trash keeps and no worktree uses it.

        A branch that has moved since is kept.
        """
        checkout = Path(entry.project.path)
        ref = f"refs/heads/{branch}"
        # The pattern also matches refs below it. The last field is the worktree that has the branch checked out: empty
        # if the branch can be deleted.
        format_option = "--format=%(objectname) %(refname) %(worktreepath)"
        lines = os.fsdecode(await self._git.output(checkout, "for-each-ref", format_option, ref)).splitlines()
        if entry.head is not None and f"{entry.head} {ref} " in lines:
            await self._write_ref(checkout, "-d", ref, entry.head)
            if entry.config:
                await run_git_write(self._git, checkout, "config", "--local", "--remove-section", f"branch.{branch}")

    async def _drop_refs(self, entry: TrashEntry) -> None:
        for ref in (entry.ref, entry.preserved_ref):
            await self._write_ref(Path(entry.project.path), "-d", ref)

    async def _write_ref(self, checkout: Path, *args: str) -> None:
        result = await run_git_write(self._git, checkout, "update-ref", *args)
        if result.returncode != 0:
            raise git_error(checkout, "update-ref", result)


def remove_move_lock(own: Path) -> None:
    """Remove the lock that Rookery set, and no other."""
    lock_file = own / "locked"
    if lock_file.is_file() and lock_file.read_bytes() == MOVE_LOCK_REASON:
        remove_file(lock_file)


def _is_worktree(path: Path, own: Path) -> bool:
    """Return whether the folder at `path` is still the worktree, and not another folder at the same path."""
    git_folder = read_git_folder(path) if path.is_dir() else None
    return git_folder is not None and git_folder.resolve() == own.resolve()
