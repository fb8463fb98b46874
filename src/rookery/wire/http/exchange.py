"""One request and its answer, as the ASGI app sees them. The bytes come from and go to a `Connection`."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp, Message, Scope

from rookery.system import metrics
from rookery.wire.carrier import Connection
from rookery.wire.framing import NO_BODY, Framing
from rookery.wire.head import answer_lines, usual_lines

logger = logging.getLogger("rookery.http")
REQUESTS = metrics.counter("rookery_http_requests_total", "Answers by status.", "status")

_BUFFER_BYTES = 65_536
_FAILURE = {"code": "internal-error", "message": "something went wrong here; the daemon's log tells what"}


class Exchange:
    __slots__ = (
        *("app", "complete", "connection", "keep_alive", "lost", "request_complete", "scope", "started", "taken_over"),
        *("_body", "_expects_continue", "_framing", "_head", "_new", "_news", "_on_lost"),
    )

    def __init__(
        self, carrier: Connection, scope: Scope, body: bytes | None = None, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        # Who answers, if it is not who answers all.
        self.app: ASGIApp | None = None
        self.keep_alive = keep_alive
        self.request_complete = self._new = body is not None
        self.started = self.complete = self.lost = self.taken_over = False
        self.connection = carrier
        self._expects_continue = expects_continue
        self._body = bytearray(body or b"")
        self._news: asyncio.Event | None = None
        self._on_lost: Callable[[], object] | None = None
        self._head: Message | None = None
        self._framing: Framing | None = None
        # Ours: to be told that the client has gone, without a task that listens; to take a body that is there, and to
        # give a whole answer, in one plain call.
        scope["extensions"] = {
            "rookery.on_lost": self.on_lost,
            "rookery.whole_body": self.whole_body,
            "rookery.answer": self.answer,
        }

    def on_lost(self, call: Callable[[], object]) -> None:
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
            self.connection.want_body(False)
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
        if self.lost and self.app is None:
            return
        try:
            await (self.app or app)(self.scope, self.receive, self.send)
            if self.taken_over and not self.lost:
                self._finish()
            elif not (self.complete or self.lost):
                raise RuntimeError("the app returned without a whole answer")
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
        self.answer(500, ((b"content-type", b"application/json"),), msgspec.json.encode({"error": _FAILURE}))

    # ---- called by the app

    async def receive(self) -> Message:
        if not self.lost and not self.complete:
            if self._expects_continue and not self.started:
                self._expects_continue = False
                self.connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not self._new:  # seldom: most requests are there as a whole before the app asks
                self._news = self._news or asyncio.Event()
                await self._news.wait()
        if self.lost or self.complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._taken(), "more_body": not self.request_complete}

    def whole_body(self) -> bytes | None:
        """The body, if all of it is there and the client waits for no word of ours; else it is to be received."""
        here = self._new and self.request_complete and not (self._expects_continue or self.lost or self.complete)
        return self._taken() if here else None

    def _taken(self) -> bytes:
        body, self._new = bytes(self._body), False
        self._body.clear()
        if len(body) > _BUFFER_BYTES:
            self.connection.want_body(True)
        return body

    async def send(self, message: Message) -> None:
        if self.lost:
            return
        starts = message["type"] == "http.response.start"
        if self.complete or starts is (self._head is not None):
            raise RuntimeError("an answer was started twice" if starts else f"{message['type']} out of turn")
        if starts or self._head is None:
            self._head = message
            return
        body, last = message.get("body", b""), not message.get("more_body", False)
        if self._framing is None:
            status: int = self._head["status"]
            self._begin(status, answer_lines(status, self._head.get("headers", ())), body, last)
        else:
            self._go_on(self._framing.framed(body, last), last)
        if not last:
            await self.connection.drain()

    def answer(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
        """A whole answer, which waits for nothing."""
        if self.lost:
            return
        if self._head is not None or self.started:
            raise RuntimeError("an answer was started twice")
        lines, length = usual_lines(status, headers)
        if length is not None or not self.keep_alive or status in NO_BODY or self.scope["method"] == "HEAD":
            self._begin(status, (lines, length), body, True)
            return
        self.started = True
        REQUESTS.add(str(status))
        self.connection.write(b"%bcontent-length: %d\r\n\r\n%b" % (lines, len(body), body))
        self._finish()

    def _begin(self, status: int, found: tuple[bytes, int | None], body: bytes, last: bool) -> None:
        lines, announced = found
        self._framing = framing = Framing(self.scope, status, announced, len(body) if last else None)
        self.keep_alive = self.keep_alive and not framing.until_close
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        data = b"".join((lines, framing.line, end, framing.framed(body, last)))
        self.started = True
        REQUESTS.add(str(status))
        self._go_on(data, last)

    def _go_on(self, data: bytes, last: bool) -> None:
        if data:
            self.connection.write(data)
        if last:
            self._finish()

    def take_over(self, feed: Callable[[bytes], None]) -> Connection:
        """Speak something else than HTTP from now on, until the app returns; `feed` gets what comes."""
        self.started = self.taken_over = True
        self.connection.take_over(feed)
        return self.connection

    def _finish(self) -> None:
        self.complete = True
        self._on_lost = self.app = None
        self._wake()
        # Else each would hold the other until the collector comes by.
        self.scope["extensions"] = {}
        self.connection.exchange_done(self)
