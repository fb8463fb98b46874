"""The model that plays the tools which Rookery is asked to run, served to its agents and to nobody else."""

import asyncio

from rookery.sessions.executing_plays import Plays
from rookery.testing.request_log import RequestLog
from rookery.testing.routes import routes
from rookery.testing.serving import Admits, Served, serve
from rookery.testing.tool_player import ToolPlayer


class ToolModel:
    """Listens from when its port is first asked for. What agents send to it is not kept."""

    def __init__(self, plays: Plays, admits: Admits) -> None:
        self._app = routes(ToolPlayer(plays), RequestLog(kept=0))
        self._admits = admits
        self._turn = asyncio.Lock()
        self._served: Served | None = None

    async def port(self) -> int:
        async with self._turn:
            if self._served is None:
                self._served = await serve(self._app, admits=self._admits)
            return self._served.port

    async def stop(self) -> None:
        async with self._turn:
            if self._served is not None:
                await self._served.stop()
                self._served = None
