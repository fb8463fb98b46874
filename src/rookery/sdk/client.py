"""`rookery.connect()`: a connection to the running daemon, or to one that it starts."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from rookery.cli.failure import Failure
from rookery.cli.starting import start_daemon
from rookery.face.hub import Hub
from rookery.face.line import Line
from rookery.face.projects import Projects
from rookery.face.sessions import Sessions
from rookery.face.workspaces import Workspaces
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.face")

_HEALTH_SECONDS = 60.0


class Rookery:
    """What a program can do with Rookery. Made by `connect`, and used until its block ends."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.projects = Projects(line)
        self.workspaces = Workspaces(line)
        self.sessions = Sessions(line)
        self.hub = Hub(line)

    async def status(self) -> dict[str, Any]:
        """What `rookery status --json` prints."""
        return await self._line.ask("GET", "/api/status", dict[str, Any])


@asynccontextmanager
async def connect(*, start: bool = False) -> AsyncGenerator[Rookery]:
    """Connect to the daemon of this user, which `start` starts in the background if none runs; it goes on afterwards.

    Whatever fails raises `RookeryError`, with `daemon-unreachable` where no daemon runs. The daemon is found as the
    command line finds it: in the folder that `ROOKERY_HOME` names, else in the usual one.
    """
    line = Line()
    try:
        await _reach(line, start)
        made = Rookery(line)
        try:
            yield made
        finally:
            await made.hub.close()
    finally:
        await line.http.close()


async def _reach(line: Line, start: bool) -> None:
    try:
        await line.ask("GET", "/api/health", dict[str, Any], seconds=_HEALTH_SECONDS)
    except RookeryError as error:
        if not start or error.code != "daemon-unreachable":
            raise
        await asyncio.to_thread(_start)
        await line.ask("GET", "/api/health", dict[str, Any], seconds=_HEALTH_SECONDS)


def _start() -> None:
    try:
        start_daemon(tell=logger.info)
    except Failure as failure:
        raise RookeryError(failure.code, failure.message, failure.remedy, failure.details) from None
