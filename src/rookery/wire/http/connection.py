"""One connection of the HTTP server, parsed by httptools.

The connection enforces limits that an ASGI layer would enforce too late: on the bytes and time of headers and bodies,
on the number of connections, and on a reader that stalls. Every request is authenticated by its head before the app
sees it. After an early response the connection is closed so that the client can still read that response. The loss of a
client is a callback, and the head and body of a response are one write.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import httptools
from starlette.types import Scope

from rookery.system import metrics
from rookery.system.clock import thread_cpu_seconds
from rookery.wire.http.auth import ANYBODY, OWNER, Principal, Refusal
from rookery.wire.http.exchange import REQUESTS_TOTAL, Exchange
from rookery.wire.http.head import RequestHead, make_scope
from rookery.wire.http.head_cache import RepeatedHead, make_repeated_head
from rookery.wire.http.pool import ConnectionPool, HttpLimits
from rookery.wire.shares import HeldBytes, decrease_count
from rookery.wire.timing import Deadline

logger = logging.getLogger("rookery.http")
REFUSED_TOTAL = metrics.counter("rookery_http_refused_total", "Requests and connections refused or aborted.", "reason")

_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1_048_576
_MAX_PIPELINED = 32
# This much of a request's body is not counted towards any share: the number of connections limits the total.
_UNCOUNTED_BYTES = 65_536
_LISTEN_METHOD = b"subscriptions/listen"
# Data of others than the owner is parsed at once if there is no more of it and it is HTTP. Other data is parsed in
# slices, each when the pacer says: it may consist of thousands of chunks, headers or frames. The size of a slice is
# adapted to the CPU time that slices take.
_UNPACED_BYTES = 2048
_MIN_SLICE_BYTES = 512
_MAX_SLICE_BYTES = 16_384
_MIN_SLICE_SECONDS = 0.0005
_MAX_SLICE_SECONDS = 0.002

# What the connection waits for. Each phase has a time limit, except `answer`, in which the app works on a response.
# Data that arrives after a refusal (`refused`, while earlier responses are in progress) or while closing (`closing`) is
# ignored.
ConnectionPhase = Literal["idle", "head", "body", "answer", "refused", "closing"]


class HttpServerConnection(asyncio.Protocol):
    """One client connection: parses requests, authenticates them and runs them one after another."""

    transport: asyncio.Transport

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self.limits: HttpLimits = pool.limits
        self.authenticate = pool.authenticate
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._message_started = self._ignores_input = self._asks_upgrade = self._lost = False
        # Whether the app reads too slowly, and whether ignored data waits for its turn. Reading is paused for these
        # reasons, and while there is data in `_unparsed`.
        self._app_is_behind = self._awaits_turn = self._paused = False
        # Data that waits for its turn, and how much of it is parsed in one.
        self._unparsed = b""
        self._slice_bytes = _UNPACED_BYTES
        # Parts of a body in the data that is being parsed.
        self._body_parts: list[bytes] = []
        # The principal of the last request, and the workspace share that this connection is counted towards.
        self._principal: Principal | None = None
        self.share: str | None = None
        # Bytes held by large requests in progress, and by responses that the client has not read.
        self._exchange_bytes: dict[Exchange, HeldBytes] = {}
        self._unsent_bytes: HeldBytes | None = None
        self._last_write_size = 0
        self._stream_principal: str | None = None
        self._bare_bytes = self._body_bytes = self._body_length = self._ignored_bytes = 0
        # The largest size that the head can have so far, and the size of the last data, in which it may have begun.
        self._head_bytes = self._fed_bytes = 0
        self._incoming: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._blocked_exchange: Exchange | None = None
        self._refusal: Refusal | None = None
        self._phase: ConnectionPhase = "head"
        self._deadline = Deadline(self._on_deadline)
        # While data is parsed, time limits are only recorded: most requests arrive whole, and only the last limit
        # counts.
        self._parsing = self._deadline_changed = False
        self._deadline_seconds: float | None = None
        self._feed: Callable[[bytes], None] | None = None
        self._repeated_head: RepeatedHead | None = None
        # Awaited by a task that has finished its exchange and can run the next one.
        self._idle_worker: asyncio.Future[Exchange] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._stall_timer: asyncio.TimerHandle | None = None

    # Callbacks of asyncio, and their helpers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of asyncio.Transport, but has its methods.
        self.transport = cast(asyncio.Transport, transport)
        self._set_phase("head", self.limits.header_seconds)
        self.pool.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.remove(self)
        self.end_stream()
        if self._unsent_bytes is not None:
            self._unsent_bytes.release()
        # The first exchange may run on without its client; it keeps its bytes until it ends.
        for exchange in list(self._exchange_bytes):
            if not self._queue or exchange is not self._queue[0]:
                self._release(exchange)
        self._lost = True
        self._unparsed = b""
        if self._idle_worker is not None:
            self._idle_worker.cancel()
            self._idle_worker = None
        self._deadline_changed = False
        self._deadline.cancel()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._writable.set()
        for exchange in self._queue:
            exchange.on_client_lost()

    def eof_received(self) -> None:
        """Start closing when the client closes its side: unread responses are kept for a limited time only."""
        self._start_closing(self.limits.write_seconds)

    def shut_down(self) -> None:
        """Close the connection after the responses in progress."""
        if not self._queue:
            self.transport.close()
        for exchange in self._queue:
            exchange.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            self._ignored_bytes += len(data)
            if self._ignored_bytes > _LINGER_BYTES:
                self.terminate("body-after-refusal")
            elif self.pool.shares.pacer.is_owner_active:
                self._awaits_turn = True
                self._update_reading()
                self.pool.shares.pacer.start(self._name, self._read_on)
            return
        if self._unparsed:
            self._unparsed += data
            self._update_reading()
        elif (
            self._phase == "idle"
            and self._repeated_head is not None
            and (body := self._repeated_head.match_body(data)) is not None
        ):
            self._handle_repeated(self._repeated_head, body)
        elif self.can_parse_at_once(len(data)):
            self._parse(data)
        else:
            self._unparsed = data
            self._schedule_slice()

    def _read_on(self) -> None:
        self._awaits_turn = False
        self._update_reading()

    def can_parse_at_once(self, size: int) -> bool:
        """Return whether the next data is the owner's, or delays the owner by little."""
        if self._principal is not None and self._principal.name == OWNER.name:
            return True
        if self._feed is not None or self._unparsed:
            return False
        return size <= _UNPACED_BYTES or (self._is_plain(size) and not self.pool.shares.pacer.is_owner_active)

    def _is_plain(self, size: int) -> bool:
        """Return whether the next data is part of a body without chunks."""
        return self._phase == "body" and self._feed is None and size <= self._body_length - self._body_bytes

    def _schedule_slice(self) -> None:
        if self._principal is None:
            # It may be the owner, who waits for nobody.
            self._loop.call_soon(self._parse_slice)
        else:
            self.pool.shares.pacer.start(self._name, self._parse_slice)
        self._update_reading()

    def _parse_slice(self) -> None:
        """Parse the next slice of the data that waits, and the rest of it if that costs little."""
        if not self._unparsed or self._app_is_behind:
            return
        data, self._unparsed = self._unparsed, b""
        position = 0
        if not self._ignores_input:
            plain = self._is_plain(len(data))
            position = len(data) if plain else min(self._slice_bytes, len(data))
            pacer = self.pool.shares.pacer
            began = pacer.clock.monotonic()
            began_cpu = thread_cpu_seconds()
            self._parse(data[:position])
            if not plain:
                self._adapt_slices(thread_cpu_seconds() - began_cpu)
            rest = len(data) - position
            if rest and (self._is_plain(rest) or self.can_parse_at_once(rest)):
                self._parse(data[position:])
                position = len(data)
            pacer.charge(began)
        # An upgrade request is parsed twice, which may have left data.
        self._unparsed += data[position:]
        if self._ignores_input:
            self._unparsed = b""
        if self._unparsed:
            self._schedule_slice()
        else:
            self._recognize_head(data)
            self._update_reading()

    def _adapt_slices(self, seconds: float) -> None:
        """Choose the size of the next slice by the CPU time that one has taken."""
        if seconds > _MAX_SLICE_SECONDS:
            self._slice_bytes = max(self._slice_bytes // 2, _MIN_SLICE_BYTES)
        elif seconds < _MIN_SLICE_SECONDS:
            self._slice_bytes = min(self._slice_bytes * 2, _MAX_SLICE_BYTES)

    def _parse(self, data: bytes) -> None:
        if self._feed is not None:
            self._feed(data)
            return
        # Bytes since the last byte of a body or the last whole request: those of a head, or of chunk sizes and
        # trailers.
        self._bare_bytes += len(data)
        self._head_bytes += len(data)
        self._fed_bytes = len(data)
        self._parsing = True
        try:
            self._parser.feed_data(data)
            self._pass_on_body()
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            if not self._ignores_input:
                self.refuse(Refusal(400, "bad-request", "this is not a valid HTTP request"))
        finally:
            self._parsing = False
            self._body_parts.clear()
            if self._deadline_changed:
                self._deadline_changed = False
                self._deadline.set(self._deadline_seconds)
        if self._bare_bytes > self.limits.header_bytes and not self._ignores_input:
            self.refuse(self.limits.refuse_head())
        else:
            self._recognize_head(data)

    def _recognize_head(self, data: bytes) -> None:
        """Recognise the head of the request that was parsed, if `data` is the whole request."""
        if self._phase == "answer" and self._incoming is not None and len(self._queue) == 1:
            self._repeated_head = make_repeated_head(data, self._incoming.scope, self._head_bytes)

    def _handle_repeated(self, repeated: RepeatedHead, body: bytes) -> None:
        """Handle a request whose head repeats the previous one, so that only its body is new."""
        if len(body) > self.limits.body_bytes:
            self.refuse(self.limits.refuse_body())
            return
        principal = self.authenticate("POST", repeated.path, repeated.head)
        if not isinstance(principal, Refusal) and principal is not self._principal:
            principal = self._attribute(principal) or principal
        if isinstance(principal, Refusal):
            self.refuse(principal)
            return
        state = self._state(principal)
        self._incoming = exchange = Exchange(
            self, repeated.make_scope(state), body, keep_alive=True, expects_continue=False
        )
        self._queue.append(exchange)
        self._set_phase("answer", None)
        if self.share is None:
            self.pool.shares.pacer.note_owner_request()
            self._start_repeated(repeated, state, body, exchange)
        else:
            self.pool.shares.pacer.start(self.share, partial(self._start_repeated, repeated, state, body, exchange))

    def _start_repeated(self, repeated: RepeatedHead, state: dict[str, Any], body: bytes, exchange: Exchange) -> None:
        """Start a request on the fast path, or as a normal exchange if the fast path does not take it."""
        fast_path = repeated.get_fast_path(self.pool.app, state) if not exchange.lost else None
        if fast_path is None or not fast_path.try_serve(body, exchange):
            self.start(exchange)

    def _state(self, principal: Principal) -> dict[str, Any]:
        """Return the `state` of a request's scope, which identifies the caller."""
        return {"principal": principal}

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Parse an upgrade request again without its upgrade headers, as the last request of the connection.

        The app may take over the connection, or not.
        """
        if self._ignores_input:
            return
        request_line = b"%b %b HTTP/%b\r\n" % (
            self._parser.get_method(),
            self._url,
            self._parser.get_http_version().encode(),
        )
        headers = [header for header in self._headers if header[0] not in (b"upgrade", b"connection")]
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        self._parser = httptools.HttpRequestParser(self)
        self._bare_bytes = 0
        self._asks_upgrade = True
        self.data_received(b"".join((request_line, *lines, b"\r\n", rest)))

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._message_started = True
        self._head_bytes = self._fed_bytes
        self._url = b""
        self._headers = []
        self._body_bytes = self._body_length = 0
        self._incoming = None
        if self._phase == "idle":
            self._set_phase("head", self.limits.header_seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is None:  # otherwise a trailer, which was not authenticated
            self._headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        if self._ignores_input:
            return
        method = self._parser.get_method().decode("ascii")
        if self._parser.should_upgrade() and method != "CONNECT":
            return  # parsed again by _read_without_upgrade
        self._bare_bytes = 0
        head = RequestHead(self._headers)
        scope = self._check_head(method, head)
        if isinstance(scope, Refusal):
            self.refuse(scope)
            return
        principal = scope["state"]["principal"]
        if principal is not self._principal and (refusal := self._attribute(principal)) is not None:
            self.refuse(refusal)
            return
        if self._asks_upgrade and (refusal := self.pool.shares.refuse_stream(principal.name)) is not None:
            self.refuse(refusal)
            return
        self._set_phase("body", self.limits.body_seconds)
        expects_continue = (
            b"expect" in head.names
            and scope["http_version"] == "1.1"
            and b"100-continue" in map(bytes.lower, head.all(b"expect"))
        )
        keep_alive = self._parser.should_keep_alive()
        self._incoming = exchange = Exchange(self, scope, keep_alive=keep_alive, expects_continue=expects_continue)
        if self._asks_upgrade:
            scope["extensions"]["rookery.take_over"] = exchange.take_over
        self._queue.append(exchange)
        # A body with a Content-Length is counted as soon as its head is complete, a chunked one as its chunks arrive.
        size = self._body_length if self._body_length > _UNCOUNTED_BYTES else 0
        if len(self._queue) > 1:
            size = self._body_length + self._head_bytes
        if size and (refusal := self.hold(exchange, size)) is not None:
            self.refuse(refusal)
        elif len(self._queue) == 1:
            self._start_in_turn(exchange)
        elif len(self._queue) > _MAX_PIPELINED:
            self.terminate("pipeline")

    def _attribute(self, principal: Principal) -> Refusal | None:
        """Count this connection towards a new principal. A request for a public route changes nothing."""
        if principal is ANYBODY:
            return None
        self._principal = principal
        return self.pool.attribute(self, principal)

    def _check_head(self, method: str, head: RequestHead) -> Refusal | Scope:
        """Check a request by its head alone. Return a refusal, or the scope of the request."""
        # The size of a head is less than twice its bytes on the wire, so it is seldom computed exactly.
        if 2 * self._head_bytes > self.limits.header_bytes:
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in head)
            if size > self.limits.header_bytes:
                return self.limits.refuse_head()
        if not self._url.startswith(b"/") or method == "CONNECT":
            return Refusal(400, "bad-request", "the request target must be a path that begins with /")
        raw_path, _, query = self._url.partition(b"#")[0].partition(b"?")
        path = raw_path.decode("latin-1")
        principal = self.authenticate(method, path, head)
        if isinstance(principal, Refusal):
            return principal
        for length in head.all(b"content-length"):
            if length.isdigit():
                self._body_length = int(length)
                if self._body_length > self.limits.body_bytes:
                    return self.limits.refuse_body()
        return make_scope(method, self._parser.get_http_version(), path, raw_path, query, head, self._state(principal))

    def on_body(self, body: bytes) -> None:
        # A body may consist of very many chunks.
        self._body_parts.append(body)

    def _pass_on_body(self) -> None:
        """Pass the parts of a body to the exchange."""
        if not self._body_parts:
            return
        body = self._body_parts[0] if len(self._body_parts) == 1 else b"".join(self._body_parts)
        self._body_parts.clear()
        if self._ignores_input or self._incoming is None:
            return
        self._bare_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self.refuse(self.limits.refuse_body())
        elif self._body_bytes > max(_UNCOUNTED_BYTES, self._body_length) and (
            refusal := self.hold(self._incoming, self._body_bytes)
        ):
            self.refuse(refusal)
        else:
            self._incoming.feed(body)

    def on_message_complete(self) -> None:
        self._pass_on_body()
        if self._ignores_input or self._incoming is None:
            return
        self._message_started = False
        self._bare_bytes = 0
        self._incoming.on_request_complete()
        self._set_phase("answer", None)

    # Shares

    @property
    def is_idle(self) -> bool:
        """Whether the connection waits for a request."""
        return self._phase == "idle"

    @property
    def is_streaming(self) -> bool:
        """Whether the connection carries an endless response, or a protocol other than HTTP."""
        return self._stream_principal is not None

    @property
    def _name(self) -> str:
        return (self._principal or ANYBODY).name

    def begin_stream(self, exchange: Exchange) -> Refusal | None:
        """Count a response that is sent in parts as a stream, unless it belongs to a call.

        Return a refusal if the token has too many streams.
        """
        if (
            exchange.scope["method"] != "GET"
            and RequestHead.from_headers(exchange.scope["headers"]).first(b"mcp-method") != _LISTEN_METHOD
        ):
            return None
        if (refusal := self.pool.shares.refuse_stream(self._name)) is None:
            self._count_stream()
        else:
            REFUSED_TOTAL.add(refusal.code)
        return refusal

    def end_stream(self) -> None:
        """Stop counting this connection as a stream."""
        if self._stream_principal is not None:
            decrease_count(self.pool.shares.streams, self._stream_principal)
            self._stream_principal = None

    def _count_stream(self) -> None:
        self.end_stream()
        self._stream_principal = self._name
        self.pool.shares.streams[self._stream_principal] += 1

    async def wait_for_turn(self) -> None:
        """Wait until a message of an upgraded connection may be handled: for a workspace token, when the pacer says."""
        if self.share is None:
            self.pool.shares.pacer.note_owner_request()
        else:
            await self.pool.shares.pacer.wait_for_turn(self.share)

    def hold(self, exchange: Exchange, size: int) -> Refusal | None:
        """Count the bytes that an exchange holds until it ends. Return a refusal if they exceed the share."""
        holding = self._exchange_bytes.get(exchange)
        if holding is None:
            holding = self._exchange_bytes[exchange] = HeldBytes(self.pool.shares.request_bytes, self._name)
        if (refusal := holding.resize(size)) is not None:
            REFUSED_TOTAL.add(refusal.code)
        return refusal

    def _release(self, exchange: Exchange) -> None:
        """Give back the bytes that an exchange held."""
        if (holding := self._exchange_bytes.pop(exchange, None)) is not None:
            holding.release()

    def _hold_unsent(self) -> None:
        """Count the response bytes that the client has not read. Close the connection if they exceed the share."""
        if self._unsent_bytes is None:
            self._unsent_bytes = HeldBytes(self.pool.shares.request_bytes, self._name)
        # A transport may keep all the data of a write that is only partly sent.
        buffered = self.transport.get_write_buffer_size()
        if (refusal := self._unsent_bytes.resize(max(buffered, self._last_write_size) if buffered else 0)) is not None:
            self.terminate(refusal.code)

    # Called by exchanges

    def write(self, data: bytes) -> None:
        """Write data to the client."""
        self._last_write_size = len(data)
        self.transport.write(data)
        if self._stall_timer is not None:
            self._hold_unsent()

    async def drain(self) -> None:
        """Wait until the client reads fast enough to write more."""
        await self._writable.wait()

    def set_reading(self, enabled: bool) -> None:
        """Resume or pause reading from the client."""
        if self.transport.is_closing():
            return
        was_behind, self._app_is_behind = self._app_is_behind, not enabled
        self._update_reading()
        if self._phase == "body":
            # The time limit of the body does not run while reading is paused.
            self._set_phase("body", self.limits.body_seconds if enabled else None)
        if was_behind and enabled and self._unparsed:
            self._schedule_slice()

    def _resume_reading(self) -> None:
        if self._app_is_behind:
            self.set_reading(True)

    def _update_reading(self) -> None:
        """Pause or resume reading as necessary."""
        paused = self._app_is_behind or self._awaits_turn or bool(self._unparsed)
        if paused is self._paused or self.transport.is_closing():
            return
        self._paused = paused
        if paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def take_over(self, feed: Callable[[bytes], None]) -> None:
        """Pass all further data to `feed`: the connection no longer carries HTTP."""
        self._feed = feed
        self._count_stream()

    def abort(self) -> None:
        self.transport.abort()

    def on_exchange_done(self, exchange: Exchange) -> None:
        """Continue after an exchange has ended."""
        if self._exchange_bytes:
            self._release(exchange)
        if self.transport.is_closing():
            return
        if not exchange.request_complete or exchange.taken_over:
            # The response was sent before the whole request arrived: the rest of the request is ignored.
            self._queue.popleft()
            self._linger()
        elif not self._writable.is_set():
            self._blocked_exchange = exchange  # the next request starts when the client has read this response
        else:
            self._queue.popleft()
            self._continue_after(exchange)

    def _continue_after(self, exchange: Exchange) -> None:
        if not exchange.keep_alive and self._phase == "refused":
            self._linger()
        elif not exchange.keep_alive or self.pool.is_closing:
            self._start_closing(self.limits.write_seconds)
            self.transport.close()
        elif self._queue:
            self._resume_reading()
            self._start_in_turn(self._queue[0])
        elif self._refusal is not None:
            self._send_refusal(self._refusal)
        else:
            self._resume_reading()
            if self._message_started:
                self._set_phase("head", self.limits.header_seconds)
            else:
                self._set_phase("idle", self.limits.keep_alive_seconds)

    def _start_in_turn(self, exchange: Exchange) -> None:
        """Start an exchange: at once, or for a workspace token when the pacer gives it a turn."""
        if self.share is None:
            self.pool.shares.pacer.note_owner_request()
            self.start(exchange)
        else:
            self.pool.shares.pacer.start(self.share, partial(self.start, exchange))

    def start(self, exchange: Exchange) -> None:
        """Run an exchange in the waiting task of this connection, or in a new one."""
        if self._idle_worker is None:
            self.pool.tasks.start(self._serve(exchange), exchange.scope["path"])
        else:
            free, self._idle_worker = self._idle_worker, None
            free.set_result(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        """Run exchanges one after another in the same task: a new task for each would often cost more than the work."""
        while True:
            try:
                if self.share is None:
                    await exchange.run(self.pool.app)
                else:
                    await self.pool.shares.pacer.run(self.share, exchange.run(self.pool.app))
            finally:
                if self._exchange_bytes:
                    self._release(exchange)
            if (
                self._idle_worker is not None
                or self._lost
                or cast("asyncio.Task[None]", asyncio.current_task()).cancelling()
            ):
                return
            self._idle_worker = self._loop.create_future()
            exchange = await self._idle_worker

    # Slow readers

    def pause_writing(self) -> None:
        self._writable.clear()
        self._stall_timer = self._loop.call_later(self.limits.write_seconds, self.terminate, "write-time")
        self._hold_unsent()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
            self._hold_unsent()
        if self._blocked_exchange is not None:
            exchange, self._blocked_exchange = self._blocked_exchange, None
            self.on_exchange_done(exchange)

    # Refusals

    def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, after the responses to earlier requests, and close. The app does not see the request."""
        REFUSED_TOTAL.add(refusal.code)
        logger.debug("refused with %d %s", refusal.status, refusal.code)
        if self._incoming is not None and not self._incoming.request_complete:
            self._queue.pop().on_client_lost()
            if self._incoming.started:
                self.terminate(refusal.code)
                return
        if self._queue:
            self._refusal = refusal
            self._set_phase("refused", None)
        else:
            self._send_refusal(refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        REQUESTS_TOTAL.add(str(refusal.status))
        self.transport.write(refusal.encode())
        self._linger()

    def _linger(self) -> None:
        """Close our side and read on for a short time: a reset would discard the response at the client."""
        unsent = self.transport.get_write_buffer_size()
        self._start_closing(self.limits.write_seconds if unsent else _LINGER_SECONDS)
        self._resume_reading()
        with contextlib.suppress(OSError):  # the client has just disconnected
            self.transport.write_eof()

    def _start_closing(self, seconds: float) -> None:
        """Start closing: give up the slot in the pool, and set the last time limit."""
        self.pool.mark_closing(self)
        self._set_phase("closing", seconds)

    def terminate(self, reason: str) -> None:
        """Abort the connection without a response."""
        REFUSED_TOTAL.add(reason)
        logger.debug("aborted a connection: %s", reason)
        self._start_closing(self.limits.write_seconds)
        self.transport.abort()

    # Time limits

    def _set_phase(self, phase: ConnectionPhase, seconds: float | None) -> None:
        self._phase = phase
        self._ignores_input = phase in ("refused", "closing")
        if self._parsing:
            self._deadline_seconds = seconds
            self._deadline_changed = True
        else:
            self._deadline.set(seconds)

    def _on_deadline(self) -> None:
        if self._phase in ("head", "body"):
            phase = self._phase
            self.refuse(Refusal(408, f"{phase}-time", f"the {phase} of the request took too long to arrive"))
        else:
            self.transport.abort()
