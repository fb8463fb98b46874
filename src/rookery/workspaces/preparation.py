"""From made to ready: files are brought along, then the setup command runs. Others wait here until that has ended."""

import asyncio
import logging
from pathlib import Path

from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.spawn import Spawner
from rookery.system.tasks import TaskSet
from rookery.workspaces.keepfiles import bring, files_to_bring
from rookery.workspaces.metadata import Preparing, write_preparing
from rookery.workspaces.ports import PortRanges
from rookery.workspaces.record import Workspace
from rookery.workspaces.setup import Approved, run_setup, setup_of
from rookery.workspaces.steps import step

logger = logging.getLogger("rookery.workspaces")


class Preparations:
    """Those that run now. What was cut off is known by its marker, and is begun again at the next start."""

    def __init__(
        self, git: Git, spawner: Spawner, events: Bus, ports: PortRanges, approved: Approved, setup_seconds: float
    ) -> None:
        self._git, self._spawner, self._events = git, spawner, events
        self._ports, self._approved, self._setup_seconds = ports, approved, setup_seconds
        self._tasks = TaskSet("preparation")
        self._running: dict[Path, asyncio.Task[None]] = {}

    def begin(self, workspace: Workspace, own: Path) -> None:
        """Prepare a workspace in the background, unless that is under way."""
        if own not in self._running:
            task = self._running[own] = self._tasks.start(self._prepare(workspace, own), workspace.name)
            task.add_done_callback(lambda _: self._running.pop(own, None))

    def runs(self, own: Path) -> bool:
        return own in self._running

    async def ended(self, own: Path) -> None:
        """Wait until a preparation that runs has ended, well or not."""
        if task := self._running.get(own):
            await asyncio.wait([task])

    async def stop(self, own: Path) -> None:
        """End a preparation that runs, with its setup command."""
        if task := self._running.get(own):
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        await self._tasks.close()

    async def environment(self, workspace: Workspace, own: Path) -> dict[str, str]:
        """What a program in a workspace is told: where it is, and which ports are its own."""
        ports = await self._ports.of(own)
        return {
            "ROOKERY_PROJECT_PATH": workspace.project.path,
            "ROOKERY_WORKSPACE_NAME": workspace.name,
            "ROOKERY_WORKSPACE_PATH": str(workspace.path),
            "ROOKERY_PORT": str(ports[0]),
            "ROOKERY_PORTS": f"{ports[0]}-{ports[-1]}",
        }

    async def _prepare(self, workspace: Workspace, own: Path) -> None:
        try:
            problems = await self._copy(workspace, own)
            await step("prepare.copied")
            await self._set_up(workspace, own)
            await step("prepare.set-up")
        except RookeryError as error:
            self._fail(
                workspace, own, f"{error.message}; {error.remedy}" if error.remedy else error.message, error.code
            )
        except OSError as error:
            self._fail(workspace, own, str(error))
        except Exception as error:
            self._fail(workspace, own, f"a fault of ours: {error!r}")
            raise
        else:
            write_preparing(own, None)
            await step("prepare.ended")
            self._tell("workspace.ready", workspace, "ready", None, notCopied=problems)

    async def _copy(self, workspace: Workspace, own: Path) -> list[str]:
        write_preparing(own, Preparing("copying"))
        checkout = Path(workspace.project.path)
        names = await files_to_bring(self._git, checkout, own)
        problems = await bring(
            checkout,
            workspace.path,
            names,
            lambda done, all_: self._progress(workspace, "copying", done=done, total=all_),
        )
        for problem in problems:
            logger.warning("%s: not copied from the main checkout: %s", workspace.path, problem)
        return problems

    async def _set_up(self, workspace: Workspace, own: Path) -> None:
        asked = setup_of(workspace)
        if asked is None:
            return
        write_preparing(own, Preparing("setup"))
        if not await self._approved(asked):
            raise RookeryError(
                "needs-approval",
                f"the setup command of {workspace.project.name} is not approved: {asked.content}",
                "look at it, and approve it: rookery guard approve setup",
            )
        self._progress(workspace, "setup", command=asked.content)
        env = await self.environment(workspace, own)
        await run_setup(self._spawner, asked.content, workspace.path, own, env, self._setup_seconds)

    def _fail(self, workspace: Workspace, own: Path, why: str, code: str = "internal-error") -> None:
        logger.warning("%s could not be prepared: %s", workspace.path, why)
        try:
            write_preparing(own, Preparing("failed", why, code))
        except OSError:
            logger.exception("%s: that could not be written down either", workspace.path)
        self._tell("workspace.failed", workspace, "failed", why, code=code)

    def _progress(self, workspace: Workspace, phase: str, **more: object) -> None:
        self._tell("workspace.preparing", workspace, "preparing", None, phase=phase, **more)

    def _tell(self, event: str, workspace: Workspace, state: str, error: str | None, **more: object) -> None:
        self._events.publish(event, **workspace.as_dict() | {"state": state, "error": error, "code": None} | more)
