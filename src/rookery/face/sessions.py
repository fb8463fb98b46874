"""Where sessions are found and begun: those of all workspaces, and those of one."""

import builtins
from pathlib import Path

from rookery.face.line import Line, as_given, segment
from rookery.face.session import Session
from rookery.sessions.records import AskShown, SessionInfo


class Sessions:
    """Those of all workspaces."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def list(self) -> builtins.list[Session]:
        """All open sessions, the one that was used last first."""
        return [Session(self._line, one) for one in await self._line.ask("GET", "/api/sessions", list[SessionInfo])]

    async def get(self, id_: str) -> Session:
        return Session(self._line, await self._line.ask("GET", f"/api/sessions/{segment(id_)}", SessionInfo))

    async def asks(self) -> builtins.list[AskShown]:
        """What sessions wait for."""
        return await self._line.ask("GET", "/api/sessions/asks", list[AskShown])


class WorkspaceSessions:
    """Those of one workspace: `ws.sessions`."""

    def __init__(self, line: Line, project: str, name: str, path: Path) -> None:
        self._line, self._project, self._name, self._path = line, project, name, path

    async def create(self, *, agent: str | None = None, model: str | None = None, title: str | None = None) -> Session:
        """Begin one; the agent of the workspace is started if it does not run. `record.notes` tells of changes."""
        body = {"directory": str(self._path), **as_given(agent=agent, model=model, title=title)}
        return Session(self._line, await self._line.ask("POST", "/api/sessions", SessionInfo, body))

    async def list(self) -> builtins.list[Session]:
        """Its open sessions, the one that was used last first."""
        found = await self._line.ask(
            "GET", "/api/sessions", list[SessionInfo], project=self._project, workspace=self._name
        )
        return [Session(self._line, one) for one in found]
