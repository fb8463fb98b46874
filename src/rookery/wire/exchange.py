"""One request and its answer, as the ASGI app sees them. The bytes come from and go to a `Connection`."""

import asyncio
import http
import logging
import re
from collections.abc import Callable
from typing import Protocol

import msgspec
from starlette.types import ASGIApp, Message, Scope

from rookery.system import metrics

logger = logging.getLogger("rookery.http")
REQUESTS = metrics.counter("rookery_http_requests_total", "Answers by status.", "status")

_BUFFER_BYTES = 65_536
_NO_BODY = frozenset({204, 304})
_BREAKS = re.compile(rb"[\r\n\0]").search
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}


class Connection(Protocol):
    """What an exchange needs of the connection it belongs to."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def want_body(self, wanted: bool) -> None: ...
    def exchange_done(self, exchange: "Exchange") -> None: ...
    def take_over(self, feed: Callable[[bytes], None]) -> None: ...
    def abort(self) -> None: ...


class Exchange:
    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.request_complete = False
        self.started = False
        self.complete = False
        self.lost = self.taken_over = False
        self._connection = connection
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._news = asyncio.Event()
        self._on_lost: Callable[[], None] | None = None
        self._head: Message | None = None
        self._chunked = False
        self._left: int | None = None
        # An extension of ours: whoever waits for long is told that the client has gone, without a task that listens.
        scope["extensions"] = {"rookery.on_lost": self._set_on_lost}

    def _set_on_lost(self, call: Callable[[], None]) -> None:
        self._on_lost = call
        if self.lost:
            call()

    # ---- fed by the connection

    def feed(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > _BUFFER_BYTES:
            self._connection.want_body(False)
        self._news.set()

    def end_of_request(self) -> None:
        self.request_complete = True
        self._news.set()

    def lose(self) -> None:
        """The client has gone."""
        if self.complete or self.lost:
            return
        self.lost = True
        self._news.set()
        if self._on_lost is not None:
            self._on_lost()

    # ---- run by the connection

    async def run(self, app: ASGIApp) -> None:
        """Call the app; whatever it does, the client gets an answer or a closed connection."""
        if self.lost:
            return
        try:
            await app(self.scope, self.receive, self.send)
            if self.taken_over and not self.lost:
                self._finish()
            elif not (self.complete or self.lost):
                raise RuntimeError("the app returned without a whole answer")
        except asyncio.CancelledError:
            self._connection.abort()
            raise
        except Exception:
            if not self.lost:
                logger.exception("%s %s failed", self.scope["method"], self.scope["path"])
                await self._fail()

    async def _fail(self) -> None:
        if self.complete:
            return
        if self.started:
            self._connection.abort()
            return
        self._head = self._left = None
        self._chunked = self.keep_alive = False
        error = {"code": "internal-error", "message": "something went wrong here; the daemon's log tells what"}
        body = msgspec.json.encode({"error": error})
        head: Message = {"status": 500, "headers": [(b"content-type", b"application/json")]}
        await self.send({"type": "http.response.start", **head})
        await self.send({"type": "http.response.body", "body": body})

    # ---- called by the app

    async def receive(self) -> Message:
        if not self.lost and not self.complete:
            if self._expects_continue and not self.started:
                self._expects_continue = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._news.wait()
            self._news.clear()
        if self.lost or self.complete:
            return {"type": "http.disconnect"}
        body = bytes(self._body)
        self._body.clear()
        if len(body) > _BUFFER_BYTES:
            self._connection.want_body(True)
        return {"type": "http.request", "body": body, "more_body": not self.request_complete}

    async def send(self, message: Message) -> None:
        if self.lost:
            return
        if message["type"] == "http.response.start":
            if self._head is not None:
                raise RuntimeError("an answer was started twice")
            self._head = message
            return
        if self._head is None or self.complete:
            raise RuntimeError(f"{message['type']} out of turn")
        body: bytes = message.get("body", b"")
        last = not message.get("more_body", False)
        status: int = self._head["status"]
        data = b"" if self.started else self._write_head(status, self._head, len(body) if last else None)
        if self.scope["method"] != "HEAD" and status not in _NO_BODY:
            data += self._frame(body, last)
        if not self.started:
            self.started = True
            REQUESTS.add(str(status))
        if data:
            self._connection.write(data)
        if last:
            self._finish()
        else:
            await self._connection.drain()

    def take_over(self, feed: Callable[[bytes], None]) -> Connection:
        """Speak something else than HTTP from now on, until the app returns; `feed` gets what comes."""
        self.started = self.taken_over = True
        self._connection.take_over(feed)
        return self._connection

    def _finish(self) -> None:
        self.complete = True
        self._on_lost = None
        self._news.set()
        self._connection.exchange_done(self)

    def _write_head(self, status: int, head: Message, length: int | None) -> bytes:
        """The status line and headers; `length` is known when the whole answer came in one piece."""
        lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in head.get("headers", ()):
            if _BREAKS(value) or _BREAKS(name) or b":" in name:
                raise RuntimeError(f"invalid header {name!r}")
            if name.lower() == b"content-length":
                self._left = int(value)
            lines += (name, b": ", value, b"\r\n")
        if self._left is None and status not in _NO_BODY and self.scope["method"] != "HEAD":
            if length is not None:
                self._left = length
                lines.append(b"content-length: %d\r\n" % length)
            elif self.scope["http_version"] == "1.1":
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _frame(self, body: bytes, last: bool) -> bytes:
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return framed + b"0\r\n\r\n" if last else framed
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (last and self._left > 0):
                raise RuntimeError("the answer does not have the length it announced")
        return body
