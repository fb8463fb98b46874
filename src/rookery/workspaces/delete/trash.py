"""The trash of deleted workspaces: folders, git folders, refs, and a record of each entry.

The intent journal lists the deletions and restores in progress. An intent is written first and removed last, so that
the next process can continue after a crash.
"""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.fs.atomic import UnreadableFile, read_json, remove_file, write_atomic
from rookery.system.fs.paths import ensure_private_folder
from rookery.system.git import Git, git_error
from rookery.system.ids import match_prefix
from rookery.workspaces.delete.folders import measure_folder, move_folder, remove_folder
from rookery.workspaces.locks import RepositoryLocks, run_git_write
from rookery.workspaces.lookup import find_common_git_folder
from rookery.workspaces.model import encode_folder_name
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import read_git_folder

logger = logging.getLogger("rookery.workspaces")

BRANCH_REF_PREFIX = "refs/rookery/trash/"
# Refs on staged files and commits that nothing else refers to, so that git's housekeeping keeps them.
PRESERVED_REF_PREFIX = "refs/rookery/held/"
_DAY_SECONDS = 86_400.0
_TIME_FORMAT = "%Y%m%dT%H%M%S%f"

# Returns the ids of the entries that are being moved to the trash or out of it.
ListBusyIds = Callable[[], Sequence[str]]


class TrashEntry(msgspec.Struct, frozen=True):
    """A deleted workspace. `own` is the old path of its git folder, `config` the repository's config of its branch."""

    id: str
    project: Project
    name: str
    path: str
    own: str
    branch: str | None
    head: str | None
    kept_branch: bool
    at: float
    # Whether the index may differ from the head.
    staged: bool = False
    config: tuple[tuple[str, str], ...] = ()
    # The entry is being purged, and can no longer be restored.
    purging: bool = False
    size: int | None = None
    # The value of `RunningTime` at the deletion; None in records of older versions.
    since: float | None = None
    # The branch that has the commits of the workspace, if there were any and they are merged.
    merged_into: str | None = None

    @property
    def ref(self) -> str:
        return BRANCH_REF_PREFIX + self.id

    @property
    def preserved_ref(self) -> str:
        return PRESERVED_REF_PREFIX + self.id


class OrphanedEntry(msgspec.Struct, frozen=True):
    """Something in the trash without a readable record: `error` says why, `paths` are its files and folders."""

    id: str
    error: str
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The name of the workspace as far as the id contains it."""
        return self.id.partition("-")[2] or self.id

    @property
    def at(self) -> float:
        """The time of the deletion, from the id or else from the files."""
        try:
            return datetime.strptime(self.id.partition("-")[0], _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return max((path.lstat().st_mtime for path in self.paths if os.path.lexists(path)), default=0.0)


class _SavedTime(msgspec.Struct, frozen=True):
    """The running time that was saved: `at` is the uptime in this `boot`, `total` the sum of all boots."""

    boot: str
    at: float
    total: float


class RunningTime:
    """Counts seconds while the machine is on, including sleep, across restarts of the machine and of the daemon.

    It measures the age of trash entries. The time of day is not used: a clock that is wrong, or is set while the daemon
    runs or is stopped, makes nothing older. Between two readings in the same boot all time counts, from one boot to the
    next none. `save` is called from time to time, because time that was not saved before a restart of the machine is
    lost.
    """

    def __init__(self, file: Path, clock: Clock, minimum: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock
        self._minimum = minimum
        self._last: _SavedTime | None = None

    def now(self) -> float:
        """Return the total running time in seconds."""
        boot, at = self._clock.uptime()
        last = self._last or self._load(boot, at)
        step = at - last.at if boot == last.boot else 0.0
        self._last = _SavedTime(boot, at, last.total + max(step, 0.0))
        return self._last.total

    def save(self) -> None:
        self.now()
        write_atomic(self._file, msgspec.json.encode(self._last), mode=0o600)

    def _load(self, boot: str, at: float) -> _SavedTime:
        try:
            return read_json(self._file, _SavedTime)
        except FileNotFoundError:
            pass
        except UnreadableFile as error:
            logger.error(
                "%s cannot be read (%s): the age of trash entries is counted again from now", self._file, error
            )
        # At least the largest value of all entries, else that entry would be kept longer than the others.
        return _SavedTime(boot, at, self._minimum())


class Trash:
    """The entries of the trash: records, folders and refs."""

    def __init__(self, state: Path, git: Git, locks: RepositoryLocks, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder = state / "trash"
        self._git = git
        self._locks = locks
        self._purging: set[str] = set()
        self._reported: set[Path] = set()
        self.time = RunningTime(
            state / "trash-age.json", clock, lambda: max((entry.since or 0.0 for entry in self.all()), default=0.0)
        )

    def new_id(self, name: str, at: float) -> str:
        """Return a new id `<time>-<name>` that is valid as a file name and in a ref."""
        ensure_private_folder(self._folder)
        moment = int(at * 1_000_000)
        while True:
            time = datetime.fromtimestamp(moment / 1_000_000, UTC).strftime(_TIME_FORMAT)
            id_ = f"{time}-{_encode_id_part(name)}"
            if not any(self._folder.glob(f"{time}-*")):
                return id_
            moment += 1

    def folder_of(self, entry: TrashEntry) -> Path:
        return self._folder / entry.id

    def git_folder_of(self, entry: TrashEntry) -> Path:
        return self._folder / f"{entry.id}.git"

    def write(self, entry: TrashEntry) -> None:
        ensure_private_folder(self._folder)
        write_atomic(self._record_path(entry.id), msgspec.json.encode(entry), mode=0o600)

    def remove_record(self, entry: TrashEntry) -> None:
        remove_file(self._record_path(entry.id))

    def all(self) -> list[TrashEntry]:
        """Return the entries, the oldest first.

        They are sorted by running time, because the time of day may have been wrong at one deletion and not at another.
        """
        return sorted(self._read_all(), key=lambda entry: (-1.0 if entry.since is None else entry.since, entry.at))

    def save_time(self) -> None:
        """Save how long the machine has run, unless nothing was ever deleted."""
        if self._folder.is_dir():
            self.time.save()

    def list_orphans(self, list_busy: ListBusyIds) -> list[OrphanedEntry]:
        """Return the parts of the trash without a readable record, such as a folder whose record was deleted."""
        known_ids = {*(entry.id for entry in self._read_all()), *list_busy(), *self._purging}
        paths: dict[str, list[Path]] = {}
        for path in self._list_files():
            if not path.name.startswith("."):  # a record that is being written
                paths.setdefault(_read_id(path), []).append(path)
        return [
            OrphanedEntry(id_, self._why_unreadable(id_), tuple(parts))
            for id_, parts in paths.items()
            if id_ not in known_ids
        ]

    def get(self, id_or_name: str, project: str | None = None) -> TrashEntry:
        """Return an entry by its id or a unique prefix of it, or the newest by the name of the workspace."""
        entries = {entry.id: entry for entry in reversed(self.all()) if project in (None, entry.project.id)}
        for item in entries.values():
            if id_or_name in (item.id, item.name):
                return item
        if (id_ := match_prefix(id_or_name, entries, "deleted workspaces")) is not None:
            return entries[id_]
        for item in self.list_orphans(lambda: ()):
            if id_or_name == item.id:
                raise RookeryError(
                    "restore-failed",
                    f"{item.id} cannot be restored: {item.error}",
                    f"its files are in {item.paths[0]}; copy what you need, then: rookery ws trash purge {item.id}",
                )
        raise RookeryError(
            "workspace-not-found", f"{id_or_name} is not in the trash", "list the trash: rookery ws trash list"
        )

    def reload(self, entry: TrashEntry) -> TrashEntry | None:
        """Return the current record of an entry; None if it is no longer in the trash."""
        try:
            return self._read(self._record_path(entry.id))
        except (FileNotFoundError, UnreadableFile):
            return None

    async def sizes(self) -> dict[str, int]:
        """Return the bytes of each entry. They are counted once, as nothing changes in the trash."""
        sizes: dict[str, int] = {}
        for entry in self.all():
            size = entry.size
            if size is None:
                size = await asyncio.to_thread(measure_folder, self.folder_of(entry))
                # It may be on the way into the trash or out of it, or be purged meanwhile.
                current = self.reload(entry) if self.folder_of(entry).exists() else None
                if current is not None and not current.purging:
                    # On a disk that is not writable, the size is counted again the next time.
                    with contextlib.suppress(OSError):
                        self.write(msgspec.structs.replace(current, size=size))
            sizes[entry.id] = size
        return sizes

    async def empty(self, *, days: float, limit: int, busy: ListBusyIds) -> list[TrashEntry]:
        """Purge entries older than `days`, and the oldest while all of them take more than `limit` bytes.

        Return what was purged. Entries that are `busy` and those without a readable record are kept. An entry that
        cannot be purged does not stop the others.
        """
        sizes = await self.sizes()
        now = self.time.now()
        entries = [self._with_age(entry, now) for entry in self.all() if entry.id not in busy()]
        excess = sum(sizes.values()) - limit
        purged: list[TrashEntry] = []
        for entry in entries:
            if entry.purging or now - (now if entry.since is None else entry.since) > days * _DAY_SECONDS or excess > 0:
                try:
                    was_purged = await self.purge(entry, busy)
                except (RookeryError, OSError) as error:
                    logger.error("%s of %s cannot be purged: %s", entry.name, entry.project.id, error)
                    continue
                if was_purged:
                    excess -= sizes.get(entry.id, 0)
                    purged.append(entry)
        return purged

    async def purge(self, entry: TrashEntry, busy: ListBusyIds) -> bool:
        """Remove an entry permanently. Return False if it no longer exists or is busy.

        An interrupted purge can be repeated. A restore checks under the same lock, and finds the entry either complete
        or marked as being purged.
        """
        async with self._locks.write_lock(entry.project.path):
            current = self.reload(entry)
            if current is None or entry.id in self._purging or entry.id in busy():
                return False
            self.write(msgspec.structs.replace(current, purging=True))
            self._purging.add(entry.id)
        try:
            for folder in (self.folder_of(entry), self.git_folder_of(entry)):
                await asyncio.to_thread(remove_folder, folder)
            await self.drop_refs(entry)
            self.remove_record(entry)
        finally:
            self._purging.discard(entry.id)
        logger.info("%s of %s is purged from the trash", entry.name, entry.project.id)
        return True

    async def purge_orphan(self, orphan: OrphanedEntry) -> None:
        """Remove an entry without a readable record.

        Its refs are deleted if its folder names the repository.
        """
        folder = self._folder / orphan.id
        git_folder = read_git_folder(folder) if folder.is_dir() else None
        for path in orphan.paths:
            is_folder = path.is_dir() and not path.is_symlink()
            await asyncio.to_thread(remove_folder, path) if is_folder else remove_file(path)
        # <repository>/worktrees/<name>
        common = git_folder.parent.parent if git_folder is not None else None
        if common is not None and (common / "HEAD").is_file():
            for ref in (BRANCH_REF_PREFIX + orphan.id, PRESERVED_REF_PREFIX + orphan.id):
                await run_git_write(self._git, common, "update-ref", "-d", ref)
        logger.info("%s is purged from the trash", orphan.id)

    async def drop_refs(self, entry: TrashEntry) -> None:
        """Delete the refs of an entry, unless its repository no longer exists."""
        checkout = Path(entry.project.path)
        if not _is_repository(checkout):
            return
        async with self._locks.write_lock(entry.project.path):
            for ref in (entry.ref, entry.preserved_ref):
                dropped = await run_git_write(self._git, checkout, "update-ref", "-d", ref)
                if dropped.returncode != 0:
                    raise git_error(checkout, "update-ref", dropped)

    def _record_path(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"

    def _read(self, path: Path) -> TrashEntry:
        entry = read_json(path, TrashEntry)
        if path != self._record_path(entry.id):
            # Otherwise its folders would be searched for elsewhere, perhaps outside of the trash.
            raise UnreadableFile(path, "it is the record of another entry")
        return entry

    def _read_all(self) -> list[TrashEntry]:
        entries: list[TrashEntry] = []
        for path in self._list_files():
            if path.name.endswith(".json"):
                try:
                    entries.append(self._read(path))
                except FileNotFoundError:
                    continue
                except UnreadableFile as error:
                    if path not in self._reported:
                        self._reported.add(path)
                        logger.error("%s cannot be read and is skipped: %s", path, error)
        return entries

    def _list_files(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RookeryError(
                "state-unusable", f"the trash cannot be read: {error.strerror} ({self._folder})", "move that away"
            ) from error

    def _why_unreadable(self, id_: str) -> str:
        try:
            self._read(self._record_path(id_))
        except FileNotFoundError:
            return "its record is missing"
        except UnreadableFile as error:
            return f"its record cannot be read: {error}"
        return ""

    def _with_age(self, entry: TrashEntry, now: float) -> TrashEntry:
        """Return an entry with its age set: an entry of an older version starts to age at `reload`."""
        current = self.reload(entry) if entry.since is None and not entry.purging else None
        if current is None:
            return entry
        dated = msgspec.structs.replace(current, since=now)
        self.write(dated)
        return dated


def _is_repository(checkout: Path) -> bool:
    try:
        return find_common_git_folder(checkout) is not None
    except RookeryError:
        return False  # the folder is now a worktree of another repository


def _read_id(path: Path) -> str:
    return re.sub(r"\.(json|git)\Z", "", path.name)


def _encode_id_part(name: str) -> str:
    encoded = re.sub(r"[^A-Za-z0-9._%-]|\.(?=\.)", "_", encode_folder_name(name))[:100]
    return re.sub(r"(\.lock|\.)\Z", "_", encoded)


class DeletionIntent(msgspec.Struct, frozen=True):
    """A deletion in progress. `copying` says that a folder is being or was copied to another file system."""

    trashed: TrashEntry
    force: bool
    copying: bool = False

    @property
    def file(self) -> Path:
        return Path(self.trashed.project.id) / "deleting" / f"{encode_folder_name(self.trashed.name)}.json"


class RestoreIntent(msgspec.Struct, frozen=True):
    """A restore in progress. `path` and `own` are the targets of the folder and the git folder."""

    trashed: TrashEntry
    path: str
    own: str
    copying: bool = False

    @property
    def file(self) -> Path:
        return Path(self.trashed.project.id) / "restoring" / f"{self.trashed.id}.json"


IntentType = TypeVar("IntentType", DeletionIntent, RestoreIntent)


class IntentJournal(Generic[IntentType]):
    """The deletions or restores in progress, as files in the state folders of the projects."""

    def __init__(self, state: Path, kind: type[IntentType], folder: str) -> None:
        self._projects = state / "projects"
        self._kind = kind
        self._folder = folder

    def write(self, intent: IntentType) -> None:
        path = self._projects / intent.file
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, msgspec.json.encode(intent), mode=0o600)

    def remove(self, intent: IntentType) -> None:
        remove_file(self._projects / intent.file)

    async def move(self, intent: IntentType, source: Path, to: Path) -> IntentType:
        """Move a folder as intended, and return the intent with its progress, which is also recorded."""
        current = intent

        def copying() -> None:
            nonlocal current
            current = msgspec.structs.replace(intent, copying=True)
            self.write(current)

        await asyncio.to_thread(move_folder, source, to, copying, copied=intent.copying)
        return current

    def all(self) -> list[IntentType]:
        intents: list[IntentType] = []
        for path in sorted(self._projects.glob(f"*/{self._folder}/*.json")):
            try:
                intents.append(read_json(path, self._kind))
            except FileNotFoundError:
                continue
            except UnreadableFile as error:
                logger.error("%s cannot be read and is skipped: %s", path, error)
        return intents
