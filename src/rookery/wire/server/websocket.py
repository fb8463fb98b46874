"""WebSockets on connections that were upgraded from HTTP: for MCP, and for ASGI apps.

The `websockets` library handles the frames. MCP has one message per text frame, in both eras. ASGI apps get a scope of
type `websocket`, since the HTTP server knows only HTTP requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from rookery.wire.http.auth import Refusal
from rookery.wire.http.exchange import REQUESTS_TOTAL
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.duplex import DuplexConnection
from rookery.wire.server.http_request import HttpRequest
from rookery.wire.server.service import SHUTTING_DOWN, Service

_PING_SECONDS = 20.0
_INBOX_BYTES = 65_536
# The approximate memory of a message in addition to its data.
_MESSAGE_OVERHEAD_BYTES = 128

MESSAGE_BYTES = 67_108_864
_SUBPROTOCOL = "mcp"
_NO_UPGRADE = WireError(INVALID_REQUEST, "this path accepts WebSocket connections only")


class WebSocketMessage(NamedTuple):
    data: bytes
    text: bool = True


class UpgradedTransport(Protocol):
    """A connection that was taken over from HTTP."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def set_reading(self, enabled: bool) -> None: ...
    def abort(self) -> None: ...
    def hold(self, size: int) -> Refusal | None: ...
    async def wait_for_turn(self) -> None: ...


class WebSocketUpgrade:
    """An upgrade request that has been authenticated like any other. `response` has status 101 if it is valid."""

    def __init__(self, scope: Scope, message_bytes: int, subprotocols: Sequence[str] = ()) -> None:
        supported = [Subprotocol(name) for name in subprotocols]
        self.protocol = ServerProtocol(
            subprotocols=supported,
            select_subprotocol=lambda _, offered: _select_subprotocol(supported, offered),
            max_size=message_bytes,
        )
        self.response: Response = self.protocol.accept(_parse_request(self.protocol, scope))
        self._take_over: Callable[[Callable[[bytes], None]], UpgradedTransport] = scope["extensions"][
            "rookery.take_over"
        ]

    @property
    def refusal(self) -> str:
        """The message of an unsuccessful response."""
        return bytes(self.response.body).decode().strip()

    def open(
        self, http: HttpRequest, *, binary: bool = False, ping_seconds: float = _PING_SECONDS
    ) -> "WebSocketConnection":
        """Accept the upgrade and return the open WebSocket."""
        self.protocol.send_response(self.response)
        REQUESTS_TOTAL.add("101")
        return WebSocketConnection(http, self.protocol, self._take_over, binary=binary, ping_seconds=ping_seconds)


def _select_subprotocol(supported: Sequence[Subprotocol], offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return next((name for name in supported if name in offered), None)


def _parse_request(protocol: ServerProtocol, scope: Scope) -> Request:
    """Return the request as the library parses it. The HTTP connection has removed the headers of the upgrade."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%b: %b\r\n" % header for header in restore_upgrade_headers(scope)]
    protocol.receive_data(b"".join((b"GET ", target, b" HTTP/1.1\r\n", *lines, b"\r\n")))
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    return request


def restore_upgrade_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of the request with those of the upgrade, which the HTTP connection removed."""
    headers = [*scope["headers"], (b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    return [header for header in headers if header != (b"connection", b"close")]


class WebSocketConnection:
    """One open WebSocket. A client that does not respond to a ping is disconnected."""

    def __init__(
        self,
        http: HttpRequest,
        protocol: ServerProtocol,
        take_over: Callable[[Callable[[bytes], None]], UpgradedTransport],
        *,
        binary: bool,
        ping_seconds: float,
    ) -> None:
        self._http = http
        self._protocol = protocol
        self._binary = binary
        self._ping_seconds = ping_seconds
        self._message = bytearray()
        self._is_text = True
        self._inbox: deque[WebSocketMessage] = deque()
        self._inbox_bytes = self._held_bytes = 0
        self._wake = asyncio.Event()
        self._awaits_pong = self._stopped = False
        self._connection = take_over(self._feed)
        self._flush()
        http.add_lost_callback(self._wake.set)

    @property
    def is_open(self) -> bool:
        return not self._http.lost and self._protocol.state is State.OPEN

    def stop(self) -> None:
        """Make `next` return None."""
        self._stopped = True
        self._wake.set()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Send a close frame. No message can be sent after it."""
        if self.is_open:
            self._protocol.send_close(code, reason)
            self._flush()
        self._wake.set()

    async def next(self) -> WebSocketMessage | None:
        """Wait for the next message and return it, or None once the WebSocket is closed or stopped."""
        while self.is_open and not self._stopped:
            if self._inbox:
                await self._connection.wait_for_turn()
                return self._pop_message() if self.is_open and not self._stopped else None
            self._wake.clear()
            try:
                async with asyncio.timeout(self._ping_seconds):
                    await self._wake.wait()
            except TimeoutError:
                self._ping()
        return None

    async def send(self, message: bytes, *, text: bool = True) -> None:
        """Send one message. Raise ConnectionResetError if the WebSocket is closed."""
        if not self.is_open:
            raise ConnectionResetError
        if text:
            self._protocol.send_text(message)
        else:
            self._protocol.send_binary(message)
        self._flush()
        await self._connection.drain()

    def _feed(self, data: bytes) -> None:
        self._awaits_pong = False
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)
            self._handle_frame(frame)
        self._update_held_bytes()
        self._flush()
        if self._inbox_bytes > _INBOX_BYTES:
            self._connection.set_reading(False)
        self._wake.set()

    def _handle_frame(self, frame: Frame) -> None:
        """Handle a frame. The library responds to pings and close frames itself."""
        if frame.opcode is Opcode.BINARY and not self._binary and self.is_open:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "only text messages are accepted")
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._message += frame.data
        if frame.fin:
            self._inbox.append(WebSocketMessage(bytes(self._message), self._is_text))
            self._inbox_bytes += len(self._message) + _MESSAGE_OVERHEAD_BYTES
            self._message.clear()

    def _pop_message(self) -> WebSocketMessage:
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message.data) + _MESSAGE_OVERHEAD_BYTES
        self._update_held_bytes()
        if not self._inbox:
            self._connection.set_reading(True)
        return message

    def _update_held_bytes(self) -> None:
        """Count received data that was not taken yet. Close the WebSocket if that exceeds the share."""
        size = self._inbox_bytes + len(self._message) + len(self._protocol.reader.buffer)
        if size <= _INBOX_BYTES and not self._held_bytes:
            return
        self._held_bytes = size
        if (refusal := self._connection.hold(size)) is not None and self.is_open:
            self._message.clear()
            self._protocol.fail(CloseCode.TRY_AGAIN_LATER, f"{refusal.code}: {refusal.remedy}")

    def _ping(self) -> None:
        if self._awaits_pong:
            self._connection.abort()
        else:
            self._awaits_pong = True
            self._protocol.send_ping(b"")
            self._flush()

    def _flush(self) -> None:
        # Empty data stands for the end of the connection, which follows when the request ends.
        data = b"".join(self._protocol.data_to_send())
        if data and not self._http.lost:
            self._connection.write(data)


def is_upgrade_request(scope: Scope) -> bool:
    return "rookery.take_over" in scope["extensions"]


async def serve_websocket(app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, message_bytes: int) -> None:
    """Call an ASGI app with the request as a WebSocket, until one side closes it."""
    http = HttpRequest(scope, receive, send)
    upgrade = WebSocketUpgrade(scope, message_bytes)
    if upgrade.response.status_code != 101:
        _refuse(http, upgrade.response.status_code, upgrade.refusal)
        return
    socket = _AsgiSocket(http, upgrade)
    try:
        await app(
            {**scope, "type": "websocket", "headers": restore_upgrade_headers(scope)}, socket.receive, socket.send
        )
    finally:
        socket.end()


def _refuse(http: HttpRequest, status: int, message: str) -> None:
    body = msgspec.json.encode({"error": {"code": "bad-request", "message": message}})
    http.respond(status, ((b"content-type", b"application/json"),), body)


class _AsgiSocket:
    """The `receive` and `send` of an ASGI app for one WebSocket."""

    def __init__(self, http: HttpRequest, upgrade: WebSocketUpgrade) -> None:
        self._http = http
        self._upgrade = upgrade
        self._messages: WebSocketConnection | None = None
        self._connected = self._refused = False

    async def receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        message = await self._messages.next() if self._messages is not None else None
        if message is None or self._messages is None:
            return {"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE}
        if not message.text:
            return {"type": "websocket.receive", "bytes": message.data}
        try:
            return {"type": "websocket.receive", "text": message.data.decode()}
        except UnicodeDecodeError:
            self._messages.close(CloseCode.INVALID_DATA, "the message is not valid UTF-8")
            return {"type": "websocket.disconnect", "code": CloseCode.INVALID_DATA}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.accept" and self._messages is None and not self._refused:
            self._messages = self._upgrade.open(self._http, binary=True)
        elif kind == "websocket.close" and self._messages is not None:
            self._messages.close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
        elif kind == "websocket.close":
            self._refuse(message.get("reason") or "there is no WebSocket here")
        elif self._messages is not None:
            text: str | None = message.get("text")
            data: bytes = message["bytes"] if text is None else text.encode()
            await self._messages.send(data, text=text is not None)

    def end(self) -> None:
        """Close or refuse the WebSocket after the app has returned or failed."""
        if self._messages is not None:
            self._messages.close()
        else:
            self._refuse("there is no WebSocket here")

    def _refuse(self, message: str) -> None:
        if not self._refused:
            self._refused = True
            _refuse(self._http, 400, message)


class WebSocketServer:
    """An ASGI app that serves MCP on upgrade requests, which have been authenticated like any other."""

    def __init__(
        self, service: Service, *, message_bytes: int = MESSAGE_BYTES, ping_seconds: float = _PING_SECONDS
    ) -> None:
        self._service = service
        self._message_bytes = message_bytes
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive, send)
        if self._service.is_closing:
            await http.refuse(503, SHUTTING_DOWN)
            return
        if "rookery.take_over" not in scope["extensions"]:
            await http.json(426, _NO_UPGRADE.encode(None), (b"upgrade", b"websocket"))
            return
        upgrade = WebSocketUpgrade(scope, self._message_bytes, [_SUBPROTOCOL])
        if upgrade.response.status_code != 101:
            error = WireError(INVALID_REQUEST, upgrade.refusal)
            await http.json(upgrade.response.status_code, error.encode(None))
            return
        await self._serve(upgrade, http)

    async def _serve(self, upgrade: WebSocketUpgrade, http: HttpRequest) -> None:
        """Serve MCP until one side closes the WebSocket."""
        socket = upgrade.open(http, ping_seconds=self._ping_seconds)
        peer = DuplexConnection(self._service, http.owner, socket.send)
        self._service.add_connection(socket.stop)
        try:
            while (message := await socket.next()) is not None:
                await peer.handle_frame(message.data)
        finally:
            self._service.remove_connection(socket.stop)
            await peer.end(lost=not socket.is_open)
            socket.close(CloseCode.GOING_AWAY, "shutting down")
