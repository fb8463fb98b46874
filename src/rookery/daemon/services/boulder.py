"""Connects the Boulder plugin to the daemon: its settings, and access to workspaces."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.lookup import WorkspaceLookup
from rookery.daemon.services.files import FilesService
from rookery.daemon.settings.schema import BoulderSettings
from rookery.files.just.recipes import Justfile
from rookery.files.read import read_content
from rookery.plugins.boulder.policy import BoulderLimits
from rookery.plugins.boulder.service import Boulder
from rookery.plugins.boulder.state import SwitchLevel
from rookery.plugins.boulder.store import LogLine
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.store import Store
from rookery.workspaces.model import format_path
from rookery.workspaces.projects import Projects


def make_boulder(
    settings: BoulderSettings,
    store: Store,
    files: FilesService,
    lookup: WorkspaceLookup,
    projects: Projects,
    events: Bus,
) -> Boulder:
    """Return Boulder with its limits; it publishes its log lines as events."""
    limits = BoulderLimits(
        settings.idle_seconds, settings.cooldown_seconds, settings.abort_seconds, settings.failures, settings.budget
    )

    def publish(line: LogLine) -> None:
        events.publish(f"boulder.{line.what}", **msgspec.to_builtins(line))

    return Boulder(store, BoulderWorkspaces(files, lookup, projects, events), limits, settings.checks, publish)


class BoulderWorkspaces:
    """The workspaces and projects as Boulder accesses them."""

    def __init__(self, files: FilesService, lookup: WorkspaceLookup, projects: Projects, events: Bus) -> None:
        self._files = files
        self._lookup = lookup
        self._projects = projects
        self._events = events

    async def subject(self, level: SwitchLevel, reference: str) -> str:
        """Return the path of a workspace, or the id of a project; raise if there is none or the name is ambiguous."""
        if level == "workspace":
            return format_path(await self._lookup.find_folder(reference))
        projects = await self._projects.all()
        matches = [project.id for project in projects if reference in (project.id, Path(project.path).name)]
        if len(matches) != 1:
            available = ", ".join(project.id for project in projects) or "none"
            why = f"several projects are called {reference!r}" if matches else f"there is no project {reference!r}"
            raise RookeryError("project-not-found", why, f"available projects: {available}")
        return matches[0]

    async def watch(self, on_deleted: Callable[[SwitchLevel, str], Awaitable[None]]) -> None:
        """Report deleted or newly created workspaces and removed projects, until the event bus ends."""

        async def on_event(event: Event) -> None:
            if event.type in ("workspace.deleted", "workspace.created"):
                await on_deleted("workspace", event.data["path"])
            elif event.type == "project.removed":
                await on_deleted("project", event.data["project"]["id"])

        await follow_bus(self._events, on_event)()

    async def read(self, workspace: str, path: str) -> str:
        """Return the text of a file in a workspace; raise if it is cut or no text."""
        content = await read_content((await self._files.get_files(Path(workspace))).root, path)
        if content.cut or content.encoding is None:
            why = content.cut or "it is not a text file"
            raise RookeryError("file-unreadable", f"{path} cannot be read as a plan: {why}")
        return content.text

    async def run(self, workspace: str, task: str) -> tuple[bool, str]:
        """Run a just task; return whether it succeeded, and how it failed."""
        tasks = await self._files.tasks(Path(workspace), limited=False)
        result = await tasks.run(task, (), None, _decline, None)
        return result.ok, f"fails with {result.exit_code}" if result.ending == "ended" else "exceeded its time limit"


async def _decline(question: str, justfile: Justfile) -> bool:
    """Decline: there is no user who could confirm."""
    return False
