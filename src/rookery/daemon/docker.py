"""A docker engine, asked over its socket. Where none answers there is nothing to tell, and nothing to complain of."""

import asyncio
import os
from urllib.parse import urlsplit

from rookery.system.errors import RookeryError
from rookery.wire.http_answer import Answer
from rookery.wire.http_connection import HttpConnection
from rookery.wire.http_request import Requests

_SOCKET = "unix:///var/run/docker.sock"
_MOST_BYTES = 1_000_000
_SECONDS = 3.0


class Engine:
    """The one that `DOCKER_HOST` names, else the usual one. Over TLS or SSH none is asked."""

    def __init__(self, host: str | None = None) -> None:
        self._host = urlsplit(host or os.environ.get("DOCKER_HOST") or _SOCKET)

    async def ask(self, path: str) -> bytes | None:
        """What it answers to a GET, cut where it is beyond all measure; None where there is none, or it says no."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._asked(path)
        except TimeoutError:
            raise RookeryError("timeout", f"the docker engine did not answer within {_SECONDS:g} s") from None
        except (OSError, ValueError):
            return None

    async def _asked(self, path: str) -> bytes | None:
        loop = asyncio.get_running_loop()
        connection = HttpConnection(lambda _: None, lambda _: None)
        if self._host.scheme == "unix" and self._host.path:
            await loop.create_unix_connection(lambda: connection, self._host.path)
        elif self._host.scheme == "tcp" and self._host.hostname and not os.environ.get("DOCKER_TLS_VERIFY"):
            await loop.create_connection(lambda: connection, self._host.hostname, self._host.port or 2375)
        else:
            return None
        try:
            answer = await connection.ask(Requests(f"http://docker{path}", {}).write("GET", {}))
            return await _body(answer) if answer.status == 200 else None
        finally:
            connection.abort()


async def _body(answer: Answer) -> bytes:
    found = b""
    while len(found) < _MOST_BYTES and (more := await answer.next()):
        found += more
    return found
