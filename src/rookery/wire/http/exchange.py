"""One HTTP request and its response, as the ASGI app sees them.

The bytes come from and go to an `ExchangeConnection`. The client recognizes the end of a response by its length, by a
last chunk, or by the end of the connection.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.types import ASGIApp, Message, Scope

from rookery.system import metrics
from rookery.wire.http.auth import Refusal
from rookery.wire.http.head import encode_response_head, encode_response_head_cached

logger = logging.getLogger("rookery.http")

STATUSES_WITHOUT_BODY = frozenset({204, 304})
REQUESTS_TOTAL = metrics.counter("rookery_http_requests_total", "HTTP responses by status.", "status")
_BUFFER_BYTES = 65_536
_FAILURE = {"code": "internal-error", "message": "an internal error occurred; see the log of the daemon"}


class ExchangeConnection(Protocol):
    """The interface of the connection that an exchange belongs to."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def set_reading(self, enabled: bool) -> None: ...
    def start(self, exchange: "Exchange") -> None: ...
    def on_exchange_done(self, exchange: "Exchange") -> None: ...
    def begin_stream(self, exchange: "Exchange") -> Refusal | None: ...
    def end_stream(self) -> None: ...
    def hold(self, exchange: "Exchange", size: int) -> Refusal | None: ...
    def take_over(self, feed: Callable[[bytes], None]) -> None: ...
    async def wait_for_turn(self) -> None: ...
    def abort(self) -> None: ...


class BodyFraming:
    """How the body of one response is delimited.

    `announced` is the length that the headers state. `length` is the size of a body that is sent as a whole.
    """

    __slots__ = ("_bodiless", "_chunked", "_remaining", "header_line", "until_close")

    def __init__(self, scope: Scope, status: int, announced: int | None, length: int | None) -> None:
        self._bodiless = status in STATUSES_WITHOUT_BODY or scope["method"] == "HEAD"
        self._chunked = self.until_close = False
        self._remaining = announced
        self.header_line = b""
        if announced is not None or self._bodiless:
            return
        if length is not None:
            self._remaining = length
            self.header_line = b"content-length: %d\r\n" % length
        elif scope["http_version"] == "1.1":
            self._chunked = True
            self.header_line = b"transfer-encoding: chunked\r\n"
        else:
            self.until_close = True

    def frame(self, body: bytes, last: bool) -> bytes:
        """Return a part of the body as it is sent. Raise RuntimeError if the length differs from the announced one."""
        if self._bodiless:
            return b""
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if last else chunk
        if self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (last and self._remaining > 0):
                raise RuntimeError("the body does not have the announced length")
        return body


class Exchange:
    """One request and its response: the `receive` and `send` of an ASGI app, with some extensions."""

    __slots__ = (
        *("app", "complete", "connection", "keep_alive", "lost", "request_complete", "scope", "started", "taken_over"),
        *("_body", "_data_event", "_expects_continue", "_framing", "_has_unread", "_head", "_on_lost"),
    )

    def __init__(
        self,
        connection: ExchangeConnection,
        scope: Scope,
        body: bytes | None = None,
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        # The app that handles this request, if it is not that of the listener.
        self.app: ASGIApp | None = None
        self.keep_alive = keep_alive
        self.request_complete = self._has_unread = body is not None
        self.started = self.complete = self.lost = self.taken_over = False
        self.connection = connection
        self._expects_continue = expects_continue
        self._body = bytearray(body or b"")
        self._data_event: asyncio.Event | None = None
        self._on_lost: Callable[[], object] | None = None
        self._head: Message | None = None
        self._framing: BodyFraming | None = None
        # Extensions of our own: a callback for the loss of the client, which needs no task; the whole body, if it has
        # arrived; and a whole response in one plain call.
        scope["extensions"] = {
            "rookery.on_lost": self.set_on_lost,
            "rookery.whole_body": self.whole_body,
            "rookery.answer": self.respond,
        }

    def set_on_lost(self, callback: Callable[[], object]) -> None:
        """Set the callback for the loss of the client. Call it at once if the client is lost already."""
        self._on_lost = callback
        if self.lost:
            callback()

    def _wake(self) -> None:
        self._has_unread = True
        if self._data_event is not None:
            self._data_event.set()
            self._data_event = None

    # Called by the connection when data arrives

    def feed(self, data: bytes) -> None:
        """Add received data to the body. Pause the connection if the app does not read it."""
        self._body += data
        if len(self._body) > _BUFFER_BYTES:
            self.connection.set_reading(False)
        self._wake()

    def on_request_complete(self) -> None:
        """Record that the whole request has arrived."""
        self.request_complete = True
        self._wake()

    def on_client_lost(self) -> None:
        """Record that the client has disconnected, and notify the app."""
        if self.complete or self.lost:
            return
        self.lost = True
        self._wake()
        if self._on_lost is not None:
            self._on_lost()

    # Called by the connection to run the app

    async def run(self, app: ASGIApp) -> None:
        """Call the app. Whatever it does, the client gets a response or a closed connection."""
        if self.lost and self.app is None:
            return
        try:
            await (self.app or app)(self.scope, self.receive, self.send)
            if self.taken_over and not self.lost:
                self._finish()
            elif not (self.complete or self.lost):
                raise RuntimeError("the app returned before the response was complete")
        except asyncio.CancelledError:
            self.connection.abort()
            raise
        except Exception:
            if not self.lost:
                logger.exception("%s %s failed", self.scope["method"], self.scope["path"])
                self._fail()

    def _fail(self) -> None:
        if self.started:
            if not self.complete:
                self.connection.abort()
            return
        self._head = None
        self.keep_alive = False
        self.respond(500, ((b"content-type", b"application/json"),), msgspec.json.encode({"error": _FAILURE}))

    # Called by the app

    async def receive(self) -> Message:
        """Return the next part of the body, or the disconnect of the client (ASGI)."""
        if not self.lost and not self.complete:
            if self._expects_continue and not self.started:
                self._expects_continue = False
                self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not self._has_unread:  # seldom: most requests have arrived whole before the app asks
                self._data_event = self._data_event or asyncio.Event()
                await self._data_event.wait()
        if self.lost or self.complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take_body(), "more_body": not self.request_complete}

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived and the client expects no 100 Continue, else None: use `receive`."""
        available = (
            self._has_unread and self.request_complete and not (self._expects_continue or self.lost or self.complete)
        )
        return self._take_body() if available else None

    def _take_body(self) -> bytes:
        body = bytes(self._body)
        self._has_unread = False
        self._body.clear()
        if len(body) > _BUFFER_BYTES:
            self.connection.set_reading(True)
        return body

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body of a response (ASGI)."""
        if self.lost:
            return
        starts = message["type"] == "http.response.start"
        if self.complete or starts is (self._head is not None):
            raise RuntimeError("the response was started twice" if starts else f"unexpected {message['type']}")
        if starts or self._head is None:
            self._head = message
            return
        body = message.get("body", b"")
        last = not message.get("more_body", False)
        if self._framing is None:
            if not last and (refusal := self.connection.begin_stream(self)) is not None:
                self._refuse(refusal)
                return
            status: int = self._head["status"]
            self._begin(status, encode_response_head(status, self._head.get("headers", ())), body, last)
        else:
            if last:
                self.connection.end_stream()
            self._write_part(self._framing.frame(body, last), last)
        if not last:
            await self.connection.drain()

    def _refuse(self, refusal: Refusal) -> None:
        """Send a refusal instead of the response. To the app, the client has disconnected."""
        on_lost = self._on_lost
        self._head = None
        self.keep_alive = False
        self.respond(refusal.status, ((b"content-type", b"application/json"),), refusal.body)
        self.lost = True
        if on_lost is not None:
            on_lost()

    def respond(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
        """Send a whole response without waiting."""
        if self.lost:
            return
        if self._head is not None or self.started:
            raise RuntimeError("the response was started twice")
        lines, length = encode_response_head_cached(status, headers)
        if (
            length is not None
            or not self.keep_alive
            or status in STATUSES_WITHOUT_BODY
            or self.scope["method"] == "HEAD"
        ):
            self._begin(status, (lines, length), body, True)
            return
        self.started = True
        REQUESTS_TOTAL.add(str(status))
        self.connection.write(b"%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body))
        self._finish()

    def _begin(self, status: int, head: tuple[bytes, int | None], body: bytes, last: bool) -> None:
        lines, announced = head
        self._framing = framing = BodyFraming(self.scope, status, announced, len(body) if last else None)
        self.keep_alive = self.keep_alive and not framing.until_close
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        data = b"".join((lines, framing.header_line, end, framing.frame(body, last)))
        self.started = True
        REQUESTS_TOTAL.add(str(status))
        self._write_part(data, last)

    def _write_part(self, data: bytes, last: bool) -> None:
        if data:
            self.connection.write(data)
        if last:
            self._finish()

    def take_over(self, feed: Callable[[bytes], None]) -> "UpgradedConnection":
        """Switch the connection to another protocol until the app returns. `feed` gets the received data."""
        self.started = self.taken_over = True
        self.connection.take_over(feed)
        return UpgradedConnection(self)

    def _finish(self) -> None:
        self.complete = True
        self._on_lost = self.app = None
        self._wake()
        # Breaks a reference cycle, so that the garbage collector is not needed.
        self.scope["extensions"] = {}
        self.connection.on_exchange_done(self)


class UpgradedConnection:
    """The interface of a connection that was taken over from HTTP, for the protocol that uses it now."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        connection = exchange.connection
        self.write = connection.write
        self.drain = connection.drain
        self.set_reading = connection.set_reading
        self.abort = connection.abort
        self.wait_for_turn = connection.wait_for_turn

    def hold(self, size: int) -> Refusal | None:
        """Set how many received bytes are held. Return a refusal if they exceed the share."""
        return self._exchange.connection.hold(self._exchange, size)
