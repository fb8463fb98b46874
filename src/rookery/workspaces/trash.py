"""What was deleted and can be brought back: folders, git folders and refs, with a record of what each was."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.files import read_plain, remove, write_atomic
from rookery.system.git import Git, failed
from rookery.system.places import ensure_private_folder
from rookery.workspaces.listing import common_folder
from rookery.workspaces.locks import RepositoryLocks, write_git
from rookery.workspaces.moving import remove_folder, size_of
from rookery.workspaces.naming import folder_name
from rookery.workspaces.projects import Project

logger = logging.getLogger("rookery.workspaces")

REF = "refs/rookery/trash/"
# Staged files and commits that nothing else holds, for git's housekeeping to leave alone.
HELD = "refs/rookery/held/"
_LARGEST = 2**20
_DAY = 86_400.0

# The ids of what is on its way to the trash or out of it.
Busy = Callable[[], Sequence[str]]


class Trashed(msgspec.Struct, frozen=True):
    """A deleted workspace. `own` is where its git folder was, `config` what the repository said of its branch."""

    id: str
    project: Project
    name: str
    path: str
    own: str
    branch: str | None
    head: str | None
    kept_branch: bool
    at: float
    # Its index may differ from its head.
    staged: bool = False
    config: tuple[tuple[str, str], ...] = ()
    # It is being emptied out, and cannot be restored any more.
    purging: bool = False
    size: int | None = None

    @property
    def ref(self) -> str:
        return REF + self.id

    @property
    def held(self) -> str:
        return HELD + self.id


class Trash:
    def __init__(self, state: Path, git: Git, locks: RepositoryLocks, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder = state / "trash"
        self._git, self._locks, self._clock = git, locks, clock
        self._going: set[str] = set()

    def new_id(self, name: str, at: float) -> str:
        """`<time>-<name>`, fit for a file and a ref."""
        ensure_private_folder(self._folder)
        moment = int(at * 1_000_000)
        while True:
            time = datetime.fromtimestamp(moment / 1_000_000, UTC).strftime("%Y%m%dT%H%M%S%f")
            found = f"{time}-{_fit(name)}"
            if not any(self._folder.glob(f"{time}-*")):
                return found
            moment += 1

    def folder_of(self, one: Trashed) -> Path:
        return self._folder / one.id

    def git_folder_of(self, one: Trashed) -> Path:
        return self._folder / f"{one.id}.git"

    def write(self, one: Trashed) -> None:
        ensure_private_folder(self._folder)
        write_atomic(self._record(one.id), msgspec.json.encode(one), mode=0o600)

    def forget(self, one: Trashed) -> None:
        remove(self._record(one.id))

    def all(self) -> list[Trashed]:
        """The oldest first."""
        found = [self._read(place) for place in sorted(self._folder.glob("*.json"))]
        return sorted((one for one in found if one is not None), key=lambda one: one.at)

    def get(self, wanted: str, project: str | None = None) -> Trashed:
        """By id, or the newest by the name of the workspace."""
        for one in reversed(self.all()):
            if wanted in (one.id, one.name) and project in (None, one.project.id):
                return one
        raise RookeryError(
            "workspace-not-found", f"there is no {wanted} in the trash", "see what there is: rookery ws trash list"
        )

    def now(self, one: Trashed) -> Trashed | None:
        """As it is by now; None if it is no longer in the trash."""
        return self._read(self._record(one.id))

    async def sizes(self) -> dict[str, int]:
        """The bytes of each entry; counted once, as nothing changes in the trash."""
        found: dict[str, int] = {}
        for one in self.all():
            size = one.size
            if size is None:
                size = await asyncio.to_thread(size_of, self.folder_of(one))
                # It may be on its way here or out, or be purged meanwhile.
                now = self.now(one) if self.folder_of(one).exists() else None
                if now is not None and not now.purging:
                    self.write(msgspec.structs.replace(now, size=size))
            found[one.id] = size
        return found

    async def empty(self, *, days: float, limit: int, busy: Busy) -> list[Trashed]:
        """Purge what is older, and the oldest while all of it takes more than `limit` bytes; answers what went.

        What is `busy` stays. One that cannot be purged does not keep the others.
        """
        sizes = await self.sizes()
        entries = [one for one in self.all() if one.id not in busy()]
        too_much = sum(sizes.values()) - limit
        gone: list[Trashed] = []
        for one in entries:
            if one.purging or self._clock.wall() - one.at > days * _DAY or too_much > 0:
                try:
                    went = await self.purge(one, busy)
                except (RookeryError, OSError) as error:
                    logger.error("%s of %s cannot be purged: %s", one.name, one.project.id, error)
                    continue
                if went:
                    too_much -= sizes.get(one.id, 0)
                    gone.append(one)
        return gone

    async def purge(self, one: Trashed, busy: Busy) -> bool:
        """Remove an entry for good; False if it is not there any more, or busy. One that is cut off is taken up again.

        Whoever restores looks under the same lock, and finds it either whole or marked.
        """
        async with self._locks.writing(one.project.path):
            now = self.now(one)
            if now is None or one.id in self._going or one.id in busy():
                return False
            self.write(msgspec.structs.replace(now, purging=True))
            self._going.add(one.id)
        try:
            for folder in (self.folder_of(one), self.git_folder_of(one)):
                await asyncio.to_thread(remove_folder, folder)
            await self.drop_refs(one)
            self.forget(one)
        finally:
            self._going.discard(one.id)
        logger.info("%s of %s is purged from the trash", one.name, one.project.id)
        return True

    async def drop_refs(self, one: Trashed) -> None:
        """A repository that is gone has taken them along."""
        checkout = Path(one.project.path)
        if not _is_repository(checkout):
            return
        async with self._locks.writing(one.project.path):
            for ref in (one.ref, one.held):
                dropped = await write_git(self._git, checkout, "update-ref", "-d", ref)
                if dropped.returncode != 0:
                    raise failed(checkout, "update-ref", dropped)

    def _record(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"

    def _read(self, place: Path) -> Trashed | None:
        with contextlib.suppress(FileNotFoundError):
            try:
                return msgspec.json.decode(read_plain(place, _LARGEST), type=Trashed)
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("%s cannot be read, and is left alone: %s", place, error)
        return None


def _is_repository(checkout: Path) -> bool:
    try:
        return common_folder(checkout) is not None
    except RookeryError:
        return False  # it has become a worktree of another one


def _fit(name: str) -> str:
    fit = re.sub(r"[^A-Za-z0-9._%-]|\.(?=\.)", "_", folder_name(name))[:100]
    return re.sub(r"(\.lock|\.)\Z", "_", fit)
