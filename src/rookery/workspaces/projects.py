"""The git repositories that Rookery knows. Registering one opens nothing and runs nothing of it."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rookery.system.bus import Bus
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import project_id
from rookery.system.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Project(msgspec.Struct, frozen=True):
    id: str
    name: str
    path: str


class Projects:
    def __init__(self, store: Store, git: Git, events: Bus, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._git, self._events, self._clock = store, git, events, clock
        # Done with each new one before anybody hears of it.
        self.adding: Callable[[Project], Awaitable[None]] = _nothing

    async def add(self, folder: Path) -> tuple[Project, bool]:
        """Register the repository that `folder` lies in; answers it, and whether it was new."""
        path = (await self._git.main_checkout(folder)).resolve()
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise RookeryError("invalid-input", f"{path!r} is not valid UTF-8", "rename the folder") from None
        # A folder that holds the home folder, or is it, would put all of it into an agent's hands.
        if Path.home().resolve().is_relative_to(path):
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
            await self.adding(project)
            self._events.publish("project.added", project=msgspec.to_builtins(project))
        return project, bool(added)

    async def all(self) -> list[Project]:
        rows: list[tuple[str, str, str]] = await self._store.read(
            lambda db: db.execute("SELECT id, name, path FROM projects ORDER BY name, id").fetchall()
        )
        return [Project(*row) for row in rows]

    async def get(self, project: str) -> Project:
        """A project by its id, or by its name where only one has it."""
        every = await self.all()
        found = [one for one in every if one.id == project] or [one for one in every if one.name == project]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(one.id for one in found)
            raise RookeryError("invalid-input", f"several projects are called {project}", f"say which: {ids}")
        raise RookeryError("project-not-found", f"there is no project {project}", "rookery project list")

    async def remove(self, project: str) -> Project:
        """Forget a project. Nothing of it is touched: repository, worktrees and branches stay as they are."""
        found = await self.get(project)
        await self._store.write(lambda db: db.execute("DELETE FROM projects WHERE id = ?", (found.id,)))
        self._events.publish("project.removed", project=msgspec.to_builtins(found))
        return found


async def _nothing(project: Project) -> None:
    """Nobody has asked for it."""
