"""The git repositories that Rookery knows. Registering one opens nothing and runs nothing of it."""

from pathlib import Path

import msgspec

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import project_id
from rookery.system.store import Store


class Project(msgspec.Struct, frozen=True):
    id: str
    name: str
    path: str


class Projects:
    def __init__(self, store: Store, git: Git, events: Bus, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._git, self._events, self._clock = store, git, events, clock

    async def add(self, folder: Path) -> tuple[Project, bool]:
        """Register the repository that `folder` lies in; answers it, and whether it was new."""
        path = (await self._git.main_checkout(folder)).resolve()
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise RookeryError("invalid-input", f"{path!r} is not valid UTF-8", "rename the folder") from None
        if path in (Path("/"), Path.home()):
            raise RookeryError(
                "invalid-input", f"{path} is too wide to be a project", "keep the repository in a folder"
            )
        project = Project(project_id(path), path.name, str(path))
        added = await self._store.write(
            lambda db: (
                db.execute(
                    "INSERT INTO projects (id, path, name, added) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (project.id, project.path, project.name, self._clock.wall()),
                ).rowcount
            )
        )
        if added:
            self._events.publish("project.added", project=msgspec.to_builtins(project))
        return project, bool(added)

    async def all(self) -> list[Project]:
        rows: list[tuple[str, str, str]] = await self._store.read(
            lambda db: db.execute("SELECT id, name, path FROM projects ORDER BY name, id").fetchall()
        )
        return [Project(*row) for row in rows]
