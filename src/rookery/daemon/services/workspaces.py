"""The workspaces as a service of the daemon: what they may run is what the user has approved."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from rookery.daemon.agents import make_agents
from rookery.daemon.settings import Settings
from rookery.guard.approvals import Approvals
from rookery.guard.named_files import files_named, fingerprints
from rookery.guard.subject import Subject
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces
from rookery.workspaces.setup import Asked
from rookery.workspaces.tools import WorkspaceTools

# The kind of a setup command.
SETUP = "setup"


class WorkspacesService:
    name = "workspaces"
    needs: Sequence[str] = ("store",)

    def __init__(
        self,
        settings: Settings,
        state: Path,
        store: Store,
        spawner: Spawner,
        events: Bus,
        projects: Projects,
        approvals: Approvals,
    ) -> None:
        self._approvals = approvals
        self._git = git = Git(spawner)
        self.workspaces = Workspaces(
            state,
            store,
            git,
            spawner,
            events,
            projects,
            approved=self._approved,
            place=settings.worktrees.path,
            setup_seconds=settings.workspace.setup_seconds,
            days=settings.trash.days,
            limit=settings.trash.limit,
        )
        self.agents = make_agents(settings, state, store, spawner, events, self.workspaces)
        self.tools = WorkspaceTools(self.workspaces, projects, git, events, self.agents)

    async def start(self) -> None:
        await self.workspaces.start()

    async def stop(self) -> None:
        await self.workspaces.stop()

    async def waiting(self) -> list[Subject]:
        """What repositories want to run, for the user to look at: setup commands, and programs of git's config."""
        # One after the other: many at once would take the threads that others need.
        return [await self._subject(asked) for asked in await self.workspaces.asked()]

    async def _approved(self, asked: Asked) -> bool:
        return await self._approvals.state(await self._subject(asked)) == "approved"

    async def _subject(self, asked: Asked) -> Subject:
        """What a repository wants to run, as something to approve: its words, and the files that they name."""
        folder = Path(asked.folder)
        argv = ["/bin/sh", "-c", asked.content]
        files: dict[str, str] = {}
        problem = ""
        try:
            named = await asyncio.to_thread(files_named, argv, folder, folder, os.environ.get("PATH", ""))
            ignored = await self._ignored(folder, named)
            files = await asyncio.to_thread(fingerprints, [one for one in named if str(one) not in ignored], folder)
        except RookeryError as error:
            problem = error.message
        place = os.path.realpath(asked.place)
        return Subject(asked.kind, place, asked.name, asked.content, files, asked.source, problem, asked.folder)

    async def _ignored(self, folder: Path, named: Sequence[Path]) -> frozenset[str]:
        """What git ignores never came with the repository: most often the command itself has made it."""
        if not named:
            return frozenset()
        ran = await self._git.run(
            folder, "check-ignore", "-z", "--stdin", input=b"".join(os.fsencode(one) + b"\0" for one in named)
        )
        return frozenset(map(os.fsdecode, ran.stdout.split(b"\0"))) if ran.returncode == 0 else frozenset()
