"""Sessions of real OpenCodes, driven through the service that all interfaces use."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.sessions.aliases import AgentAlias
from rookery.sessions.records import SessionChange
from rookery.sessions.service import Sessions
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from tests.support.agents.host import LIMIT, AgentHost, start_agent_host
from tests.support.workspaces.service import make_repository


class SessionDriver:
    """The session service, and the agents whose sessions it drives."""

    def __init__(self, host: AgentHost, sessions: Sessions) -> None:
        self.host, self.sessions = host, sessions
        self.told: list[str] = []
        self._news = asyncio.Event()
        sessions.listen(self._changed)

    def _changed(self, changes: frozenset[SessionChange]) -> None:
        self._news.set()

    async def progress(self, words: str) -> None:
        self.told.append(words)

    async def session(self, workspace: Workspace, **more: Any) -> str:
        """Create a session with a title, so that the model is not asked for one."""
        return (await self.sessions.create(str(workspace.path), title="a session", **more)).id

    async def until(self, look: Callable[[], object]) -> None:
        """Return when the condition holds."""
        async with asyncio.timeout(LIMIT):
            while not look():
                self._news.clear()
                await self._news.wait()

    async def until_is(self, workspace: Workspace, session: str, state: str) -> None:
        def states() -> dict[str, str]:
            return {one.id: one.state for one in self.host.agents.sessions(workspace)}

        await self.until(lambda: states().get(session) == state)


@asynccontextmanager
async def start_session_driver(
    script: Mapping[str, Any], *, aliases: Mapping[str, AgentAlias] | None = None, **more: Any
) -> AsyncGenerator[SessionDriver]:
    """Start a driver with a repository for workspaces."""
    app = make_repository(Path.home() / "src" / "app", {"notes.txt": "a needle\n"})
    async with start_agent_host(script, app, **more) as host:
        parts = host.gateway.parts.workspaces
        sessions = Sessions(parts.agents, parts.workspaces, Bus("sessions"), aliases=aliases)
        try:
            yield SessionDriver(host, sessions)
        finally:
            await sessions.terminals.close()


@asynccontextmanager
async def refusal(code: str, *words: str) -> AsyncGenerator[None]:
    """Check that the block raises an error with this code and this text in its message."""
    with pytest.raises(RookeryError) as caught:
        yield
    assert caught.value.code == code, caught.value.message
    for word in words:
        assert word in caught.value.message
