"""Our client, with a record of what it received, and scripted HTTP servers for it."""

import asyncio
import json
import os
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Raw

from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.client.client import Client, Timeouts
from rookery.wire.client.connect import Era, connect_client
from rookery.wire.client.encode import ClientIdentity
from rookery.wire.client.inflight import AnswerQuestion, ClientAnswer
from rookery.wire.client.stdio import Framing, ServerProgram, StdioTransport
from rookery.wire.client.transport import ClientTransport
from rookery.wire.protocol.messages import Notification, Params

LIMIT = 20.0  # no wait in these tests is longer
PROGRAMS = Path(__file__).parents[2] / "programs"
IDENTITY = ClientIdentity(
    {"name": "rookery-test", "version": "1.2.3"},
    {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": False}},
)
T = TypeVar("T")


async def within_limit(waiting: Awaitable[T], seconds: float = LIMIT) -> T:
    async with asyncio.timeout(seconds):
        return await waiting


def read(raw: Raw) -> Any:
    return json.loads(bytes(raw))


def text(result: Raw) -> Any:
    """Return the JSON in the first text of a result, as the tools of our programs return it."""
    return json.loads(read(result)["content"][0]["text"])


async def answer(method: str, params: Params) -> Mapping[str, Any]:
    """Answer as a user and a model would."""
    if method == "elicitation/create":
        return {"action": "accept", "content": {"name": "Ada", "confirm": True}}
    if method == "sampling/createMessage":
        told = {"type": "text", "text": "a poem"}
        return {"role": "assistant", "content": told, "model": "test", "stopReason": "endTurn"}
    return {"roots": [{"uri": "file:///here", "name": "here"}]}


class NotificationRecorder:
    """A record of the notifications that a client received, for a test that waits for one."""

    def __init__(self) -> None:
        self.all: list[Notification] = []
        self._more = asyncio.Event()

    def __call__(self, notification: Notification) -> None:
        self.all.append(notification)
        self._more.set()

    async def wait_for(self, method: str, count: int = 1) -> Any:
        """Wait for this many notifications, and return the params of the last."""
        async with asyncio.timeout(LIMIT):
            while len(found := [one for one in self.all if one.method == method]) < count:
                self._more.clear()
                await self._more.wait()
        return read(found[count - 1].params)


class CallRecorder:
    """The listener for the calls of one client, with a record of what it received."""

    def __init__(
        self, caller: str = "one", answerer: AnswerQuestion = answer, progressed: Callable[[], object] = str
    ) -> None:
        self.caller = caller
        self.heard = NotificationRecorder()
        self.progress: list[Params] = []
        self.asked: list[str] = []
        self._answerer = answerer
        self._progressed = progressed

    def on_progress(self, params: Params) -> None:
        self.progress.append(params)
        self._progressed()

    def on_notification(self, message: Notification) -> None:
        self.heard(message)

    async def answer(self, method: str, params: Params) -> ClientAnswer:
        self.asked.append(method)
        return await self._answerer(method, params)


@dataclass
class ConnectedClient:
    """A connected client."""

    client: Client
    era: Era
    heard: NotificationRecorder


@asynccontextmanager
async def connect(
    channel: ClientTransport,
    *,
    older: ClientTransport | None = None,
    known: Era | None = None,
    timeouts: Timeouts | None = None,
    answerer: AnswerQuestion | None = answer,
    identity: ClientIdentity = IDENTITY,
) -> AsyncGenerator[ConnectedClient]:
    heard = NotificationRecorder()
    limits = timeouts or Timeouts(startup=LIMIT, catalog=LIMIT, execution=LIMIT)

    def make(made: ClientTransport) -> Client:
        if answerer is None:
            return Client(made, identity, limits, on_notification=heard)
        return Client(made, identity, limits, answerer, heard)

    client, era = await within_limit(connect_client(make, channel, fallback=older, known_era=known), 2 * LIMIT)
    try:
        yield ConnectedClient(client, era, heard)
    finally:
        await within_limit(client.close())


# ---- programs


def program(name: str, *words: str, framing: Framing = "lines", env: Mapping[str, str] | None = None) -> ServerProgram:
    argv = [sys.executable, "-P", str(PROGRAMS / name), *words]
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONDONTWRITEBYTECODE": "1"}
    return ServerProgram(name, argv, Path(os.environ["HOME"]), kept | dict(env or {}), framing)


def odd(*words: str, framing: Framing = "lines", write_seconds: float = LIMIT) -> StdioTransport:
    """Return a transport to `odd_server.py`, which misbehaves as requested."""
    return StdioTransport(
        Spawner(new_id()), program("odd_server.py", *words, framing=framing), write_seconds=write_seconds
    )


# ---- scripted HTTP servers


@dataclass
class HttpRequest:
    """One request as it was received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def what(self) -> str:
        return self.message.get("method", "answer") if self.method == "POST" else self.method

    def result(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.message["id"], "result": result}

    def error(self, code: int, message: str, data: Any = None) -> dict[str, Any]:
        error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
        return {"jsonrpc": "2.0", "id": self.message["id"], "error": error}


class HttpResponder:
    """Sends the response, in as raw a form as a test needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, status: int, body: bytes = b"", kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        sent = {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        await self.raw(f"HTTP/1.1 {status} Told\r\n{head}\r\n".encode() + body)

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self.answer(status, json.dumps(value).encode(), headers=headers)

    async def stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Start a stream; the following data are chunks."""
        sent = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **(headers or {})}
        await self.raw(b"HTTP/1.1 200 OK\r\n" + "".join(f"{n}: {v}\r\n" for n, v in sent.items()).encode() + b"\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: Any, id_: str | None = None) -> None:
        head = f"id: {id_}\n" if id_ is not None else ""
        await self.chunk(f"{head}data: {json.dumps(value)}\n\n".encode())

    async def left(self) -> None:
        """Return when the client has disconnected; it sends nothing while it waits for the response."""
        with suppress(ConnectionError):
            assert not await self.reader.read(1)

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


Handler = Callable[[HttpRequest, HttpResponder], Awaitable[None]]


@dataclass
class ScriptedHttpServer:
    """An HTTP server on its own port that records each request and passes it to `handler`."""

    handler: Handler
    port: int = 0
    tls: ssl.SSLContext | None = None
    asked: list[HttpRequest] = field(default_factory=list[HttpRequest])

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._more = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def whats(self) -> list[str]:
        return [asked.what for asked in self.asked]

    def of(self, what: str) -> list[HttpRequest]:
        return [asked for asked in self.asked if asked.what == what]

    async def wait_for(self, what: str, count: int = 1) -> HttpRequest:
        async with asyncio.timeout(LIMIT):
            while len(found := self.of(what)) < count:
                self._more.clear()
                await self._more.wait()
        return found[count - 1]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop as if the process had been killed: pending requests get no response."""
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await within_limit(self._server.wait_closed())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _request(reader)) is not None:
                self.asked.append(asked)
                self._more.set()
                await self.handler(asked, HttpResponder(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> HttpRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return HttpRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


class HandshakeHandler:
    """A handler of the handshake era over Streamable HTTP, with sessions. `on_call` handles tool calls."""

    def __init__(self, on_call: Handler | None = None, *, revision: str = "2025-11-25", sessions: bool = True) -> None:
        self.on_call = on_call
        self.revision = revision
        self.sessions = sessions
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.known: set[str] = set()
        self.made = 0
        self.lost_as: tuple[int, bytes] = (404, b"who?")
        self.stream: Handler | None = None

    def forget(self) -> None:
        self.known.clear()

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        what = asked.what
        if what == "server/discover":
            await out.answer(400, b"what?", "text/plain")
        elif what == "initialize":
            self.made += 1
            headers: dict[str, str] = {}
            if self.sessions:
                headers["Mcp-Session-Id"] = f"session-{self.made}"
                self.known.add(f"session-{self.made}")
            about: dict[str, Any] = {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "serverInfo": {"name": "raw"},
            }
            await out.json(asked.result(about), headers=headers)
        elif self.sessions and asked.headers.get("mcp-session-id") not in self.known:
            await out.answer(*self.lost_as)
        elif what == "GET":
            if self.stream is None:
                await out.answer(405)
            else:
                await self.stream(asked, out)
        elif what == "DELETE":
            await out.answer(200)
        elif "id" not in asked.message or what == "answer":
            await out.answer(202)
        elif what == "tools/list":
            await out.json(asked.result({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
        elif self.on_call is not None:
            await self.on_call(asked, out)
        else:
            await out.json(asked.result({"content": [{"type": "text", "text": '"done"'}]}))


class SseHandler:
    """A handler of HTTP+SSE: a message that is posted to a stream's endpoint is answered on that stream."""

    def __init__(self, *beginning: bytes) -> None:
        """`beginning` is sent instead of the endpoint event; `%d` in it stands for the stream's number."""
        self.streams: list[HttpResponder] = []
        self.beginning = beginning or (b"event: endpoint\ndata: /messages?%d\n\n",)

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        if asked.method == "GET":
            self.streams.append(out)
            await out.stream()
            for data in self.beginning:
                await out.chunk(data.replace(b"%d", b"%d" % (len(self.streams) - 1)))
            await out.left()
        elif not asked.path.startswith("/messages?"):
            await out.answer(405)
        else:
            await out.answer(202)
            await self.say(asked, self.streams[int(asked.path.partition("?")[2])])

    async def say(self, asked: HttpRequest, stream: HttpResponder) -> None:
        if asked.what == "initialize":
            about: dict[str, Any] = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old"}}
            await stream.event(asked.result(about))
        elif "id" in asked.message and asked.what != "answer":
            await stream.event(asked.result({"content": [{"type": "text", "text": '"old"'}]}))
