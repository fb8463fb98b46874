"""A listener on a real socket with an app of the test, and clients that send raw bytes."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.http.auth import ANYBODY, OWNER, Authenticate, Headers, Principal, Tokens, make_tcp_authenticator
from rookery.wire.http.connection import HttpServerConnection
from rookery.wire.http.listener import IdentifyAddress, IdentifyPeer, Listener, bind_port, bind_unix
from rookery.wire.http.pool import ConnectionPool, HttpLimits

LIMIT = 20.0  # no wait in these tests is longer
T = TypeVar("T")


def admit_everybody(method: str, path: str, headers: Headers) -> Principal:
    """Authenticate every request as the owner, except at /anybody."""
    return ANYBODY if path == "/anybody" else OWNER


def without_token(port: int) -> Authenticate:
    """Return the authenticator of a real port, which checks everything except the token."""
    return make_tcp_authenticator(port, Tokens(), tokenless=OWNER)


async def within_limit(waiting: Awaitable[T]) -> T:
    """Return the result of `waiting`, within a time limit."""
    async with asyncio.timeout(LIMIT):
        return await waiting


class Connections(set[HttpServerConnection]):
    """The connections of a listener, for a test that waits for a number of them."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def add(self, element: HttpServerConnection) -> None:
        super().add(element)
        self._changed.set()

    def discard(self, element: object) -> None:
        super().discard(element)
        self._changed.set()

    async def reach(self, size: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(self) != size:
                self._changed.clear()
                await self._changed.wait()

    def only(self) -> HttpServerConnection:
        (front,) = self
        return front


class RawResponse:
    """A complete response as it was received."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        pairs = [line.partition(":") for line in lines if line]
        self.headers: dict[str, str] = {name.lower(): value.strip() for name, _, value in pairs}
        assert len(self.headers) == len(pairs), f"a header stands twice: {lines}"
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json()["error"]["code"]

    @property
    def kept(self) -> bool:
        return "close" not in self.headers.get("connection", "")


class Client:
    """One connection with raw bytes. Every read has a time limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await within_limit(self.writer.drain())

    async def answer(self, *, bodyless: bool = False) -> RawResponse:
        """Return the next response; a `bodyless` one is for HEAD."""
        async with asyncio.timeout(LIMIT):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = RawResponse(head, b"")
            if bodyless or found.status in (100, 204, 304):
                return found
            if found.headers.get("transfer-encoding") == "chunked":
                while size := int(await self.reader.readline(), 16):
                    found.body += await self.reader.readexactly(size)
                    await self.reader.readline()
                await self.reader.readline()
            elif "content-length" in found.headers:
                found.body = await self.reader.readexactly(int(found.headers["content-length"]))
            else:
                found.body = await self.reader.read()
            return found

    async def ask(self, *data: bytes) -> RawResponse:
        await self.send(*data)
        return await self.answer()

    async def rest(self) -> bytes:
        """Return everything until the other side closes or resets the connection."""
        got = b""
        async with asyncio.timeout(LIMIT):
            try:
                while data := await self.reader.read(65_536):
                    got += data
            except ConnectionError:
                pass
        return got

    def reset(self) -> None:
        """Reset the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


class RunningListener:
    """A running listener and the clients that a test has opened."""

    def __init__(self, listener: Listener, connections: Connections, address: tuple[str, int] | str) -> None:
        self.listener = listener
        self.connections = connections
        self.address = address
        self.clients: list[Client] = []

    @property
    def door(self) -> ConnectionPool:
        return self.listener.pool

    @property
    def port(self) -> int:
        assert not isinstance(self.address, str)
        return self.address[1]

    async def client(self, *, receive_bytes: int | None = None) -> Client:
        """Open a connection; with `receive_bytes` its receive buffer is small, so that unread responses fill it."""
        unix = isinstance(self.address, str)
        sock = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        sock.setblocking(False)
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        loop = asyncio.get_running_loop()
        try:
            await within_limit(loop.sock_connect(sock, self.address))
        except BaseException:
            sock.close()
            raise
        limit = receive_bytes or 65_536
        opened = asyncio.open_unix_connection if unix else asyncio.open_connection
        made = Client(*await opened(sock=sock, limit=limit))
        self.clients.append(made)
        return made

    async def fronted(self) -> tuple[Client, HttpServerConnection]:
        """Open a connection, and return both sides of it."""
        before = set(self.connections)
        made = await self.client()
        await self.connections.reach(len(before) + 1)
        (front,) = self.connections - before
        return made, front

    async def ask(self, *data: bytes) -> RawResponse:
        """Send one request on a separate connection."""
        made = await self.client()
        try:
            return await made.ask(*data)
        finally:
            made.close()


@asynccontextmanager
async def start_listener(
    app: ASGIApp,
    limits: HttpLimits | None = None,
    judge_of: Callable[[int], Authenticate] = lambda port: admit_everybody,
    path: Path | None = None,
    silence: tuple[int, int, int] = (30, 10, 3),
    identify: IdentifyPeer | None = None,
    identify_address: IdentifyAddress | None = None,
) -> AsyncGenerator[RunningListener]:
    """Run a listener on a port (which `judge_of` receives), or at `path`. At the end nothing of it may be left."""
    sock = bind_unix(path) if path is not None else bind_port(0, keep_alive=silence)
    assert sock is not None
    address = sock.getsockname()
    port = 0 if path is not None else address[1]
    listener = Listener(
        sock, app, judge_of(port), limits or HttpLimits(), identify=identify, identify_address=identify_address
    )
    connections = Connections()
    listener.pool.connections = connections
    await listener.start()
    site = RunningListener(listener, connections, address)
    try:
        yield site
    finally:
        await within_limit(listener.stop(0))
        for client in site.clients:
            client.writer.transport.abort()
        door = listener.pool
        left = {
            "connections": door.connections,
            "unproven": door.unauthenticated,
            "leaving": door.closing_connections,
            "tasks": door.tasks,
        }
        assert not any(map(len, left.values())), f"left in the door: {left}"


def request(method: str = "GET", path: str = "/", *headers: str, body: bytes | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def body_of(receive: Receive) -> bytes:
    """Return the whole body of a request; raise `EOFError` if the client disconnects before its end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise EOFError
        body += message["body"]
        if not message["more_body"]:
            return body


async def reply(send: Send, body: bytes = b"", status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the request."""
    body = await body_of(receive)
    heard = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode("latin-1"),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": body.decode("latin-1"),
    }
    await reply(send, json.dumps(heard).encode(), headers=[(b"content-type", b"application/json")])


def raise_file_limit(files: int) -> None:
    """Allow this process to open this many files, if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (files if hard == resource.RLIM_INFINITY else min(files, hard), hard)
        )
