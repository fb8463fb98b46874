"""One connection to an HTTP server, parsed by httptools, and the response that is read from it.

A connection carries one request at a time.
"""

import asyncio
import re
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, cast

import httptools

_BODY_BYTES = 64 * 2**20
# Reading is paused when this much of a body is unread.
_UNREAD_BYTES = 262_144
# The connection is closed when more than this remains of a response that nobody wants.
_DISCARDED_BYTES = 65_536

_HEAD_BYTES = 65_536
_LINGER_SECONDS = 1.0
_TIMEOUT = re.compile(rb"\btimeout\s*=\s*(\d{1,6})", re.IGNORECASE)
_IDENTITY_ENCODINGS = (b"", b"identity")
_WITHOUT_BODY = (204, 304)


class HttpBroken(ConnectionError):
    """The connection ended before the response did, or the received data is not HTTP."""


class ResponseSource(Protocol):
    """The interface of the connection that a response is read from."""

    def set_reading(self, enabled: bool) -> None: ...

    def linger(self) -> None: ...

    def abort(self) -> None: ...


class HttpResponse:
    """A response whose head has arrived. The body arrives as it is read.

    Leaving a `with` block closes the response, unless `discard_rest` was called.
    """

    __slots__ = (
        "_body",
        "_buffer_limit",
        "_discarding",
        "_source",
        "_waiter",
        "complete",
        "error",
        "headers",
        "on_change",
        "status",
        "url",
    )

    def __init__(self, source: ResponseSource) -> None:
        self.status = 0
        # Where it comes from, if redirects were followed.
        self.url = ""
        # Names are in lower case.
        self.headers: dict[bytes, bytes] = {}
        # Whether nothing more will arrive: the response is complete, or broken off by `error`.
        self.complete = False
        self.error: Exception | None = None
        # Called instead of waking a reader, whenever something has arrived or the response has ended.
        self.on_change: Callable[[], None] | None = None
        self._source = source
        # The unread part of the body: mostly one piece, which is not copied.
        self._body: bytes | bytearray = b""
        self._buffer_limit = _UNREAD_BYTES
        self._discarding = False
        self._waiter: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def header(self, name: bytes) -> str | None:
        """Return the value of a header as text, or None if there is none."""
        value = self.headers.get(name)
        return None if value is None else value.strip().decode("utf-8", "replace")

    @property
    def media_type(self) -> str:
        """The media type without its parameters."""
        return (self.header(b"content-type") or "").partition(";")[0].rstrip().lower()

    async def read(self) -> bytes:
        """Return the whole body. Raise ValueError if it is larger than 64 MiB, OSError if it breaks off."""
        self._buffer_limit = _BODY_BYTES
        while not self.complete and len(self._body) <= _BODY_BYTES:
            await self._wait_for_data()
        if len(self._body) > _BODY_BYTES:
            raise ValueError(f"the response is larger than {_BODY_BYTES} bytes")
        if self.error is not None:
            raise self.error
        return bytes(self._body)

    async def next(self) -> bytes:
        """Return the next piece of the body, or b"" at its end. Raise OSError if it breaks off."""
        while not self._body:
            if self.error is not None:
                raise self.error
            if self.complete:
                return b""
            await self._wait_for_data()
        return self.take()

    @property
    def unread_bytes(self) -> int:
        """How many bytes of the body have arrived and were not read."""
        return len(self._body)

    def take(self) -> bytes:
        """Return what has arrived of the body since the last piece was read, without waiting."""
        piece, self._body = bytes(self._body), b""
        return piece

    async def _wait_for_data(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        self._source.set_reading(True)
        await self._waiter

    def close(self) -> None:
        """Discard the rest of the response. The connection is closed, as nothing else stops the server."""
        if not self.complete and not self._discarding:
            self._source.abort()

    def discard_rest(self) -> None:
        """Discard a rest that should be short. The connection is kept if the response ends soon.

        Otherwise the connection is closed.
        """
        if not self.complete and not self._discarding:
            self._discarding = True
            self._body = b""
            self._buffer_limit = _DISCARDED_BYTES
            self._source.linger()

    # Called by the connection

    def feed(self, data: bytes) -> None:
        """Add received data to the body."""
        if self._discarding:
            self._buffer_limit -= len(data)
            if self._buffer_limit < 0:
                self._source.abort()
            return
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        if len(self._body) > self._buffer_limit:
            self._source.set_reading(False)

    def end(self, error: Exception | None = None) -> None:
        """Record the end of the response, and the error that broke it off."""
        self.complete = True
        self.error = error
        self.wake()

    def wake(self) -> None:
        """Wake the reader that waits for data."""
        if self.on_change is not None:
            self.on_change()
        elif self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None


class HttpClientConnection(asyncio.Protocol):
    """A connection. `on_free` is called when it can take another request, `on_lost` when it is closed."""

    transport: asyncio.Transport

    def __init__(
        self, on_free: Callable[["HttpClientConnection"], None], on_lost: Callable[["HttpClientConnection"], None]
    ) -> None:
        # How long the server keeps the connection without a request, if it says so.
        self.server_idle_seconds: float | None = None
        self.idle_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_free = on_free
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._response: HttpResponse | None = None
        self._head_future: asyncio.Future[None] | None = None
        self._head_complete = self._reusable = self._ends_with_connection = False
        self._failure: Exception | None = None
        self._head_bytes = 0
        # Bytes since the last byte of a body: those of heads, or of chunk sizes and trailers.
        self._bare_bytes = 0
        self._reading = True
        self._linger_timer: asyncio.TimerHandle | None = None

    @property
    def has_received(self) -> bool:
        """Whether any part of the response has arrived."""
        return self._head_complete or self._bare_bytes > 0

    async def send(self, request: bytes) -> HttpResponse:
        """Send a request and return the response once its head has arrived. Cancellation closes the connection."""
        if self.transport.is_closing():
            raise HttpBroken("the server closed the connection immediately")
        response = self.post(request, None)
        self._head_future = head = self._loop.create_future()
        try:
            await head
        except BaseException:
            self.abort()
            raise
        return response

    def post(self, request: bytes, on_change: Callable[[], None] | None) -> HttpResponse:
        """Send a request now, and return its response, of which nothing has arrived yet.

        `on_change` is called whenever something arrives. The status is 0 until the head is complete.
        """
        self._response = response = HttpResponse(self)
        response.on_change = on_change
        self._head_future = None
        self._head_complete = self._reusable = self._ends_with_connection = False
        self._head_bytes = self._bare_bytes = 0
        self.transport.write(request)
        return response

    # Called by the response

    def set_reading(self, enabled: bool) -> None:
        """Resume or pause reading."""
        if self._reading is enabled or self.transport.is_closing():
            return
        self._reading = enabled
        if enabled:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def linger(self) -> None:
        """Read the rest of the response for a short time, then close the connection."""
        self._linger_timer = self._loop.call_later(_LINGER_SECONDS, self.abort)
        self.set_reading(True)

    def abort(self) -> None:
        """Close the connection at once."""
        self._ends_with_connection = False
        self.transport.abort()

    # Callbacks of asyncio, and their helpers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of asyncio.Transport, but has its methods.
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            # Data without a request: what follows could be mistaken for the response to the next one.
            self.abort()
            return
        self._bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reusable = False
            if self._failure is None:
                self._failure = HttpBroken(f"the response is not valid HTTP: {error}")
        if response.complete:
            self._finish(response)
            return
        if self._failure is None and self._bare_bytes > _HEAD_BYTES:
            self._failure = _make_head_too_large_error()
        if self._failure is not None:
            self._fail(self._failure)
        else:
            response.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        response = self._response
        if response is not None and exc is None and self._head_complete and self._ends_with_connection:
            self._response = None
            response.end()
        elif response is not None:
            self._fail(exc or HttpBroken("the server closed the connection before the response was complete"))
        self._stop_lingering()
        self._on_lost(self)

    def _finish(self, response: HttpResponse) -> None:
        self._response = self._failure = None
        self._stop_lingering()
        # Reading may be paused if the body was not read completely.
        self.set_reading(True)
        response.wake()
        if self._reusable and not self.transport.get_write_buffer_size():
            self._on_free(self)
        else:
            self.transport.close()

    def _fail(self, error: Exception) -> None:
        response, self._response = self._response, None
        if self._head_future is not None and not self._head_future.done():
            self._head_future.set_exception(error)
        if response is not None:
            response.end(error)
        self.abort()

    def _stop_lingering(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._head_complete:
            self._reusable = False  # a second response to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete and self._response is not None:  # otherwise a trailer
            self._head_bytes += len(name) + len(value)
            self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        response = self._response
        if self._head_complete or response is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            response.headers.clear()  # an interim response; the final one follows
            return
        self._head_complete = True
        self._bare_bytes = 0
        self._reusable = self._parser.should_keep_alive()
        response.status = status
        headers = response.headers
        if self._head_bytes > _HEAD_BYTES:
            self._failure = _make_head_too_large_error()
            return
        for name in (b"content-encoding", b"transfer-encoding"):
            encoding = headers.get(name, b"").strip().lower()
            if encoding not in _IDENTITY_ENCODINGS and not (encoding == b"chunked" and name == b"transfer-encoding"):
                label = encoding[:100].decode("latin-1")
                self._failure = ValueError(
                    f"the response is encoded as {label}, although it was requested without encoding"
                )
                return
        if not self._reusable:
            framed = b"content-length" in headers or b"transfer-encoding" in headers
            self._ends_with_connection = not framed and status not in _WITHOUT_BODY
        elif b"keep-alive" in headers and (timeout := _TIMEOUT.search(headers[b"keep-alive"])):
            self.server_idle_seconds = float(timeout[1])
        if self._head_future is not None and not self._head_future.done():
            self._head_future.set_result(None)

    def on_body(self, body: bytes) -> None:
        if self._response is not None and not self._response.complete and self._failure is None:
            self._bare_bytes = 0
            self._response.feed(body)

    def on_message_complete(self) -> None:
        if self._head_complete and self._response is not None and self._failure is None:
            self._response.complete = True


def _make_head_too_large_error() -> ValueError:
    return ValueError(f"the head of the response is larger than {_HEAD_BYTES} bytes")
