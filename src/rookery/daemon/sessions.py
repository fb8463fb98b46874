"""Sessions as a service of the daemon: driven by every face, and ended before their agents are."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.api.sessions_asks import require_outsider
from rookery.daemon.agents import AgentsService
from rookery.daemon.settings import Settings
from rookery.plugins.boulder.service import Boulder
from rookery.sessions.choosing import Alias
from rookery.sessions.executing import Executor
from rookery.sessions.service import Sessions
from rookery.sessions.terminals import Terminals
from rookery.system.bus import Bus
from rookery.toolsets.session import session_toolset
from rookery.toolsets.toolset import Tool, Toolset
from rookery.workspaces.service import Workspaces


class SessionsService:
    name = "sessions"
    needs: Sequence[str] = ("agents",)

    def __init__(
        self, settings: Settings, agents: AgentsService, workspaces: Workspaces, events: Bus, boulder: Boulder
    ) -> None:
        aliases = {name: Alias(one.agent, one.model) for name, one in settings.sessions.agents.items()}
        launcher = agents.agents.launcher
        terminals = Terminals(
            launcher.spawner,
            launcher.user,
            most=settings.sessions.terminals,
            idle_seconds=settings.sessions.terminal_idle_seconds,
        )
        self.sessions = Sessions(agents.agents, workspaces, events, aliases=aliases, terminals=terminals)
        self._boulder = boulder
        # Tools of others that belong to this toolset, made for who sees no more than a workspace, or for the owner.
        self.tools: list[Callable[[Path | None], Sequence[Tool]]] = []
        self._executor = self.sessions.executor = Executor(agents.plays)

    def toolset(self, scope: Path | None) -> Toolset:
        """For clients that see no more than the workspace `scope`, or for the owner."""
        return session_toolset(self.sessions, scope, require_outsider, self._boulder, self.more(scope))

    def more(self, scope: Path | None) -> list[Tool]:
        return [tool for make in self.tools for tool in make(scope)]

    async def start(self) -> None:
        """They are there as soon as their agents are."""

    async def stop(self) -> None:
        await self.sessions.terminals.close()
        await self._executor.close()
