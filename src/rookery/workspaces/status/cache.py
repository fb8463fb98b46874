"""A cache of the git status of workspaces, invalidated when files change.

Folders are watched where the system supports it; all others are scanned at each request. The number of concurrent git
processes is limited.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.fs.watch import TreeWatch, WatchLimitReached
from rookery.system.git import Git, git_error
from rookery.system.tasks import TaskSet
from rookery.workspaces.model import Workspace
from rookery.workspaces.status.changes import ROOKERY_FOLDER, STATUS_ARGUMENTS, WorktreeChanges, parse_status
from rookery.workspaces.status.history import (
    Branch,
    CommitPair,
    RepositoryHistory,
    count_commits_outside,
    count_unmerged,
    find_containing_branch,
    is_default_branch,
    list_remaining_branches,
    measure_pairs,
    resolve_base,
    try_merges,
)
from rookery.workspaces.worktrees import has_head_moved, list_worktrees, read_git_folder

logger = logging.getLogger("rookery.workspaces")

# The kernel sets file times from a clock with a resolution of a few milliseconds. In nanoseconds.
_TICK = 20_000_000

# The number of entries, their newest change time and the sum of all change times: any change of an entry changes it.
FolderFingerprint = tuple[int, int, int]

# Concurrent git processes: enough to use every core while the output of others is read.
_MAX_PROCESSES = (os.cpu_count() or 1) * 2
_UNKNOWN = 2**31


class WatchedFolders:
    """Folders that a cached result depends on, with everything in them that is not ignored."""

    def __init__(self, key: str, folders: tuple[Path, ...], flat: tuple[Path, ...]) -> None:
        self.key = key
        self.folders = folders
        self.flat = flat
        self.ignored = frozenset[str]()
        # `fresh`: unchanged since the last result. `covered`: all folders are watched.
        self.fresh = False
        self.covered = False
        self.cover_task: asyncio.Task[None] | None = None
        # The fingerprint of folders that cannot be watched.
        self.fingerprint: FolderFingerprint | None = None


class FreshnessTracker:
    """Tracks changes of the folders of all workspaces with one watch.

    `problem` says why some folders are scanned instead of watched.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._watched: dict[str, WatchedFolders] = {}
        self._cover_lock = asyncio.Lock()
        self._watch: TreeWatch | None = None
        self._started = False

    def _start(self) -> None:
        """Start the watch. Called at the first request, because a watch needs a running event loop."""
        self._started = True
        try:
            self._watch = TreeWatch(self._on_changed)
        except OSError as error:
            self._report_problem(f"inotify is not available ({error.strerror})")

    def get_folders(self, key: str, folders: tuple[Path, ...], flat: tuple[Path, ...] = ()) -> WatchedFolders:
        """Return the folders of a key. Of the `flat` folders only the direct entries count."""
        if not self._started:
            self._start()
        watched = self._watched.get(key)
        if watched is None or (watched.folders, watched.flat) != (folders, flat):
            self.forget(key)
            watched = self._watched[key] = WatchedFolders(key, folders, flat)
        return watched

    def process_pending(self) -> None:
        """Process all pending notifications of changes."""
        if self._watch is not None:
            self._watch.process_pending()

    def forget(self, key: str) -> None:
        if self._watched.pop(key, None) is not None and self._watch is not None:
            self._watch.drop(key)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    async def is_fresh(self, watched: WatchedFolders) -> bool:
        """Return whether nothing has changed in these folders since `fresh` was last set."""
        if (covering := watched.cover_task) is not None:
            # Only wait: cancelling this caller must not cancel the task, and the next caller must not receive its
            # error.
            await asyncio.wait([covering])
            if covering.cancelled() or covering.exception() is not None:
                watched.fresh = watched.covered = False
                watched.cover_task = None
        if watched.fresh and watched.fingerprint is not None:
            watched.fresh = await asyncio.to_thread(_fingerprint, watched) == watched.fingerprint
        return watched.fresh

    async def cover(self, watched: WatchedFolders, ignored: Collection[str], since: float) -> None:
        """Watch all of these folders. A change after `since` (in seconds) makes the result stale immediately."""
        if watched.covered and watched.ignored == frozenset(ignored):
            return
        watched.ignored = frozenset(ignored)
        async with self._cover_lock:
            newest = await self._watch_all(watched)
        if self._watched.get(watched.key) is not watched and self._watch is not None:
            self._watch.drop(watched.key)
        if newest >= since * 1e9 - _TICK:
            watched.fresh = False

    async def _watch_all(self, watched: WatchedFolders) -> int:
        """Watch or scan all of these folders, and return the time of the newest change (in nanoseconds)."""
        if self._watch is not None and watched.fingerprint is None:
            watched.covered = True
            # Also drops the watches of folders that were moved away: a watch moves with its folder.
            self._watch.drop(watched.key)
            try:
                return (await asyncio.to_thread(_fingerprint, watched, self._watch))[1]
            except WatchLimitReached:
                self._watch.drop(watched.key)
                self._report_problem("the limit of watched folders is reached (fs.inotify.max_user_watches)")
        watched.covered = False
        watched.fingerprint = await asyncio.to_thread(_fingerprint, watched)
        return watched.fingerprint[1]

    def _on_changed(self, key: str, name: bytes, folders: bool) -> None:
        watched = self._watched.get(key)
        # A lock file of git is not a change yet: git renames the new file into place when it is complete.
        if watched is not None and not name.endswith(b".lock"):
            watched.fresh = False
            if folders:
                watched.covered = False

    def _report_problem(self, problem: str) -> None:
        if not self.problem:
            self.problem = f"{problem}: some workspaces are scanned at every request, which is slower"
            logger.warning("%s", self.problem)


def read_wall_time() -> float:
    """Return the wall clock time in seconds."""
    return SYSTEM_CLOCK.wall()


def _fingerprint(watched: WatchedFolders, watch: TreeWatch | None = None) -> FolderFingerprint:
    """Scan the folders.

    With a `watch`, each folder is watched before it is read, so that no change is missed.
    """
    count = 0
    newest = 0
    total = 0
    for top, deep in [*((folder, True) for folder in watched.folders), *((folder, False) for folder in watched.flat)]:
        pending = [("", os.fspath(top))]
        while pending:
            prefix, folder = pending.pop()
            try:
                if watch is not None:
                    watch.add(watched.key, os.fsencode(folder))
                stamps = [os.stat(folder, follow_symlinks=False).st_ctime_ns]  # noqa: PTH116 - half the time of Path
                with os.scandir(folder) as entries:
                    for entry in entries:
                        stamps.append(entry.stat(follow_symlinks=False).st_ctime_ns)
                        if not deep or not entry.is_dir(follow_symlinks=False) or entry.name == ".git":
                            continue
                        relative = f"{prefix}{entry.name}/"
                        if relative not in watched.ignored:
                            pending.append((relative, entry.path))
            except OSError:
                # The folder is gone or not readable: git cannot read it either.
                stamps = [-1]
            count += len(stamps)
            newest = max(newest, *stamps, 0)
            total += sum(stamps)
    return count, newest, total


class GitStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The git status of a workspace. `ahead` and `behind` count commits against the base.

    `unmerged_commits` counts those that no remaining branch has. `merged_into` is the branch that has the work, if
    there was any and all of it is merged.
    """

    is_dirty: bool
    unmerged_commits: int
    ahead: int
    behind: int
    conflicts: tuple[str, ...]
    base: str | None
    merged_into: str | None = None


class StatusCache:
    """The git status of workspaces, computed on request and cached. Not thread-safe.

    `problem` says why the system cannot watch all folders.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._freshness = FreshnessTracker()
        self._changes: dict[Path, WorktreeChanges] = {}
        self._histories: dict[str, RepositoryHistory] = {}
        self._process_slots = asyncio.Semaphore(_MAX_PROCESSES)
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks = TaskSet("status")

    @property
    def problem(self) -> str:
        return self._freshness.problem

    async def wait_until_watched(self) -> None:
        """Wait until all folders of earlier requests are watched."""
        await self._tasks.wait_all()

    async def close(self) -> None:
        await self._tasks.close()
        self._freshness.close()

    async def get(self, workspaces: Iterable[Workspace], bases: Mapping[Path, str]) -> dict[Path, GitStatus]:
        """Return the git status of each workspace that has a folder, by path, compared with its base in `bases`."""
        projects: dict[str, list[Workspace]] = {}
        for workspace in workspaces:
            if workspace.state != "missing":
                projects.setdefault(workspace.project.path, []).append(workspace)
        results = await asyncio.gather(
            *(self._get_for_project(path, members, bases) for path, members in projects.items())
        )
        return {path: status for result in results for path, status in result.items()}

    async def _get_for_project(
        self, project: str, workspaces: Sequence[Workspace], bases: Mapping[Path, str]
    ) -> dict[Path, GitStatus]:
        # Concurrent callers wait for the lock and use the cached result.
        async with self._locks.setdefault(project, asyncio.Lock()):
            self._freshness.process_pending()
            files = [watched for workspace in workspaces if (watched := self._watched_folders(workspace)) is not None]
            fresh = await asyncio.gather(*(self._freshness.is_fresh(watched) for watched in files))
            stale = [watched for watched, is_fresh in zip(files, fresh, strict=True) if not is_fresh]
            responded = asyncio.Event()
            try:
                # Run all to the end: a failure must not leave others half done for the next caller.
                comparison, scans = await asyncio.gather(
                    self._compare(Path(project), workspaces, bases, refresh=bool(stale)),
                    asyncio.gather(
                        *(self._read_and_watch(watched, responded) for watched in stale), return_exceptions=True
                    ),
                    return_exceptions=True,
                )
            finally:
                responded.set()
            for result in (comparison, scans, *(scans if isinstance(scans, list) else ())):
                if isinstance(result, BaseException):
                    raise result
            measured, pairs = cast(tuple[RepositoryHistory, dict[Path, CommitPair]], comparison)
            return {
                workspace.path: _make_status(
                    workspace,
                    self._changes[workspace.path],
                    bases.get(workspace.path),
                    pairs.get(workspace.path),
                    measured,
                )
                for workspace in workspaces
                if workspace.path in self._changes
            }

    async def _compare(
        self, project: Path, workspaces: Sequence[Workspace], bases: Mapping[Path, str], *, refresh: bool
    ) -> tuple[RepositoryHistory, dict[Path, CommitPair]]:
        """Compare heads with their bases, and return the history and the head and base of each workspace."""
        measured = await self._history(project, set(bases.values()), refresh=refresh)
        pairs = {
            workspace.path: (head, measured.bases[base].commit)
            for workspace in workspaces
            if (head := measured.heads.get(workspace.path)) and (base := bases.get(workspace.path)) in measured.bases
        }
        await measure_pairs(self._git, project, measured, set(pairs.values()))
        await self._search_other_branches(project, measured, set(pairs.values()))
        return measured, pairs

    async def _search_other_branches(self, project: Path, measured: RepositoryHistory, pairs: set[CommitPair]) -> None:
        """Search the other remaining branches for heads that their bases do not contain."""
        bases = {base.commit: base for base in measured.bases.values()}
        missing = {
            head
            for head, base in pairs
            if head not in measured.outside and count_unmerged(measured, (head, base), bases[base])
        }
        if not missing:
            return
        branches = await list_remaining_branches(self._git, project, measured.worktrees)
        others = [branch for branch in branches if branch.commit not in bases]
        counted = await count_commits_outside(self._git, project, missing, others)
        # Heads that could not be counted are as unmerged as their bases say.
        measured.outside |= dict.fromkeys(missing, _UNKNOWN) | counted
        inside = [head for head in missing if counted.get(head) == 0]
        branches_found = await asyncio.gather(
            *(find_containing_branch(self._git, project, head, others) for head in inside)
        )
        measured.containing |= {
            head: branch.name for head, branch in zip(inside, branches_found, strict=True) if branch is not None
        }
        await self._compare_content(project, measured, missing - measured.containing.keys(), others)

    async def _compare_content(
        self, project: Path, measured: RepositoryHistory, heads: set[str], branches: Sequence[Branch]
    ) -> None:
        """Find heads that were squashed into a default branch, where merging them would change nothing."""
        current = next((worktree.branch for worktree in measured.worktrees if worktree.main), None)
        defaults = [branch for branch in branches if is_default_branch(branch, current)]
        tried = await try_merges(self._git, project, {(head, branch.commit) for head in heads for branch in defaults})
        for (head, commit), merge in tried.items():
            branch = next(default for default in defaults if default.commit == commit)
            if merge.tree == branch.tree:
                measured.outside[head] = 0
                measured.containing[head] = branch.name

    def forget(self, path: Path) -> None:
        """Stop watching a workspace that no longer exists."""
        self._freshness.forget(str(path))
        self._changes.pop(path, None)

    def _watched_folders(self, workspace: Workspace) -> WatchedFolders | None:
        own = read_git_folder(workspace.path)
        return None if own is None else self._freshness.get_folders(str(workspace.path), (workspace.path,), (own,))

    async def _read_and_watch(self, watched: WatchedFolders, responded: asyncio.Event) -> None:
        """Read the changes of a worktree, and start to watch its folders."""
        path = watched.folders[0]
        async with self._process_slots:
            watched.fresh = True
            since = read_wall_time()
            try:
                changes = await read_changes(self._git, path)
            except BaseException:
                watched.fresh = False
                raise
        self._changes[path] = changes
        ignored = [path for path in changes.ignored if path.endswith("/")]
        watched.cover_task = self._tasks.start(self._cover(watched, ignored, since, responded), f"watch {path.name}")

    async def _cover(
        self, watched: WatchedFolders, ignored: Sequence[str], since: float, answered: asyncio.Event
    ) -> None:
        """Watch the folders once the result is complete: callers need not wait, and git gets the cores first."""
        await answered.wait()
        await self._freshness.cover(watched, ignored, since)

    async def _history(self, project: Path, bases: set[str], *, refresh: bool) -> RepositoryHistory:
        """Return the history with the current heads and bases.

        A head that is on no branch moves with the files of its worktree, so `refresh` reads the heads again.
        """
        history = self._histories.get(str(project))
        common = await asyncio.to_thread(_common_folder, project)
        watched = self._freshness.get_folders(
            f"{project}:refs", (common / "refs", common / "reftable"), (common, common / "info")
        )
        if history is None:
            history = self._histories[str(project)] = RepositoryHistory({}, {}, {}, {})
        refs_changed = not await self._freshness.is_fresh(watched)
        if refs_changed:
            watched.fresh = True
            since = read_wall_time()
            await self._freshness.cover(watched, (), since)
        if refs_changed or refresh:
            history.worktrees = await list_worktrees(self._git, project)
            history.heads = {
                worktree.path: worktree.head for worktree in history.worktrees if worktree.head is not None
            }
            history.outside = {}
            history.containing = {}
        names = bases if refs_changed else bases - history.bases.keys()
        if refs_changed:
            history.bases = {}
        commits = await asyncio.gather(*(resolve_base(self._git, project, base) for base in names))
        history.bases |= {base: commit for base, commit in zip(names, commits, strict=True) if commit is not None}
        return history


async def read_changes(git: Git, path: Path) -> WorktreeChanges:
    """Return the uncommitted changes of a worktree, read with git and without the cache."""
    result = await git.run(path, *STATUS_ARGUMENTS)
    if result.returncode != 0 or result.cut:
        raise git_error(path, "status", result)
    changes = parse_status(result.stdout)
    if not any(path.startswith(f"{ROOKERY_FOLDER}/") for path in changes.untracked):
        return changes
    result = await git.run(path, "ls-files", "--others", "--exclude-standard", "-z", "--", ROOKERY_FOLDER)
    if result.returncode != 0 or result.cut:
        raise git_error(path, "ls-files", result)
    return changes.without_pictures([os.fsdecode(name) for name in result.stdout.split(b"\0") if name])


def _make_status(
    workspace: Workspace,
    changes: WorktreeChanges,
    base: str | None,
    pair: CommitPair | None,
    measured: RepositoryHistory,
) -> GitStatus:
    if pair is None or base is None:
        return GitStatus(changes.is_dirty, 0, 0, 0, (), base)
    ahead, behind = measured.distances.get(pair, (0, 0))
    unmerged = count_unmerged(measured, pair, measured.bases[base])
    merged_into = base if not unmerged else None
    if unmerged:
        unmerged = min(unmerged, measured.outside.get(pair[0], unmerged))
        merged_into = measured.containing.get(pair[0]) if not unmerged else None
    if workspace.main or (merged_into is not None and not ahead and not _has_moved(workspace.path)):
        merged_into = None
    merge = measured.merges.get(pair)
    conflicts = merge.conflicts if merge is not None else ()
    return GitStatus(changes.is_dirty, unmerged, ahead, behind, conflicts, base, merged_into)


def _has_moved(workspace: Path) -> bool:
    own = read_git_folder(workspace)
    return own is not None and has_head_moved(own)


def _common_folder(project: Path) -> Path:
    """Return the git folder that all worktrees of a project share."""
    own = read_git_folder(project)
    return project if own is None else own.resolve()
