"""The HTTP front: one connection on httptools, with what an ASGI layer would come too late for.

Limits on header bytes and time, on body bytes and time, on the number of connections and on a reader that stalls; a
judge that sees every request's head before the app does; a close after an early answer that lets the client read it;
the loss of a client as a callback; head and body in one write.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, cast

import httptools
from starlette.types import Scope

from rookery.system import metrics
from rookery.wire.deadline import Deadline
from rookery.wire.door import Door, Limits
from rookery.wire.exchange import REQUESTS, Exchange
from rookery.wire.gate import ANYBODY, Principal, Refusal
from rookery.wire.head import Head
from rookery.wire.repeated import Repeated, learned
from rookery.wire.scope import scope_of

logger = logging.getLogger("rookery.http")
REFUSED = metrics.counter("rookery_http_refused_total", "Requests and connections refused or cut off.", "reason")

_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1_048_576
_PIPELINE = 32

# What the connection is waiting for; each has a time limit, but for an answer that is being worked on. What comes in
# after a refusal ("refused", while earlier answers are under way) or on the way out ("closing") is not listened to.
Phase = Literal["idle", "head", "body", "answer", "refused", "closing"]


class Front(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, door: Door) -> None:
        self.door = door
        self.limits: Limits = door.limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._begun = self._deaf = self._asks_upgrade = self._proven = self._paused = self._ended = False
        self._bare_bytes = self._body_bytes = self._unheard_bytes = 0
        # The most that the head can have had so far, and what came last, in which it may have begun.
        self._head_bytes = self._fed_bytes = 0
        self._reading: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._held: Exchange | None = None
        self._refusal: Refusal | None = None
        self._phase: Phase = "head"
        self._deadline = Deadline(self._too_late)
        # While bytes are parsed, time limits are only noted: most requests come as a whole, and the last one counts.
        self._parsing = self._moved = False
        self._seconds: float | None = None
        self._feed: Callable[[bytes], None] | None = None
        self._known: Repeated | None = None
        # Waited for by a task that has nothing to do.
        self._free: asyncio.Future[Exchange] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._stall: asyncio.TimerHandle | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._enter("head", self.limits.header_seconds)
        self.door.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.forget(self)
        self._ended = True
        if self._free is not None:
            self._free.cancel()
            self._free = None
        self._moved = False
        self._deadline.cancel()
        if self._stall is not None:
            self._stall.cancel()
        self._writable.set()
        for exchange in self._queue:
            exchange.lose()

    def eof_received(self) -> None:
        """The client has gone; what it has not read yet is not kept for ever."""
        self._leave(self.limits.write_seconds)

    def shut_down(self) -> None:
        """Finish what is being answered, then close."""
        if not self._queue:
            self.transport.close()
        for exchange in self._queue:
            exchange.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._unheard_bytes += len(data)
            if self._unheard_bytes > _LINGER_BYTES:
                self.cut("body-after-refusal")
            return
        if self._feed is not None:
            self._feed(data)
            return
        if self._phase == "idle" and self._known is not None and (body := self._known.body_of(data)) is not None:
            self._repeat(self._known, body)
            return
        # Bytes since the last one of a body or the last whole request: those of a head, or of chunk sizes and trailers.
        self._bare_bytes += len(data)
        self._head_bytes, self._fed_bytes = self._head_bytes + len(data), len(data)
        self._parsing = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._deaf:
                self.refuse(Refusal(400, "bad-request", "this is not a valid HTTP request"))
        finally:
            self._parsing = False
            if self._moved:
                self._moved = False
                self._deadline.set(self._seconds)
        if self._bare_bytes > self.limits.header_bytes and not self._deaf:
            self.refuse(self.limits.too_large_head())
        elif self._phase == "answer" and self._reading is not None and len(self._queue) == 1:
            self._known = learned(data, self._reading.scope, self._head_bytes)

    def _repeat(self, known: Repeated, body: bytes) -> None:
        """A request as before, with another body: all that the parser would find is known."""
        if len(body) > self.limits.body_bytes:
            self.refuse(self.limits.too_large_body())
            return
        principal = self.door.judge("POST", known.path, known.head)
        if isinstance(principal, Refusal):
            self.refuse(principal)
            return
        state = self._state(principal)
        self._reading = exchange = Exchange(self, known.scope(state), body, keep_alive=True, expects_continue=False)
        self._queue.append(exchange)
        self._enter("answer", None)
        lane = known.lane(self.door.app, state)
        if lane is None or not lane.take(body, exchange):
            self.start(exchange)

    def _state(self, principal: Principal) -> dict[str, Any]:
        """What a request's scope tells of who calls."""
        return {"principal": principal}

    def _read_without_upgrade(self, rest: bytes) -> None:
        """The request is read again as if it had not asked, and is the last one. The app may take it over, or not."""
        if self._deaf:
            return
        first = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())
        kept = [header for header in self._headers if header[0] not in (b"upgrade", b"connection")]
        lines = [b"%b: %b\r\n" % header for header in (*kept, (b"connection", b"close"))]
        self._parser = httptools.HttpRequestParser(self)
        self._bare_bytes = 0
        self._asks_upgrade = True
        self.data_received(b"".join((first, *lines, b"\r\n", rest)))

    # ---- the parser's callbacks

    def on_message_begin(self) -> None:
        self._begun = True
        self._head_bytes = self._fed_bytes
        self._url = b""
        self._headers = []
        self._body_bytes = 0
        self._reading = None
        if self._phase == "idle":
            self._enter("head", self.limits.header_seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is None:  # else it is a trailer, which came past the judge
            self._headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        method = self._parser.get_method().decode("ascii")
        if self._parser.should_upgrade() and method != "CONNECT":
            return  # it comes again, by way of _read_without_upgrade
        self._bare_bytes = 0
        head = Head(self._headers)
        verdict = self._judge(method, head)
        if isinstance(verdict, Refusal):
            self.refuse(verdict)
            return
        if not self._proven and verdict["state"]["principal"] is not ANYBODY:
            self._proven = True
            self.door.prove(self)
        self._enter("body", self.limits.body_seconds)
        expects = (
            b"expect" in head.names
            and verdict["http_version"] == "1.1"
            and b"100-continue" in map(bytes.lower, head.all(b"expect"))
        )
        lasts = self._parser.should_keep_alive()
        self._reading = exchange = Exchange(self, verdict, keep_alive=lasts, expects_continue=expects)
        if self._asks_upgrade:
            verdict["extensions"]["rookery.take_over"] = exchange.take_over
        self._queue.append(exchange)
        if len(self._queue) == 1:
            self.start(exchange)
        elif len(self._queue) > _PIPELINE:
            self.cut("pipeline")

    def _judge(self, method: str, head: Head) -> Refusal | Scope:
        """All that can be said against a request on its head alone; its scope if there is nothing."""
        # A head counts for less than twice the bytes it came in, which are seldom enough to look closer.
        if 2 * self._head_bytes > self.limits.header_bytes:
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in head)
            if size > self.limits.header_bytes:
                return self.limits.too_large_head()
        if not self._url.startswith(b"/") or method == "CONNECT":
            return Refusal(400, "bad-request", "only paths that begin with / are served")
        raw_path, _, query = self._url.partition(b"#")[0].partition(b"?")
        path = raw_path.decode("latin-1")
        verdict = self.door.judge(method, path, head)
        if isinstance(verdict, Refusal):
            return verdict
        for length in head.all(b"content-length"):
            if length.isdigit() and int(length) > self.limits.body_bytes:
                return self.limits.too_large_body()
        return scope_of(method, self._parser.get_http_version(), path, raw_path, query, head, self._state(verdict))

    def on_body(self, body: bytes) -> None:
        if self._deaf or self._reading is None:
            return
        self._bare_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self.refuse(self.limits.too_large_body())
        else:
            self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._deaf or self._reading is None:
            return
        self._begun = False
        self._bare_bytes = 0
        self._reading.end_of_request()
        self._enter("answer", None)

    # ---- what an exchange asks for

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def drain(self) -> None:
        await self._writable.wait()

    def want_body(self, wanted: bool) -> None:
        if self.transport.is_closing():
            return
        if wanted:
            self._listen()
        else:
            self._paused = True
            self.transport.pause_reading()
        if self._phase == "body":
            # The time in which we do not listen is not the client's.
            self._enter("body", self.limits.body_seconds if wanted else None)

    def _listen(self) -> None:
        if self._paused:
            self.transport.resume_reading()
        self._paused = False

    def take_over(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed

    def abort(self) -> None:
        self.transport.abort()

    def exchange_done(self, exchange: Exchange) -> None:
        if self.transport.is_closing():
            return
        if not exchange.request_complete or exchange.taken_over:
            # Answered before all of it was heard: whoever goes on talking is not listened to.
            self._queue.popleft()
            self._linger()
        elif not self._writable.is_set():
            self._held = exchange  # whoever does not take one answer gets no second one
        else:
            self._queue.popleft()
            self._go_on(exchange)

    def _go_on(self, after: Exchange) -> None:
        if not after.keep_alive and self._phase == "refused":
            self._linger()
        elif not after.keep_alive or self.door.closing:
            self._leave(self.limits.write_seconds)
            self.transport.close()
        elif self._queue:
            self._listen()
            self.start(self._queue[0])
        elif self._refusal is not None:
            self._answer(self._refusal)
        else:
            self._listen()
            if self._begun:
                self._enter("head", self.limits.header_seconds)
            else:
                self._enter("idle", self.limits.keep_alive_seconds)

    def start(self, exchange: Exchange) -> None:
        if self._free is None:
            self.door.tasks.start(self._serve(exchange), exchange.scope["path"])
        else:
            free, self._free = self._free, None
            free.set_result(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        """Run one exchange after another in the same task: a new one for each would cost more than most of them do."""
        while True:
            await exchange.run(self.door.app)
            if self._free is not None or self._ended or cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                return
            self._free = self._loop.create_future()
            exchange = await self._free

    # ---- slow readers

    def pause_writing(self) -> None:
        self._writable.clear()
        self._stall = self._loop.call_later(self.limits.write_seconds, self.cut, "write-time")

    def resume_writing(self) -> None:
        self._writable.set()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._held is not None:
            held, self._held = self._held, None
            self.exchange_done(held)

    # ---- refusing

    def refuse(self, refusal: Refusal) -> None:
        """Answer without a word to the app, once the requests before this one have their answers, and close."""
        REFUSED.add(refusal.code)
        logger.debug("refused with %d %s", refusal.status, refusal.code)
        if self._reading is not None and not self._reading.request_complete:
            self._queue.pop().lose()
            if self._reading.started:
                self.cut(refusal.code)
                return
        if self._queue:
            self._refusal = refusal
            self._enter("refused", None)
        else:
            self._answer(refusal)

    def _answer(self, refusal: Refusal) -> None:
        REQUESTS.add(str(refusal.status))
        self.transport.write(refusal.encoded())
        self._linger()

    def _linger(self) -> None:
        """Close our side and read on for a little while: a reset would take the answer from the client."""
        unread = self.transport.get_write_buffer_size()
        self._leave(self.limits.write_seconds if unread else _LINGER_SECONDS)
        self._listen()
        with contextlib.suppress(OSError):  # the client has gone this very moment
            self.transport.write_eof()

    def _leave(self, seconds: float) -> None:
        """On the way out: no place is held any more, and this is the last time limit."""
        self.door.release(self)
        self._enter("closing", seconds)

    def cut(self, reason: str) -> None:
        """End the connection without another word."""
        REFUSED.add(reason)
        logger.debug("cut off a connection: %s", reason)
        self._leave(self.limits.write_seconds)
        self.transport.abort()

    # ---- time limits

    def _enter(self, phase: Phase, seconds: float | None) -> None:
        self._phase = phase
        self._deaf = phase in ("refused", "closing")
        if self._parsing:
            self._seconds, self._moved = seconds, True
        else:
            self._deadline.set(seconds)

    def _too_late(self) -> None:
        if self._phase in ("head", "body"):
            phase = self._phase
            self.refuse(Refusal(408, f"{phase}-time", f"the {phase} of the request took too long to arrive"))
        else:
            self.transport.abort()
