"""Workspaces as a service of the daemon: they run only what the user has approved."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from rookery.daemon.services.agents import make_agents
from rookery.daemon.settings.schema import Settings
from rookery.guard.approvals import Approvals
from rookery.guard.server import fingerprint_files, list_named_files
from rookery.guard.subject import Subject
from rookery.system.bus import Bus
from rookery.system.confinement.locations import SandboxOptions
from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.workspaces.confinement import WorkspaceSandboxes
from rookery.workspaces.create.run import FamilyLimits
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.prepare import ApprovalRequest
from rookery.workspaces.projects import Projects
from rookery.workspaces.service import Workspaces

# The approval kind of a setup command.
SETUP = "setup"


def sandbox_options(settings: Settings) -> SandboxOptions:
    """Return what the settings add to every sandbox."""
    read, write = (
        tuple(path.strip() for path in text.split(",") if path.strip())
        for text in (settings.sandbox.read, settings.sandbox.write)
    )
    return SandboxOptions(read, write, settings.sandbox.unix_sockets)


def has_sandbox(settings: Settings) -> bool:
    """Return whether the settings confine agents, servers or tasks, also those of an earlier daemon."""
    modes = (
        *(settings.agents.sandbox, settings.sandbox.tasks),
        *(settings.servers.sandbox, settings.servers.repository_sandbox),
    )
    return settings.sandbox.unix_sockets or any(mode not in ("off", "agents") for mode in modes)


class WorkspacesService:
    """Provides workspaces, which run only approved commands, and the manager of their agents."""

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
        # Programs that an earlier daemon has confined may still run.
        spawner.has_confined = spawner.has_confined or has_sandbox(settings)
        self.workspaces = Workspaces(
            state,
            store,
            git,
            spawner,
            events,
            projects,
            is_approved=self._is_approved,
            path_template=settings.worktrees.path,
            setup_seconds=settings.workspace.setup_seconds,
            days=settings.trash.days,
            limit=settings.trash.limit,
            sandboxes=WorkspaceSandboxes(
                state,
                sandbox_options(settings),
                unconfined_allowed=settings.sandbox.unavailable == "unconfined",
                always=has_sandbox(settings),
                tasks=settings.agents.sandbox if settings.sandbox.tasks == "agents" else settings.sandbox.tasks,
            ),
            family_limits=FamilyLimits(settings.limits.workspaces_each, settings.limits.agents_each),
        )
        self.agents = make_agents(settings, state, store, spawner, events, self.workspaces)
        self.tools = WorkspaceOperations(self.workspaces, projects, git, events, self.agents)

    async def start(self) -> None:
        await self._approvals.check()
        await self.workspaces.start()

    async def stop(self) -> None:
        await self.workspaces.stop()

    async def list_subjects(self) -> list[Subject]:
        """Return what repositories want to run, for approval: setup commands, and programs of git's config."""
        # One after the other: many at once would take the threads that other work needs.
        return [await self._subject(request) for request in await self.workspaces.list_approval_requests()]

    async def _is_approved(self, request: ApprovalRequest) -> bool:
        return await self._approvals.state(await self._subject(request)) == "approved"

    async def _subject(self, request: ApprovalRequest) -> Subject:
        """Return a command of a repository as a subject of approval: its text, and the files that it names."""
        folder = Path(request.folder)
        argv = ["/bin/sh", "-c", request.content]
        files: dict[str, str] = {}
        problem = ""
        try:
            named_files = await asyncio.to_thread(list_named_files, argv, folder, folder, os.environ.get("PATH", ""))
            ignored = await self._list_ignored(folder, named_files)
            files = await asyncio.to_thread(
                fingerprint_files, [file for file in named_files if str(file) not in ignored], folder
            )
        except RookeryError as error:
            problem = error.message
        place = os.path.realpath(request.place)
        return Subject(
            request.kind, place, request.name, request.content, files, request.source, problem, request.folder
        )

    async def _list_ignored(self, folder: Path, files: Sequence[Path]) -> frozenset[str]:
        """Return the files that git ignores: they are not part of the repository; often the command made them."""
        if not files:
            return frozenset()
        result = await self._git.run(
            folder, "check-ignore", "-z", "--stdin", input=b"".join(os.fsencode(file) + b"\0" for file in files)
        )
        return frozenset(map(os.fsdecode, result.stdout.split(b"\0"))) if result.returncode == 0 else frozenset()
