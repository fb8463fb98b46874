"""The files and just tasks of workspaces as a service of the daemon.

Each workspace has one sandbox root, opened on first use and closed with the workspace. Tasks are approved before they
run, and end with their workspace.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.daemon.approvals import JustfileApprovals
from rookery.daemon.lifecycle import follow_bus
from rookery.daemon.services.context import ContextSources
from rookery.daemon.services.nested_folders import NestedFolders
from rookery.daemon.settings.schema import Settings
from rookery.files.context.engine import ProjectContext
from rookery.files.context.failures import FailureLog
from rookery.files.just.recipes import Justfile, RecipeArguments
from rookery.files.just.run import ConfirmRecipe, JustRunner, RecipeResult, ReportProgress, RunLimits, find_justfile
from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import ALLOWED_FILES, DENIED_FILES, DenyRules
from rookery.system.bus import Bus, Event
from rookery.system.causes import is_refusal
from rookery.system.confinement.locations import confine_environment
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.environment import EnvironmentFilter
from rookery.system.tasks import TaskSet
from rookery.workspaces.confinement import TASK_REFUSAL
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces

logger = logging.getLogger("rookery.daemon")


class TaskSlots:
    """Limits the processes that clients with a workspace's token start by its tasks."""

    def __init__(self, count: int) -> None:
        self.running = asyncio.Semaphore(count)
        self.reading = asyncio.Semaphore(count)


@dataclass(frozen=True)
class WorkspaceTasks:
    """Lists and runs the just tasks of one workspace. `running` is closed with the workspace.

    With `slots`, as many tasks run at a time, and as many justfiles are read.
    """

    workspace: Workspace
    just: JustRunner
    justfiles: JustfileApprovals
    workspaces: Workspaces
    failures: FailureLog
    running: TaskSet
    seconds: float
    environment: EnvironmentFilter
    slots: TaskSlots | None = None

    async def read_justfile(self) -> tuple[Justfile | None, bool]:
        """Return the justfile, if there is one, and whether its tasks may run."""
        if find_justfile(self.workspace.path) is None:
            return None, False
        async with self.slots.reading if self.slots is not None else contextlib.nullcontext():
            justfile = await self.just.read_justfile(self.workspace.path)
        return justfile, await self.justfiles.may_run(self.workspace, justfile)

    async def run(
        self,
        name: str,
        arguments: RecipeArguments,
        seconds: float | None,
        confirm: ConfirmRecipe,
        progress: ReportProgress | None,
    ) -> RecipeResult:
        """Run a task while the workspace is open, and record its failure for the context."""

        async def approve(justfile: Justfile) -> None:
            await self.justfiles.require(self.workspace, justfile)

        env = self.environment.select(await self.workspaces.environment(self.workspace))
        sandbox = await self.workspaces.make_task_sandbox(self.workspace, env)

        async def work() -> RecipeResult:
            async with self._wait_for_slot(progress):
                return await self.just.run(
                    self.workspace.path,
                    name,
                    arguments,
                    limits=RunLimits(seconds=seconds if seconds is not None else self.seconds),
                    env=env if sandbox is None else confine_environment(env, sandbox.variables),
                    confinement=sandbox.policy if sandbox is not None else None,
                    approve=approve,
                    confirm=confirm,
                    progress=progress,
                )

        result = await self._run_while_open(work())
        if sandbox is not None and not result.ok and is_refusal(result.output):
            result = dataclasses.replace(result, cause=TASK_REFUSAL)
        if not result.ok and not result.cause:
            result = dataclasses.replace(result, cause=self.environment.explain_failure(result.output, env))
        label = f"just {result.task}"
        if result.ok:
            self.failures.clear(label)
        else:
            ending = f"exit code {result.exit_code}" if result.ending == "ended" else "killed at its time limit"
            self.failures.add(label, f"{ending} after {result.seconds:.1f} s", result.output)
        return result

    @contextlib.asynccontextmanager
    async def _wait_for_slot(self, progress: ReportProgress | None) -> AsyncGenerator[None]:
        """Hold a slot during the block, after those who came before."""
        if self.slots is None:
            yield
            return
        if self.slots.running.locked() and progress is not None:
            await progress(0.0, "waiting for other tasks of this workspace to end")
        async with self.slots.running:
            yield

    async def _run_while_open(self, work: Coroutine[Any, Any, RecipeResult]) -> RecipeResult:
        """Run `work` until it ends; raise if the workspace is closed meanwhile."""
        task = self.running.start(_catch_error(work), "task")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled():
            raise RookeryError("workspace-not-found", "the task was stopped because its workspace was closed")
        if isinstance(outcome := task.result(), Exception):
            raise outcome
        return outcome


async def _catch_error(work: Coroutine[Any, Any, RecipeResult]) -> RecipeResult | Exception:
    """Return the error that `work` raises, so that the task does not count as crashed."""
    try:
        return await work
    except Exception as error:
        return error


FolderId = tuple[int, int]


class WorkspaceFiles:
    """The open files and tasks of one workspace. `folder_id` distinguishes its folder from another at the same path."""

    def __init__(self, workspace: Workspace, root: SandboxRoot, folder_id: FolderId, slots: TaskSlots) -> None:
        self.workspace = workspace
        self.root = root
        self.folder_id = folder_id
        self.slots = slots
        self.real_path = root.path.resolve()
        self.failures = FailureLog()
        self.running = TaskSet(f"just in {workspace.name}")
        self._contexts: dict[bool, ProjectContext] = {}

    def context(self, everything: bool, make: Callable[[], ProjectContext]) -> ProjectContext:
        """Return the context of the owner or of the workspace's token: each remembers what it has reported."""
        if everything not in self._contexts:
            self._contexts[everything] = make()
        return self._contexts[everything]

    async def close(self) -> bool:
        """End the running tasks and return whether there were any."""
        had_tasks = len(self.running) > 0
        self.root.close()
        await self.running.close()
        for context in self._contexts.values():
            await context.close()
        return had_tasks


class FilesService:
    """Opens the files and tasks of workspaces on first use."""

    name = "files"
    needs: Sequence[str] = ("workspaces",)

    def __init__(
        self,
        settings: Settings,
        state: Path,
        projects: Projects,
        workspaces: WorkspaceOperations,
        git: Git,
        just: JustRunner,
        justfiles: JustfileApprovals,
        context_sources: ContextSources,
        events: Bus,
    ) -> None:
        self.git = git
        self.just = just
        self.justfiles = justfiles
        self.context_sources = context_sources
        self.workspaces = workspaces
        self.task_seconds = settings.just.seconds
        self._tasks_each = settings.just.tasks_each
        self._task_environment = EnvironmentFilter.parse("just.env", settings.just.env)
        self._denied = DenyRules(
            files=(*DENIED_FILES, *_patterns(settings.files.secret)),
            allowed=(*ALLOWED_FILES, *_patterns(settings.files.allowed)),
        )
        self._nested = NestedFolders(state, projects, workspaces.workspaces)
        self._events = events
        self._open_files: dict[Path, WorkspaceFiles] = {}
        self._opening = asyncio.Lock()
        self._tasks = TaskSet("files")

    async def start(self) -> None:
        self._tasks.keep_running(follow_bus(self._events, self._on_event), "events")

    async def stop(self) -> None:
        await self._tasks.close()
        for directory in list(self._open_files):
            await self._close_files(directory)

    async def on_opened(self, workspace: Workspace) -> None:
        """Do nothing: the root is opened on first use."""

    async def on_closed(self, workspace: Workspace) -> bool:
        return await self._close_files(workspace.path)

    async def get_files(self, directory: Path) -> WorkspaceFiles:
        """Return the files of the workspace at `directory`, with nested workspaces denied; raise if there is none."""
        files = self._open_files.get(directory)
        if files is None or files.folder_id != _read_folder_id(directory):
            async with self._opening:
                files = await self._open(directory)
        nested = await self._nested.find_nested(files.real_path)
        if files.root.deny_rules.workspaces != nested:
            files.root.deny_rules = dataclasses.replace(self._denied, workspaces=nested)
        return files

    async def root(self, directory: Path) -> SandboxRoot:
        """Return the sandbox of the workspace at `directory`; raise if there is none."""
        return (await self.get_files(directory)).root

    async def tasks(self, directory: Path, *, limited: bool) -> WorkspaceTasks:
        """Return the tasks of the workspace at `directory`; raise if there is none."""
        files = await self.get_files(directory)
        return WorkspaceTasks(
            files.workspace,
            self.just,
            self.justfiles,
            self.workspaces.workspaces,
            files.failures,
            files.running,
            self.task_seconds,
            self._task_environment,
            files.slots if limited else None,
        )

    async def context(self, directory: Path, *, everything: bool) -> ProjectContext:
        """Return the context of a workspace, with `everything` that of the owner; raise if there is no workspace."""
        files = await self.get_files(directory)
        return files.context(
            everything,
            lambda: self.context_sources.context(files.workspace, files.root, files.failures, everything),
        )

    async def _open(self, directory: Path) -> WorkspaceFiles:
        files = self._open_files.get(directory)
        mark = _read_folder_id(directory)
        if files is not None and files.folder_id == mark:
            return files
        await self._close_files(directory)
        workspace = await self.workspaces.at(directory)
        # The mark is read before opening: if the folder is replaced meanwhile, the next call opens the new one.
        files = self._open_files[directory] = WorkspaceFiles(
            workspace, SandboxRoot(directory, self._denied), mark or (0, 0), TaskSlots(self._tasks_each)
        )
        return files

    async def _close_files(self, directory: Path) -> bool:
        files = self._open_files.pop(directory, None)
        return await files.close() if files is not None else False

    async def _on_event(self, event: Event) -> None:
        if event.type.startswith(("project.", "workspace.")):
            self._nested.invalidate()
            removed = event.data["project"]["path"] if event.type == "project.removed" else None
            for directory, files in list(self._open_files.items()):
                # A workspace that was requested during its deletion was opened once more.
                if files.workspace.project.path == removed or files.folder_id != _read_folder_id(directory):
                    await self._close_files(directory)


def _patterns(text: str) -> list[str]:
    return [pattern for word in text.split(",") if (pattern := word.strip())]


def _read_folder_id(directory: Path) -> FolderId | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
