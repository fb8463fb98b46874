"""One WebSocket on a connection that was taken over from HTTP: whole messages in, whole messages out.

The frames are the `websockets` library's business.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from starlette.types import Scope
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from rookery.wire.exchange import REQUESTS
from rookery.wire.http_server import Http

_PING_SECONDS = 20.0
_INBOX_BYTES = 65_536


class Message(NamedTuple):
    data: bytes
    text: bool = True


class Taken(Protocol):
    """A connection that was taken over from HTTP."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def want_body(self, wanted: bool) -> None: ...
    def abort(self) -> None: ...


class Upgrade:
    """A request for a WebSocket, which the gate has judged already like every other. `response` is 101 if it is one."""

    def __init__(self, scope: Scope, message_bytes: int, subprotocols: Sequence[str] = ()) -> None:
        known = [Subprotocol(name) for name in subprotocols]
        self.protocol = ServerProtocol(
            subprotocols=known, select_subprotocol=lambda _, offered: _first(known, offered), max_size=message_bytes
        )
        self.response: Response = self.protocol.accept(_asked(self.protocol, scope))
        self._take_over: Callable[[Callable[[bytes], None]], Taken] = scope["extensions"]["rookery.take_over"]

    @property
    def refusal(self) -> str:
        return bytes(self.response.body).decode().strip()

    def open(self, http: Http, *, binary: bool = False, ping_seconds: float = _PING_SECONDS) -> "WebSocketMessages":
        self.protocol.send_response(self.response)
        REQUESTS.add("101")
        return WebSocketMessages(http, self.protocol, self._take_over, binary=binary, ping_seconds=ping_seconds)


def _first(known: Sequence[Subprotocol], offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return next((name for name in known if name in offered), None)


def _asked(protocol: ServerProtocol, scope: Scope) -> Request:
    """The request once more, for the library to read; the front has taken the words of the upgrade off it."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%b: %b\r\n" % header for header in upgrade_headers(scope)]
    protocol.receive_data(b"".join((b"GET ", target, b" HTTP/1.1\r\n", *lines, b"\r\n")))
    (request,) = protocol.events_received()
    assert isinstance(request, Request)
    return request


def upgrade_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    headers = [*scope["headers"], (b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    return [header for header in headers if header != (b"connection", b"close")]


class WebSocketMessages:
    """One open WebSocket. A client that answers no ping is as good as gone."""

    def __init__(
        self,
        http: Http,
        protocol: ServerProtocol,
        take_over: Callable[[Callable[[bytes], None]], Taken],
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
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._wake = asyncio.Event()
        self._pinged = self._stopped = False
        self._connection = take_over(self._feed)
        self._flush()
        http.on_lost(self._wake.set)

    @property
    def open(self) -> bool:
        return not self._http.lost and self._protocol.state is State.OPEN

    def stop(self) -> None:
        """Let `next` give no more."""
        self._stopped = True
        self._wake.set()

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say goodbye; what is to be said after it would have nowhere to go."""
        if self.open:
            self._protocol.send_close(code, reason)
            self._flush()
        self._wake.set()

    async def next(self) -> Message | None:
        """The next message; None once it is closed or stopped."""
        while self.open and not self._stopped:
            if self._inbox:
                return self._taken()
            self._wake.clear()
            try:
                async with asyncio.timeout(self._ping_seconds):
                    await self._wake.wait()
            except TimeoutError:
                self._ping()
        return None

    async def send(self, message: bytes, *, text: bool = True) -> None:
        if not self.open:
            raise ConnectionResetError
        if text:
            self._protocol.send_text(message)
        else:
            self._protocol.send_binary(message)
        self._flush()
        await self._connection.drain()

    def _feed(self, data: bytes) -> None:
        self._pinged = False
        self._protocol.receive_data(data)
        for frame in self._protocol.events_received():
            assert isinstance(frame, Frame)
            self._take(frame)
        self._flush()
        if self._inbox_bytes > _INBOX_BYTES:
            self._connection.want_body(False)
        self._wake.set()

    def _take(self, frame: Frame) -> None:
        """The library has answered pings and the goodbye by itself."""
        if frame.opcode is Opcode.BINARY and not self._binary and self.open:
            self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "messages are text")
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._message += frame.data
        if frame.fin:
            self._inbox.append(Message(bytes(self._message), self._is_text))
            self._inbox_bytes += len(self._message)
            self._message.clear()

    def _taken(self) -> Message:
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message.data)
        if not self._inbox:
            self._connection.want_body(True)
        return message

    def _ping(self) -> None:
        if self._pinged:
            self._connection.abort()
        else:
            self._pinged = True
            self._protocol.send_ping(b"")
            self._flush()

    def _flush(self) -> None:
        # An empty one stands for the end, which comes with the end of the request.
        data = b"".join(self._protocol.data_to_send())
        if data and not self._http.lost:
            self._connection.write(data)
