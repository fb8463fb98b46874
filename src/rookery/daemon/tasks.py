"""The just tasks of one workspace: approved before they run, ended with it, and remembered where they fail."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rookery.daemon.justfiles import Justfiles
from rookery.files.context.failures import Failures
from rookery.files.just import Agree, Bounds, Just, Progress, Ran, find_justfile
from rookery.files.just_arguments import Arguments
from rookery.files.recipes import Justfile
from rookery.system import environment
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.workspaces.record import Workspace
from rookery.workspaces.service import Workspaces


@dataclass(frozen=True)
class WorkspaceTasks:
    """`running` is closed with the workspace."""

    workspace: Workspace
    just: Just
    justfiles: Justfiles
    workspaces: Workspaces
    failures: Failures
    running: TaskSet
    seconds: float

    async def listed(self) -> tuple[Justfile | None, bool]:
        if find_justfile(self.workspace.path) is None:
            return None, False
        justfile = await self.just.listed(self.workspace.path)
        return justfile, await self.justfiles.may_run(self.workspace, justfile)

    async def run(
        self, name: str, arguments: Arguments, seconds: float | None, agree: Agree, progress: Progress | None
    ) -> Ran:
        async def approve(justfile: Justfile) -> None:
            await self.justfiles.require(self.workspace, justfile)

        given = await self.workspaces.environment(self.workspace)
        work = self.just.run(
            self.workspace.path,
            name,
            arguments,
            bounds=Bounds(seconds=seconds if seconds is not None else self.seconds),
            env=environment.allowed(given),
            approve=approve,
            agree=agree,
            progress=progress,
        )
        ran = await self._while_open(work)
        what = f"just {ran.task}"
        if ran.ok:
            self.failures.clear(what)
        else:
            how = f"exit code {ran.exit_code}" if ran.ending == "ended" else "ended by force at its time limit"
            self.failures.add(what, f"{how} after {ran.seconds:.1f} s", ran.output)
        return ran

    async def _while_open(self, work: Coroutine[Any, Any, Ran]) -> Ran:
        task = self.running.start(_held(work), "task")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled():
            raise RookeryError("workspace-not-found", "the workspace was closed while the task ran, which was ended")
        if isinstance(ended := task.result(), Exception):
            raise ended
        return ended


async def _held(work: Coroutine[Any, Any, Ran]) -> Ran | Exception:
    """What is raised is for whoever waits, and no crash."""
    try:
        return await work
    except Exception as error:
        return error
