"""MCP over WebSocket: one message a text frame, both eras. The frames are the `websockets` library's business."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.types import Receive, Scope, Send
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from rookery.wire.connection import Peer
from rookery.wire.exchange import REQUESTS
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.service import SHUTTING_DOWN, Service

MESSAGE_BYTES = 67_108_864
_SUBPROTOCOL = Subprotocol("mcp")
_PING_SECONDS = 20.0
_INBOX_BYTES = 65_536
_NO_UPGRADE = WireError(INVALID_REQUEST, "this path speaks WebSocket only")


class Taken(Protocol):
    """A connection that was taken over from HTTP."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def want_body(self, wanted: bool) -> None: ...
    def abort(self) -> None: ...


class WebSocket:
    """An ASGI app for requests to be upgraded, which the gate has judged already like every other."""

    def __init__(
        self, service: Service, *, message_bytes: int = MESSAGE_BYTES, ping_seconds: float = _PING_SECONDS
    ) -> None:
        self._service = service
        self._message_bytes = message_bytes
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Http(scope, receive, send)
        take_over = scope["extensions"].get("rookery.take_over")
        if self._service.closing:
            await http.refuse(503, SHUTTING_DOWN)
            return
        if take_over is None:
            await http.json(426, _NO_UPGRADE.encoded(None), (b"upgrade", b"websocket"))
            return
        protocol = ServerProtocol(subprotocols=[_SUBPROTOCOL], select_subprotocol=_choose, max_size=self._message_bytes)
        request = _asked(protocol, scope)
        response = protocol.accept(request)
        if response.status_code != 101:
            error = WireError(INVALID_REQUEST, bytes(response.body).decode().strip())
            await http.json(response.status_code, error.encoded(None))
            return
        socket = _Socket(self._service, http, protocol, self._ping_seconds)
        protocol.send_response(response)
        REQUESTS.add("101")
        socket.begin(take_over)
        await socket.serve()


def _choose(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return _SUBPROTOCOL if _SUBPROTOCOL in offered else None


def _asked(protocol: ServerProtocol, scope: Scope) -> Request:
    """The request once more, for the library to read; the front has taken the words of the upgrade off it."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [*scope["headers"], (b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    kept = [(name, value) for name, value in headers if (name, value) != (b"connection", b"close")]
    lines = [b"%b: %b\r\n" % header for header in kept]
    protocol.receive_data(b"".join((b"GET ", target, b" HTTP/1.1\r\n", *lines, b"\r\n")))
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    return request


class _Socket:
    """One open WebSocket."""

    connection: Taken

    def __init__(self, service: Service, http: Http, protocol: ServerProtocol, ping_seconds: float) -> None:
        self._service = service
        self._http = http
        self._protocol = protocol
        self._ping_seconds = ping_seconds
        self._peer = Peer(service, http.owner, self._write)
        self._message = bytearray()
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._wake = asyncio.Event()
        self._pinged = False

    def begin(self, take_over: Callable[[Callable[[bytes], None]], Taken]) -> None:
        self.connection = take_over(self._feed)
        self._flush()

    async def serve(self) -> None:
        """Until one side closes it; a client that answers no ping is as good as gone."""
        self._http.on_lost(self._wake.set)
        self._service.on_close.add(self._wake.set)
        try:
            while self._open and not self._service.closing:
                if self._inbox:
                    await self._peer.take(self._next())
                    continue
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._ping_seconds):
                        await self._wake.wait()
                except TimeoutError:
                    self._ping()
        finally:
            self._service.on_close.discard(self._wake.set)
            await self._peer.end(lost=not self._open)
            if self._open:
                self._protocol.send_close(CloseCode.GOING_AWAY, "shutting down")
                self._flush()

    @property
    def _open(self) -> bool:
        return not self._http.lost and self._protocol.state is State.OPEN

    # ---- what comes

    def _feed(self, data: bytes) -> None:
        self._pinged = False
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)
            self._take(frame)
        self._flush()
        if self._inbox_bytes > _INBOX_BYTES:
            self.connection.want_body(False)
        self._wake.set()

    def _take(self, frame: Frame) -> None:
        """The library has answered pings and the goodbye by itself."""
        if frame.opcode is Opcode.BINARY and self._open:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "messages are text")
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            return
        self._message += frame.data
        if frame.fin:
            self._inbox.append(bytes(self._message))
            self._inbox_bytes += len(self._message)
            self._message.clear()

    def _next(self) -> bytes:
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message)
        if not self._inbox:
            self.connection.want_body(True)
        return message

    # ---- what goes

    async def _write(self, message: bytes) -> None:
        if not self._open:
            raise ConnectionResetError
        self._protocol.send_text(message)
        self._flush()
        await self.connection.drain()

    def _ping(self) -> None:
        if self._pinged:
            self.connection.abort()
        else:
            self._pinged = True
            self._protocol.send_ping(b"")
            self._flush()

    def _flush(self) -> None:
        # An empty one stands for the end, which comes with the end of the request.
        data = b"".join(self._protocol.data_to_send())
        if data and not self._http.lost:
            self.connection.write(data)
