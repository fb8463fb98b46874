"""Requests to the daemon's REST routes over its Unix socket, with typed results, and errors as `RookeryError`."""

import asyncio
import socket
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rookery.cli import link
from rookery.system.errors import RookeryError
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.request import HttpRequestWriter

T = TypeVar("T")

# The host in requests; on a Unix socket it has no meaning.
URL = "http://rookery"
# Git takes longer in large repositories; the daemon stops what takes too long.
_SECONDS = 600.0

LOGS_REMEDY = "see `rookery logs`"


class RestClient:
    """The HTTP client of one connection to Rookery. All requests use the same sockets."""

    def __init__(self) -> None:
        self.http = HttpClient(_connect)

    async def request(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: object = None,
        /,
        *,
        seconds: float = _SECONDS,
        **query: str | None,
    ) -> T:
        """Send a request and return the response as `kind`. `seconds` is the time limit."""
        parameters = {key: value for key, value in query.items() if value is not None}
        url = f"{URL}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        data = msgspec.json.encode(body) if body is not None else None
        writer = HttpRequestWriter(url, {"Content-Type": "application/json"} if data is not None else {})
        try:
            async with asyncio.timeout(seconds):
                with await self.http.send(
                    writer.origin, writer.write(method, {}, data), idempotent=method == "GET"
                ) as response:
                    content = await response.read()
        except TimeoutError:
            raise RookeryError("timeout", f"the daemon did not respond within {seconds:g} s", LOGS_REMEDY) from None
        except (OSError, ValueError) as error:
            raise RookeryError(
                "daemon-unreachable", f"the connection to the daemon was lost: {error}", LOGS_REMEDY
            ) from None
        if response.status >= 400:
            raise parse_error(content, response.status)
        try:
            return msgspec.json.decode(content, type=kind, dec_hook=_decode_path)
        except msgspec.DecodeError as error:
            message = f"the daemon returned an unexpected response to {path}: {error}"
            raise RookeryError("internal-error", message, "the daemon may have another version: restart it") from None


def quote_segment(text: str) -> str:
    """Quote text as one segment of a path."""
    return quote(text, safe="@")


class _ErrorBody(msgspec.Struct):
    code: str
    message: str
    remedy: str = ""
    details: list[str] = []


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorBody


def parse_error(answer: bytes, status: int) -> RookeryError:
    """Return the error that a response contains."""
    try:
        body = msgspec.json.decode(answer, type=_ErrorAnswer).error
    except msgspec.DecodeError:
        return RookeryError("internal-error", f"the daemon responded with status {status}", LOGS_REMEDY)
    return RookeryError(body.code, body.message, body.remedy, body.details)


async def _connect(host: str, port: int) -> socket.socket:
    """Connect to the daemon at its current address, since it may have been restarted. Arguments are ignored."""
    for path, pid in await asyncio.to_thread(link.list_addresses):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, path)
            link.require_own_peer(connection, pid)
        except (OSError, TypeError, ValueError):
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise RookeryError(
        "daemon-unreachable", "no daemon is running", "start it with `rookery up -d`, or connect(start=True)"
    )


def _decode_path(kind: type[Any], value: Any) -> Any:
    """Decode types that JSON has as text, such as paths."""
    return kind(value)


def drop_none(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
