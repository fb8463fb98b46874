"""The HTTP front: one connection on httptools, with what an ASGI layer would come too late for.

Limits on header bytes and time, on body bytes and time, on the number of connections and on a reader that stalls; a
judge that sees every request's head before the app does; a close after an early answer that lets the client read it;
the loss of a client as a callback; head and body in one write.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import unquote

import httptools
import msgspec
from starlette.types import ASGIApp, Scope

from rookery.system import metrics
from rookery.system.tasks import TaskSet
from rookery.wire.exchange import REQUESTS, STATUS_LINES, Exchange
from rookery.wire.gate import Judge, Refusal

logger = logging.getLogger("rookery.http")
REFUSED = metrics.counter("rookery_http_refused_total", "Requests and connections refused or cut off.", "reason")

_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1_048_576
_PIPELINE = 32

# What the connection is waiting for; each has a time limit, but for an answer that is being worked on.
Phase = Literal["idle", "head", "body", "answer", "linger"]


@dataclass(frozen=True)
class Limits:
    header_bytes: int = 32_768
    header_seconds: float = 10.0
    body_bytes: int = 67_108_864
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    keep_alive_seconds: float = 75.0
    connections: int = 512


class Door:
    """What all connections of one listener share."""

    def __init__(self, app: ASGIApp, judge: Judge, limits: Limits) -> None:
        self.app = app
        self.judge = judge
        self.limits = limits
        self.connections: set[Front] = set()
        self.tasks = TaskSet("http")
        self.closing = False
        self.empty = asyncio.Event()
        self.empty.set()
        # Those without a whole request yet, in the order they came: they make room for newcomers, oldest first.
        self.unproven: dict[Front, None] = {}

    def connect(self) -> "Front":
        return Front(self)


class Front(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, door: Door) -> None:
        self.door = door
        self.limits = door.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._body_bytes = 0
        self._reading: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._phase: Phase = "head"
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._lingered = 0
        self._writable: asyncio.Future[None] | None = None
        self._stall: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        door = self.door
        door.connections.add(self)
        door.unproven[self] = None
        door.empty.clear()
        self._enter("head", self.limits.header_seconds)
        if len(door.connections) > self.limits.connections:
            oldest = next(iter(door.unproven))
            if oldest is self:
                self.refuse(Refusal(503, "too-many-connections", "too many connections; try again"))
            else:
                oldest.cut("crowded-out")

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.connections.discard(self)
        self.door.unproven.pop(self, None)
        for timer in (self._timer, self._stall):
            if timer is not None:
                timer.cancel()
        self._wake_writer()
        for exchange in self._queue:
            exchange.lose()
        if not self.door.connections:
            self.door.empty.set()

    def shut_down(self) -> None:
        """Finish what is being answered, then close."""
        if not self._queue:
            self.transport.close()
        for exchange in self._queue:
            exchange.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self._phase == "linger":
            self._lingered += len(data)
            if self._lingered > _LINGER_BYTES:
                self.cut("body-after-refusal")
            return
        if self._phase == "idle":
            self._enter("head", self.limits.header_seconds)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing to upgrade to: answered as if it had not been asked for, and what follows is not HTTP.
            self.transport.pause_reading()
        except httptools.HttpParserError:
            self._refuse_garbage()
        if self._phase == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._refuse_head()

    def _refuse_garbage(self) -> None:
        if self._phase == "linger":
            return
        if self._queue and self._queue[0].request_complete:
            # Garbage behind a request that was whole: that one is answered, nothing after it.
            self._queue[-1].keep_alive = False
            self.transport.pause_reading()
        else:
            self.refuse(Refusal(400, "bad-request", "this is not a valid HTTP request"))

    # ---- the parser's callbacks

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._body_bytes = 0
        self._reading = None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        if self._phase == "linger":
            return
        self._head_bytes = 0
        self.door.unproven.pop(self, None)
        self._enter("body", self.limits.body_seconds)
        method = self._parser.get_method().decode("ascii")
        verdict = self._judge(method)
        if isinstance(verdict, Refusal):
            self.refuse(verdict)
            return
        exchange = Exchange(
            self,
            verdict,
            keep_alive=self._parser.should_keep_alive() and not self._parser.should_upgrade(),
            expects_continue=any(n == b"expect" and v.lower() == b"100-continue" for n, v in self._headers),
        )
        self._reading = exchange
        self._queue.append(exchange)
        if len(self._queue) == 1:
            self._start(exchange)
        elif len(self._queue) > _PIPELINE:
            self.cut("pipeline")

    def _judge(self, method: str) -> Refusal | Scope:
        """All that can be said against a request on its head alone; its scope if there is nothing."""
        size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
        if size > self.limits.header_bytes:
            return self._too_large_head()
        if not self._url.startswith(b"/"):
            return Refusal(400, "bad-request", "only paths that begin with / are served")
        raw_path, _, query = self._url.partition(b"#")[0].partition(b"?")
        path = raw_path.decode("latin-1")
        verdict = self.door.judge(method, path, self._headers)
        if isinstance(verdict, Refusal):
            return verdict
        lengths = [value for name, value in self._headers if name == b"content-length"]
        if any(int(value) > self.limits.body_bytes for value in lengths if value.isdigit()):
            return self._too_large_body()
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self._parser.get_http_version(),
            "method": method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": None,
            "server": None,
            "state": {"principal": verdict},
        }

    def on_body(self, body: bytes) -> None:
        if self._phase == "linger" or self._reading is None:
            return
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self.refuse(self._too_large_body())
        elif not self._reading.complete:
            self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._phase == "linger" or self._reading is None:
            return
        self._reading.end_of_request()
        self._enter("answer", None)

    # ---- what an exchange asks for

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable

    def want_body(self, wanted: bool) -> None:
        if self.transport.is_closing():
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def abort(self) -> None:
        self.transport.abort()

    def exchange_done(self, exchange: Exchange) -> None:
        self._queue.popleft()
        if self.transport.is_closing():
            return
        if not exchange.request_complete:
            # Answered before all of it was heard: whoever goes on talking is not listened to.
            self._linger()
        elif not exchange.keep_alive or self.door.closing:
            self.transport.close()
        elif self._queue:
            self._start(self._queue[0])
        else:
            self._enter("idle", self.limits.keep_alive_seconds)
            self.transport.resume_reading()

    def _start(self, exchange: Exchange) -> None:
        self.door.tasks.start(exchange.run(self.door.app), exchange.scope["path"])

    # ---- slow readers

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._stall = self._loop.call_later(self.limits.write_seconds, self.cut, "write-time")

    def resume_writing(self) -> None:
        self._wake_writer()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # ---- refusing

    def refuse(self, refusal: Refusal) -> None:
        """Answer at once and close, without a word to the app."""
        REFUSED.add(refusal.code)
        logger.debug("refused with %d %s", refusal.status, refusal.code)
        for exchange in self._queue:
            exchange.lose()
        if self.transport.is_closing() or any(exchange.started for exchange in self._queue):
            self.transport.abort()
            return
        REQUESTS.add(str(refusal.status))
        body = msgspec.json.encode({"error": {"code": refusal.code, "message": refusal.message}})
        lines = [b"%b: %b\r\n" % header for header in refusal.headers]
        lines.append(b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body))
        self.transport.write(b"".join((STATUS_LINES[refusal.status], *lines, b"connection: close\r\n\r\n", body)))
        self._linger()

    def _refuse_head(self) -> None:
        self.refuse(self._too_large_head())

    def _too_large_head(self) -> Refusal:
        limit = self.limits.header_bytes
        return Refusal(431, "headers-too-large", f"the head of the request is larger than {limit} bytes")

    def _too_large_body(self) -> Refusal:
        limit = self.limits.body_bytes
        return Refusal(413, "body-too-large", f"the body of the request is larger than {limit} bytes")

    def _linger(self) -> None:
        """Close our side and read on for a little while: a reset would take the answer from the client."""
        self._enter("linger", _LINGER_SECONDS)
        self.transport.resume_reading()
        self.transport.write_eof()

    def cut(self, reason: str) -> None:
        """End the connection without another word."""
        REFUSED.add(reason)
        logger.info("cut off a connection: %s", reason)
        self.transport.abort()

    # ---- time limits

    def _enter(self, phase: Phase, seconds: float | None) -> None:
        """One timer a connection, moved only when it would ring too late: most requests never touch it."""
        self._phase = phase
        self._due = self._loop.time() + seconds if seconds is not None else 0.0
        if self._due and (self._timer is None or self._timer_due > self._due):
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = self._due
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._due:
            return
        if self._loop.time() < self._due:
            self._set_timer()
        elif self._phase in ("head", "body"):
            phase = self._phase
            self.refuse(Refusal(408, f"{phase}-time", f"the {phase} of the request took too long to arrive"))
        elif self._phase == "idle":
            self.transport.close()
        else:
            self.transport.abort()
