"""`rookery.connect()`: connect to the running daemon, or start one."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rookery.daemon_client.failure import Failure
from rookery.daemon_client.start import start_daemon
from rookery.sdk.hub import Hub
from rookery.sdk.operations import Operations
from rookery.sdk.projects import Projects
from rookery.sdk.rest import RestClient
from rookery.sdk.sessions import Sessions
from rookery.sdk.workspaces import Workspaces
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.sdk")


class Rookery:
    """A connection to the daemon. Created by `connect`, and valid until the end of its block."""

    def __init__(self, rest: RestClient) -> None:
        self.operations = Operations(rest)
        self.projects = Projects(self.operations)
        self.workspaces = Workspaces(self.operations)
        self.sessions = Sessions(self.operations)
        self.hub = Hub(rest, self.operations, self.workspaces)

    async def status(self) -> dict[str, Any]:
        """Return the status that `rookery status --json` prints."""
        return msgspec.to_builtins(await self.operations.daemon.report())


@asynccontextmanager
async def connect(*, start: bool = False) -> AsyncGenerator[Rookery]:
    """Connect to the daemon of this user.

    With `start`, start a daemon in the background if none runs; it keeps running afterwards. Every failure raises
    `RookeryError`, with the code `daemon-unreachable` if no daemon runs. The daemon is found as by the command line: in
    the folder that `ROOKERY_HOME` names, else in the default one.
    """
    rest = RestClient()
    try:
        client = Rookery(rest)
        await _connect_or_start(client.operations, start)
        try:
            yield client
        finally:
            await client.hub.close()
    finally:
        await rest.http.close()


async def _connect_or_start(operations: Operations, start: bool) -> None:
    try:
        await operations.daemon.health()
    except RookeryError as error:
        if not start or error.code != "daemon-unreachable":
            raise
        await asyncio.to_thread(_start_daemon)
        await operations.daemon.health()


def _start_daemon() -> None:
    try:
        start_daemon(on_progress=logger.info)
    except Failure as failure:
        raise RookeryError(failure.code, failure.message, failure.remedy, failure.details) from None
