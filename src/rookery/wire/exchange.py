"""One request and its answer, as the ASGI app sees them. The bytes come from and go to a `Connection`."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp, Message, Scope

from rookery.system import metrics
from rookery.wire.carrier import Connection
from rookery.wire.head import answer_lines, usual_lines

logger = logging.getLogger("rookery.http")
REQUESTS = metrics.counter("rookery_http_requests_total", "Answers by status.", "status")

_BUFFER_BYTES = 65_536
_NO_BODY = frozenset({204, 304})
_FAILURE = {"code": "internal-error", "message": "something went wrong here; the daemon's log tells what"}


class Exchange:
    __slots__ = (
        *("complete", "keep_alive", "lost", "request_complete", "scope", "started", "taken_over"),
        *("_body", "_chunked", "_connection", "_expects_continue", "_head", "_left", "_new", "_news", "_on_lost"),
    )

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.request_complete = self.started = self.complete = self.lost = self.taken_over = False
        self._connection = connection
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._new = self._chunked = False
        self._news: asyncio.Event | None = None
        self._on_lost: Callable[[], None] | None = None
        self._head: Message | None = None
        self._left: int | None = None
        # Ours: to be told that the client has gone, without a task that listens; to give a whole answer in one call.
        scope["extensions"] = {"rookery.on_lost": self._set_on_lost, "rookery.answer": self.answer}

    def _set_on_lost(self, call: Callable[[], None]) -> None:
        self._on_lost = call
        if self.lost:
            call()

    def _wake(self) -> None:
        self._new = True
        if self._news is not None:
            self._news.set()
            self._news = None

    # ---- fed by the connection

    def feed(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > _BUFFER_BYTES:
            self._connection.want_body(False)
        self._wake()

    def end_of_request(self) -> None:
        self.request_complete = True
        self._wake()

    def lose(self) -> None:
        """The client has gone."""
        if self.complete or self.lost:
            return
        self.lost = True
        self._wake()
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
                self._fail()

    def _fail(self) -> None:
        if self.started:
            if not self.complete:
                self._connection.abort()
            return
        self._head = None
        self._chunked = self.keep_alive = False
        self.answer(500, ((b"content-type", b"application/json"),), msgspec.json.encode({"error": _FAILURE}))

    # ---- called by the app

    async def receive(self) -> Message:
        if not self.lost and not self.complete:
            if self._expects_continue and not self.started:
                self._expects_continue = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not self._new:  # seldom: most requests are there as a whole before the app asks
                self._news = self._news or asyncio.Event()
                await self._news.wait()
            self._new = False
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
            if self._head is not None or self.complete:
                raise RuntimeError("an answer was started twice")
            self._head = message
            return
        if self._head is None or self.complete:
            raise RuntimeError(f"{message['type']} out of turn")
        body: bytes = message.get("body", b"")
        last = not message.get("more_body", False)
        status: int = self._head["status"]
        length = len(body) if last else None
        headers = self._head.get("headers", ())
        head = b"" if self.started else self._head_of(status, answer_lines(status, headers), length)
        self._write(status, head, body, last)
        if not last:
            await self._connection.drain()

    def answer(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
        """A whole answer, which waits for nothing."""
        if self.lost:
            return
        if self._head is not None or self.started:
            raise RuntimeError("an answer was started twice")
        self._write(status, self._head_of(status, usual_lines(status, headers), len(body)), body, True)

    def _write(self, status: int, data: bytes, body: bytes, last: bool) -> None:
        if self.scope["method"] != "HEAD" and status not in _NO_BODY:
            data += self._frame(body, last)
        if not self.started:
            self.started = True
            REQUESTS.add(str(status))
        if data:
            self._connection.write(data)
        if last:
            self._finish()

    def take_over(self, feed: Callable[[bytes], None]) -> Connection:
        """Speak something else than HTTP from now on, until the app returns; `feed` gets what comes."""
        self.started = self.taken_over = True
        self._connection.take_over(feed)
        return self._connection

    def _finish(self) -> None:
        self.complete = True
        self._on_lost = None
        self._wake()
        # Else each would hold the other until the collector comes by.
        self.scope["extensions"] = {}
        self._connection.exchange_done(self)

    def _head_of(self, status: int, found: tuple[bytes, int | None], length: int | None) -> bytes:
        """The whole head; `length` is known when the whole answer came in one piece."""
        lines, self._left = found
        if self._left is None and status not in _NO_BODY and self.scope["method"] != "HEAD":
            if length is not None:
                self._left = length
                lines += b"content-length: %d\r\n" % length
            elif self.scope["http_version"] == "1.1":
                self._chunked = True
                lines += b"transfer-encoding: chunked\r\n"
            else:
                self.keep_alive = False
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        return lines + b"\r\n"

    def _frame(self, body: bytes, last: bool) -> bytes:
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return framed + b"0\r\n\r\n" if last else framed
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (last and self._left > 0):
                raise RuntimeError("the answer does not have the length it announced")
        return body
