"""Requests to the daemon's REST routes over its Unix socket, with typed results, and errors as `RookeryError`."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from rookery.daemon_client.connection import list_addresses, read_authorization, require_own_peer
from rookery.sdk.results import BinaryResult, StreamEvent
from rookery.system.errors import RookeryError
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter
from rookery.wire.http_client.sse import SseParser

# The host in requests; on a Unix socket it has no meaning.
URL = "http://rookery"
LOGS_REMEDY = "see `rookery logs`"
_OWN_HEADERS = b"x-rookery-"

Query = Mapping[str, str | float | bool | None]


class RestClient:
    """The HTTP client of one connection to Rookery. All requests use the same sockets.

    `seconds` is the time limit of a request. Members of a query that are None are left out.
    """

    def __init__(self) -> None:
        self.http = HttpClient(_connect)

    async def request(
        self, method: str, path: str, kind: Any, *, query: Query | None = None, body: object = None, seconds: float
    ) -> Any:
        """Send a request and return the response, which is JSON, as `kind`."""
        content, _ = await self._read(method, path, query, body, seconds)
        return _decode(content, kind, path)

    async def download(
        self, method: str, path: str, *, query: Query | None = None, body: object = None, seconds: float
    ) -> BinaryResult:
        """Send a request and return the response as bytes, with its media type and Rookery's own headers."""
        content, response = await self._read(method, path, query, body, seconds)
        own = [name for name in response.headers if name.startswith(_OWN_HEADERS)]
        return BinaryResult(
            content, response.media_type, {name.decode("latin-1"): response.header(name) or "" for name in own}
        )

    async def stream(
        self,
        method: str,
        path: str,
        kinds: Mapping[str, Any],
        *,
        query: Query | None = None,
        body: object = None,
        seconds: float,
    ) -> AsyncGenerator[StreamEvent[Any]]:
        """Send a request and yield the server-sent events of its response.

        `kinds` has the type of each event's data by the event's name; the name "" stands for all others. An event
        `error` is raised. The time limit applies to each pause of the stream. Closing the iterator ends the request.
        """
        parser = SseParser()
        with _translate_errors(seconds):
            async with asyncio.timeout(seconds):
                response = await self._send(method, path, query, body)
            with response:
                if response.status >= 400:
                    async with asyncio.timeout(seconds):
                        raise parse_error(await response.read(), response.status)
                while piece := await _read_next(response, seconds):
                    for event in parser.feed(piece):
                        if event.type == "error":
                            raise parse_error(event.data, response.status)
                        kind = kinds.get(event.type) or kinds.get("", Any)
                        id_ = int(event.id) if event.id is not None and event.id.isdecimal() else None
                        yield StreamEvent(event.type, _decode(event.data, kind, path), id_)

    async def _read(
        self, method: str, path: str, query: Query | None, body: object, seconds: float
    ) -> tuple[bytes, HttpResponse]:
        """Send a request and return the whole response. Raise the error that it contains."""
        with _translate_errors(seconds):
            async with asyncio.timeout(seconds):
                with await self._send(method, path, query, body) as response:
                    content = await response.read()
        if response.status >= 400:
            raise parse_error(content, response.status)
        return content, response

    async def _send(self, method: str, path: str, query: Query | None, body: object) -> HttpResponse:
        url = URL + path
        if members := drop_none(query or {}):
            url += f"?{urlencode({name: _format_value(value) for name, value in members.items()})}"
        data = msgspec.json.encode(body) if body is not None else None
        headers = await asyncio.to_thread(read_authorization)
        if data is not None:
            headers["Content-Type"] = "application/json"
        writer = HttpRequestWriter(url, headers)
        return await self.http.send(writer.origin, writer.write(method, {}, data), idempotent=method == "GET")


async def _read_next(response: HttpResponse, seconds: float) -> bytes:
    async with asyncio.timeout(seconds):
        return await response.next()


def _format_value(value: Any) -> str:
    """Format a value for a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@contextmanager
def _translate_errors(seconds: float) -> Generator[None]:
    """Raise a RookeryError if the daemon does not respond in time, or if the connection is lost."""
    try:
        yield
    except TimeoutError:
        raise RookeryError("timeout", f"the daemon did not respond within {seconds:g} s", LOGS_REMEDY) from None
    except (OSError, ValueError) as error:
        raise RookeryError(
            "daemon-unreachable", f"the connection to the daemon was lost: {error}", LOGS_REMEDY
        ) from None


def quote_segment(text: str) -> str:
    """Quote text as one segment of a path."""
    return quote(text, safe="@")


def drop_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def to_whole_milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


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
    for path, pid in await asyncio.to_thread(list_addresses):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, path)
            require_own_peer(connection, pid)
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


def _decode(content: bytes, kind: Any, path: str) -> Any:
    try:
        return msgspec.json.decode(content, type=kind, dec_hook=_decode_path)
    except msgspec.DecodeError as error:
        message = f"the daemon returned an unexpected response to {path}: {error}"
        raise RookeryError("internal-error", message, "the daemon may have another version: restart it") from None


def _decode_path(kind: type[Any], value: Any) -> Any:
    """Decode types that JSON has as text, such as paths."""
    return kind(value)
