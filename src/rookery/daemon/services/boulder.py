"""Boulder as the daemon has it: with its settings, and with what it may ask of workspaces."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from rookery.daemon.boulder_settings import Boulder as BoulderSettings
from rookery.daemon.files import FilesService
from rookery.daemon.follow import follow
from rookery.daemon.lookup import WorkspaceLookup
from rookery.files.reading import read
from rookery.files.recipes import Justfile
from rookery.plugins.boulder.book import Line
from rookery.plugins.boulder.gates import Limits
from rookery.plugins.boulder.service import Boulder
from rookery.plugins.boulder.switches import Level
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import as_text


def boulder(
    settings: BoulderSettings,
    store: Store,
    files: FilesService,
    lookup: WorkspaceLookup,
    projects: Projects,
    events: Bus,
) -> Boulder:
    limits = Limits(
        settings.idle_seconds, settings.cooldown_seconds, settings.abort_seconds, settings.failures, settings.budget
    )

    def told(line: Line) -> None:
        events.publish(f"boulder.{line.what}", **msgspec.to_builtins(line))

    return Boulder(store, BoulderGround(files, lookup, projects, events), limits, settings.checks, told)


class BoulderGround:
    def __init__(self, files: FilesService, lookup: WorkspaceLookup, projects: Projects, events: Bus) -> None:
        self._files, self._lookup, self._projects, self._events = files, lookup, projects, events

    async def subject(self, level: Level, given: str) -> str:
        if level == "workspace":
            return as_text(await self._lookup.directory(given))
        projects = await self._projects.all()
        named = [one.id for one in projects if given in (one.id, Path(one.path).name)]
        if len(named) != 1:
            there = ", ".join(one.id for one in projects) or "none"
            why = f"several projects are called {given!r}" if named else f"there is no project {given!r}"
            raise RookeryError("project-not-found", why, f"those that there are: {there}")
        return named[0]

    async def watch(self, gone: Callable[[Level, str], Awaitable[None]]) -> None:
        async def heard(event: Event) -> None:
            if event.type in ("workspace.deleted", "workspace.created"):
                await gone("workspace", event.data["path"])
            elif event.type == "project.removed":
                await gone("project", event.data["project"]["id"])

        await follow(self._events, heard)

    async def read(self, workspace: str, path: str) -> str:
        found = await read((await self._files.ground(Path(workspace))).root, path)
        if found.cut or found.encoding is None:
            why = found.cut or "it is no text"
            raise RookeryError("file-unreadable", f"{path} cannot be read as a plan: {why}")
        return found.text

    async def run(self, workspace: str, task: str) -> tuple[bool, str]:
        tasks = self._files.tasks(await self._files.ground(Path(workspace)))
        ran = await tasks.run(task, (), None, _agree, None)
        return ran.ok, f"fails with {ran.exit_code}" if ran.ending == "ended" else "ran into its time limit"


async def _agree(question: str, justfile: Justfile) -> bool:
    """Nobody is there who could."""
    return False
