"""Sessions as a service of the daemon, ended before their agents.

Screenshots are saved in a workspace, in the state folder, or in a folder that the settings name.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rookery.daemon.services.agents import AgentsService
from rookery.daemon.services.files import FilesService
from rookery.daemon.services.nested_folders import NestedFolders
from rookery.daemon.settings.schema import Settings
from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import DenyRules
from rookery.operations.operation import BoundOperation
from rookery.plugins.boulder.service import Boulder
from rookery.sessions.aliases import AgentAlias
from rookery.sessions.run_tool import HiddenChildExecutor
from rookery.sessions.service import Sessions
from rookery.sessions.terminal.pool import TerminalPool
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.toolsets.session import session_toolset
from rookery.toolsets.toolset import Toolset
from rookery.workspaces.service import Workspaces


class SessionsService:
    """Provides sessions with agents, their terminals, and the `session` toolset."""

    name = "sessions"
    needs: Sequence[str] = ("agents",)

    def __init__(
        self,
        settings: Settings,
        agents: AgentsService,
        workspaces: Workspaces,
        events: Bus,
        boulder: Boulder,
        operations: Sequence[BoundOperation[Any]],
    ) -> None:
        aliases = {name: AgentAlias(alias.agent, alias.model) for name, alias in settings.sessions.agents.items()}
        launcher = agents.agents.launcher
        terminals = TerminalPool(
            launcher.spawner,
            launcher.user_environment,
            max_terminals=settings.sessions.terminals,
            idle_seconds=settings.sessions.terminal_idle_seconds,
        )
        self.sessions = Sessions(agents.agents, workspaces, events, aliases=aliases, terminals=terminals)
        self._boulder = boulder
        self._operations = operations
        self._executor = self.sessions.executor = HiddenChildExecutor(agents.scripted_calls)

    def toolset(self, scope: Path | None, directory: Path | None = None) -> Toolset:
        """Return the toolset for clients that may only access the workspace `scope`, or for the owner.

        It does not depend on the workspace that they have selected.
        """
        return session_toolset(self._operations, self.sessions, scope, self._boulder)

    async def start(self) -> None:
        """Do nothing: sessions are available as soon as their agents are."""

    async def stop(self) -> None:
        await self.sessions.terminals.close()
        await self._executor.close()


class SaveFolders:
    """The folders in which screenshots may be saved. `roots` is the setting `sessions.save_roots`."""

    def __init__(self, files: FilesService, nested: NestedFolders, state: Path, roots: str = "") -> None:
        self._files = files
        self._nested = nested
        named = (Path(word.strip()).expanduser() for word in roots.split(",") if word.strip())
        self._folders = [state, *(folder for folder in named if folder.is_absolute())]

    async def workspace(self, directory: Path) -> SandboxRoot:
        return await self._files.root(directory)

    async def find_outside_workspaces(self, path: str) -> tuple[SandboxRoot, str] | None:
        """Return the sandbox of the save folder that contains a path, and the resolved path; None if none does.

        A folder of the setting that is missing is created.
        """
        for folder in self._folders:
            real = await asyncio.to_thread(folder.resolve)
            for prefix in (str(folder), str(real)):
                if path.startswith(f"{prefix}/"):
                    await asyncio.to_thread(_create_folder, real)
                    root = SandboxRoot(real, DenyRules(workspaces=await self._nested.find_nested(real)))
                    return root, str(real) + path.removeprefix(prefix)
        return None


def _create_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder {folder} of sessions.save_roots cannot be created: {error.strerror}"
        remedy = "correct the setting: rookery config set sessions.save_roots FOLDERS; then restart the daemon"
        raise RookeryError("file-unwritable", message, remedy) from error
