"""Where pictures of sessions are saved: in the root of a workspace as tools see it, and in the state folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rookery.daemon.files import FilesService
from rookery.daemon.nested import Nested
from rookery.files.sandbox import Root
from rookery.files.secrets import Denied
from rookery.sessions.service import Sessions
from rookery.toolsets.session_shot import ShotCalls
from rookery.toolsets.toolset import Tool


class Places:
    def __init__(self, files: FilesService, nested: Nested, state: Path) -> None:
        self._files, self._nested, self._state = files, nested, state

    def tools(self, sessions: Sessions) -> Callable[[Path | None], Sequence[Tool]]:
        return lambda scope: ShotCalls(sessions, scope, self).tools()

    async def workspace(self, directory: Path) -> Root:
        return (await self._files.ground(directory)).root

    async def state(self) -> Root:
        real = self._state.resolve()
        return Root(real, Denied(workspaces=await self._nested.inside(real)))
