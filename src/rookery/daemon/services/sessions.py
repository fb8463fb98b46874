"""Sessions as a service of the daemon, ended before their agents.

Screenshots are saved in a workspace, in the state folder, or in a folder that the settings name.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.daemon.services.agents import AgentsService
from rookery.daemon.services.files import FilesService
from rookery.daemon.services.nested import NestedFolders
from rookery.daemon.settings.schema import Settings
from rookery.files.sandbox import SandboxRoot
from rookery.files.secrets import DenyRules
from rookery.plugins.boulder.service import Boulder
from rookery.sessions.aliases import AgentAlias
from rookery.sessions.run_tool import HiddenChildExecutor
from rookery.sessions.service import Sessions
from rookery.sessions.terminal.pool import TerminalPool
from rookery.system.bus import Bus
from rookery.toolsets.session.screen import ScreenshotCalls
from rookery.toolsets.session.toolset import session_toolset
from rookery.toolsets.toolset import Tool, Toolset
from rookery.workspaces.service import Workspaces


class SessionsService:
    """Provides sessions with agents, their terminals, and the `session` toolset."""

    name = "sessions"
    needs: Sequence[str] = ("agents",)

    def __init__(
        self, settings: Settings, agents: AgentsService, workspaces: Workspaces, events: Bus, boulder: Boulder
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
        # Further tools of this toolset, made for clients that may only access one workspace, or for the owner.
        self.tool_makers: list[Callable[[Path | None], Sequence[Tool]]] = []
        self._executor = self.sessions.executor = HiddenChildExecutor(agents.scripted_calls)

    def toolset(self, scope: Path | None) -> Toolset:
        """Return the toolset for clients that may only access the workspace `scope`, or for the owner."""
        return session_toolset(self.sessions, scope, self._boulder, self.make_tools(scope))

    def make_tools(self, scope: Path | None) -> list[Tool]:
        return [tool for make in self.tool_makers for tool in make(scope)]

    async def start(self) -> None:
        """Do nothing: sessions are available as soon as their agents are."""

    async def stop(self) -> None:
        await self.sessions.terminals.close()
        await self._executor.close()


class SaveFolders:
    """The folders in which screenshots may be saved. `roots` is the setting `sessions.save_roots`."""

    def __init__(self, files: FilesService, nested: NestedFolders, state: Path, roots: str = "") -> None:
        self._files, self._nested = files, nested
        named = (Path(word.strip()).expanduser() for word in roots.split(",") if word.strip())
        self._folders = [state, *(folder for folder in named if folder.is_absolute())]

    def tools(self, sessions: Sessions) -> Callable[[Path | None], Sequence[Tool]]:
        return lambda scope: ScreenshotCalls(sessions, scope, self).tools()

    async def workspace(self, directory: Path) -> SandboxRoot:
        return (await self._files.get_files(directory)).root

    async def find_outside_workspaces(self, path: str) -> tuple[SandboxRoot, str] | None:
        """Return the sandbox of the save folder that contains a path, and the resolved path; None if none does."""
        for folder in self._folders:
            real = await asyncio.to_thread(folder.resolve)
            for prefix in (str(folder), str(real)):
                if path.startswith(f"{prefix}/"):
                    root = SandboxRoot(real, DenyRules(workspaces=await self._nested.find_nested(real)))
                    return root, str(real) + path.removeprefix(prefix)
        return None
