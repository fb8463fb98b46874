"""What is being deleted or restored is written down first and struck out last, so that a crash is continued."""

import asyncio
import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from rookery.system.files import read_plain, remove, write_atomic
from rookery.workspaces.moving import move_folder
from rookery.workspaces.naming import folder_name
from rookery.workspaces.trash import Trashed

logger = logging.getLogger("rookery.workspaces")

_LARGEST = 2**20


class Deleting(msgspec.Struct, frozen=True):
    """`copying` says that a folder went, or goes, to another file system."""

    trashed: Trashed
    force: bool
    copying: bool = False

    @property
    def file(self) -> Path:
        return Path(self.trashed.project.id) / "deleting" / f"{folder_name(self.trashed.name)}.json"


class Restoring(msgspec.Struct, frozen=True):
    """`path` and `own` are where the folder and the git folder go."""

    trashed: Trashed
    path: str
    own: str
    copying: bool = False

    @property
    def file(self) -> Path:
        return Path(self.trashed.project.id) / "restoring" / f"{self.trashed.id}.json"


Kind = TypeVar("Kind", Deleting, Restoring)


class Intents(Generic[Kind]):
    def __init__(self, state: Path, kind: type[Kind], folder: str) -> None:
        self._projects, self._kind, self._folder = state / "projects", kind, folder

    def write(self, intent: Kind) -> None:
        place = self._projects / intent.file
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, msgspec.json.encode(intent), mode=0o600)

    def strike_out(self, intent: Kind) -> None:
        remove(self._projects / intent.file)

    async def move(self, intent: Kind, source: Path, to: Path) -> Kind:
        """Move a folder as it is intended to; answers how far that has come, which is written down."""
        now = intent

        def copying() -> None:
            nonlocal now
            now = msgspec.structs.replace(intent, copying=True)
            self.write(now)

        await asyncio.to_thread(move_folder, source, to, copying, copied=intent.copying)
        return now

    def all(self) -> list[Kind]:
        found: list[Kind] = []
        for place in sorted(self._projects.glob(f"*/{self._folder}/*.json")):
            try:
                found.append(msgspec.json.decode(read_plain(place, _LARGEST), type=self._kind))
            except FileNotFoundError:
                continue
            except (OSError, msgspec.MsgspecError) as error:
                logger.error("%s cannot be read, and is left alone: %s", place, error)
        return found
