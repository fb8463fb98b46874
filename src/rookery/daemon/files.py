"""The files of workspaces as a service of the daemon: each has one root, from its first use until it is closed."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.daemon.context import Gathering
from rookery.daemon.follow import follow
from rookery.daemon.justfiles import Justfiles
from rookery.daemon.nested import Nested
from rookery.daemon.settings import Settings
from rookery.daemon.tasks import WorkspaceTasks
from rookery.files.context.engine import Context
from rookery.files.context.failures import Failures
from rookery.files.just import Just
from rookery.files.sandbox import Root
from rookery.files.secrets import ALLOWED, FILES, Denied
from rookery.system.bus import Bus, Event
from rookery.system.git import Git
from rookery.system.tasks import TaskSet
from rookery.toolsets.project import project_toolset
from rookery.toolsets.selecting import nothing_selected
from rookery.toolsets.toolset import Toolset
from rookery.wire.provider import Call
from rookery.workspaces.projects import Projects
from rookery.workspaces.record import Workspace
from rookery.workspaces.tools import WorkspaceTools

logger = logging.getLogger("rookery.daemon")

_OWNER = "owner"
Mark = tuple[int, int]


class Ground:
    """What is held for one workspace. `mark` tells its folder from another one in the same place."""

    def __init__(self, workspace: Workspace, root: Root, mark: Mark) -> None:
        self.workspace, self.root, self.mark = workspace, root, mark
        self.real = root.path.resolve()
        self.failures = Failures()
        self.running = TaskSet(f"just in {workspace.name}")
        self._contexts: dict[bool, Context] = {}

    def context(self, everything: bool, make: Callable[[], Context]) -> Context:
        """One for the owner and one for the workspace's own token: each remembers what it has told."""
        if everything not in self._contexts:
            self._contexts[everything] = make()
        return self._contexts[everything]

    async def close(self) -> bool:
        """End the tasks that run; whether there were any."""
        ran = len(self.running) > 0
        self.root.close()
        await self.running.close()
        for one in self._contexts.values():
            await one.close()
        return ran


class FilesService:
    name = "files"
    needs: Sequence[str] = ("workspaces",)

    def __init__(
        self,
        settings: Settings,
        state: Path,
        projects: Projects,
        workspaces: WorkspaceTools,
        git: Git,
        just: Just,
        justfiles: Justfiles,
        gathering: Gathering,
        events: Bus,
    ) -> None:
        self.git, self.just, self.justfiles, self.gathering = git, just, justfiles, gathering
        self.workspaces = workspaces
        self.task_seconds = settings.just.seconds
        self._denied = Denied(
            files=(*FILES, *_patterns(settings.files.secret)), allowed=(*ALLOWED, *_patterns(settings.files.allowed))
        )
        self._nested = Nested(state, projects, workspaces.workspaces)
        self._events = events
        self._grounds: dict[Path, Ground] = {}
        self._opening = asyncio.Lock()
        self._tasks = TaskSet("files")

    def toolset(self, directory: Path | None) -> Toolset:
        """`project` for a view of the workspace there, or of none."""
        return project_toolset(_Place(self, directory), self.git)

    async def start(self) -> None:
        self._tasks.start(follow(self._events, self._heard), "events")

    async def stop(self) -> None:
        await self._tasks.close()
        for directory in list(self._grounds):
            await self._let_go(directory)

    async def opened(self, workspace: Workspace) -> None:
        """Its root is opened when somebody needs it."""

    async def closed(self, workspace: Workspace) -> bool:
        return await self._let_go(workspace.path)

    async def ground(self, directory: Path) -> Ground:
        """That of the workspace there, with what else lies inside denied; an error tells why there is none."""
        found = self._grounds.get(directory)
        if found is None or found.mark != _mark(directory):
            async with self._opening:
                found = await self._opened(directory)
        inside = await self._nested.inside(found.real)
        if found.root.denied.workspaces != inside:
            found.root.denied = dataclasses.replace(self._denied, workspaces=inside)
        return found

    def tasks(self, ground: Ground) -> WorkspaceTasks:
        return WorkspaceTasks(
            ground.workspace,
            self.just,
            self.justfiles,
            self.workspaces.workspaces,
            ground.failures,
            ground.running,
            self.task_seconds,
        )

    async def _opened(self, directory: Path) -> Ground:
        found = self._grounds.get(directory)
        mark = _mark(directory)
        if found is not None and found.mark == mark:
            return found
        await self._let_go(directory)
        workspace = await self.workspaces.at(directory)
        # The mark is of the folder before it was opened: if another one came meanwhile, the next call opens that.
        found = self._grounds[directory] = Ground(workspace, Root(directory, self._denied), mark or (0, 0))
        return found

    async def _let_go(self, directory: Path) -> bool:
        found = self._grounds.pop(directory, None)
        return await found.close() if found is not None else False

    async def _heard(self, event: Event) -> None:
        if event.type.startswith(("project.", "workspace.")):
            self._nested.forget()
            removed = event.data["project"]["path"] if event.type == "project.removed" else None
            for directory, one in list(self._grounds.items()):
                # One that somebody asked for while it was deleted was opened once more.
                if one.workspace.project.path == removed or one.mark != _mark(directory):
                    await self._let_go(directory)


class _Place:
    """The workspace of a view, as its tools ask for it."""

    def __init__(self, files: FilesService, directory: Path | None) -> None:
        self._files, self._directory = files, directory

    async def root(self) -> Root:
        return (await self._ground()).root

    async def tasks(self) -> WorkspaceTasks:
        return self._files.tasks(await self._ground())

    async def context(self, call: Call) -> Context:
        ground = await self._ground()
        everything = call.owner == _OWNER
        return ground.context(
            everything,
            lambda: self._files.gathering.context(ground.workspace, ground.root, ground.failures, everything),
        )

    async def _ground(self) -> Ground:
        if self._directory is None:
            raise nothing_selected()
        return await self._files.ground(self._directory)


def _patterns(written: str) -> list[str]:
    return [one for word in written.split(",") if (one := word.strip())]


def _mark(directory: Path) -> Mark | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
