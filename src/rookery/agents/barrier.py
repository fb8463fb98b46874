"""Agents start in workspaces that are prepared: this is where they wait."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rookery.system.bus import Event
from rookery.workspaces.record import Workspace, as_text
from rookery.workspaces.service import Workspaces

# A preparation that is begun, or has ended.
_NEWS = frozenset({"workspace.preparing", "workspace.ready", "workspace.failed"})
PREPARED = "the workspace is being prepared"
APPROVED = "the setup command of the workspace waits for approval"


class Barrier:
    """A preparation that failed lets agents pass; one that waits for approval has not ended."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._news: dict[str, asyncio.Event] = {}

    async def passed(self, workspace: Workspace, tell: Callable[[str], None]) -> Workspace:
        """Wait until it is prepared, or that has failed; answers how it is then."""
        tell(PREPARED)
        while True:
            news = self._news.setdefault(as_text(workspace.path), asyncio.Event())
            news.clear()
            now = await self._workspaces.prepared(workspace)
            if now.code != "needs-approval":
                return now
            tell(APPROVED)
            await news.wait()

    def heard(self, event: Event) -> None:
        if event.type in _NEWS and (news := self._news.get(event.data["path"])):
            news.set()

    def forget(self, path: Path) -> None:
        self._news.pop(as_text(path), None)
