"""`rookery.connect()`: connect to the running daemon, or start one."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from rookery.cli.failure import Failure
from rookery.cli.launch import start_daemon
from rookery.sdk.hub import Hub
from rookery.sdk.projects import Projects
from rookery.sdk.rest import RestClient
from rookery.sdk.sessions import Sessions
from rookery.sdk.workspaces import Workspaces
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.sdk")

_HEALTH_SECONDS = 60.0


class Rookery:
    """A connection to the daemon. Created by `connect`, and valid until the end of its block."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self.projects = Projects(rest)
        self.workspaces = Workspaces(rest)
        self.sessions = Sessions(rest)
        self.hub = Hub(rest)

    async def status(self) -> dict[str, Any]:
        """Return the status that `rookery status --json` prints."""
        return await self._rest.request("GET", "/api/status", dict[str, Any])


@asynccontextmanager
async def connect(*, start: bool = False) -> AsyncGenerator[Rookery]:
    """Connect to the daemon of this user.

    With `start`, start a daemon in the background if none runs; it keeps running afterwards. Every failure raises
    `RookeryError`, with the code `daemon-unreachable` if no daemon runs. The daemon is found as by the command line: in
    the folder that `ROOKERY_HOME` names, else in the default one.
    """
    line = RestClient()
    try:
        await _connect_or_start(line, start)
        client = Rookery(line)
        try:
            yield client
        finally:
            await client.hub.close()
    finally:
        await line.http.close()


async def _connect_or_start(rest: RestClient, start: bool) -> None:
    try:
        await rest.request("GET", "/api/health", dict[str, Any], seconds=_HEALTH_SECONDS)
    except RookeryError as error:
        if not start or error.code != "daemon-unreachable":
            raise
        await asyncio.to_thread(_start_daemon)
        await rest.request("GET", "/api/health", dict[str, Any], seconds=_HEALTH_SECONDS)


def _start_daemon() -> None:
    try:
        start_daemon(on_progress=logger.info)
    except Failure as failure:
        raise RookeryError(failure.code, failure.message, failure.remedy, failure.details) from None
