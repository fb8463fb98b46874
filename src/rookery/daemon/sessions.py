"""Sessions as a service of the daemon: driven by every face, and ended before their agents are."""

from collections.abc import Sequence
from pathlib import Path

from rookery.api.sessions_asks import require_outsider
from rookery.daemon.agents import AgentsService
from rookery.daemon.settings import Settings
from rookery.sessions.choosing import Alias
from rookery.sessions.executing import Executor
from rookery.sessions.service import Sessions
from rookery.system.bus import Bus
from rookery.toolsets.session import session_toolset
from rookery.toolsets.toolset import Toolset
from rookery.workspaces.service import Workspaces


class SessionsService:
    name = "sessions"
    needs: Sequence[str] = ("agents",)

    def __init__(self, settings: Settings, agents: AgentsService, workspaces: Workspaces, events: Bus) -> None:
        aliases = {name: Alias(one.agent, one.model) for name, one in settings.sessions.agents.items()}
        self.sessions = Sessions(agents.agents, workspaces, events, aliases=aliases)
        self._executor = self.sessions.executor = Executor(agents.plays)

    def toolset(self, scope: Path | None) -> Toolset:
        """For clients that see no more than the workspace `scope`, or for the owner."""
        return session_toolset(self.sessions, scope, require_outsider)

    async def start(self) -> None:
        """They are there as soon as their agents are."""

    async def stop(self) -> None:
        await self._executor.close()
