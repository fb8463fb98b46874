"""One connection to an HTTP server: one request at a time, and its answer, parsed by httptools."""

import asyncio
import re
from collections.abc import Callable
from typing import cast

import httptools

from rookery.wire.http_answer import Answer, HttpBroken

_HEAD_BYTES = 65_536
_LINGER_SECONDS = 1.0
_TIMEOUT = re.compile(rb"\btimeout\s*=\s*(\d{1,6})", re.IGNORECASE)
_PLAIN = (b"", b"identity")
_WITHOUT_BODY = (204, 304)


class HttpConnection(asyncio.Protocol):
    """`freed` is called whenever it can take another request, `lost` when it is gone."""

    transport: asyncio.Transport

    def __init__(self, freed: Callable[["HttpConnection"], None], lost: Callable[["HttpConnection"], None]) -> None:
        # How long the server keeps it without a request, where it says so.
        self.kept_seconds: float | None = None
        self.idle_until = 0.0
        self._loop = asyncio.get_running_loop()
        self._freed = freed
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._head: asyncio.Future[None] | None = None
        self._headed = self._reusable = self._until_end = False
        self._failure: Exception | None = None
        self._head_bytes = 0
        # Since the last byte of a body: those of heads, or of chunk sizes and trailers.
        self._bare_bytes = 0
        self._listening = True
        self._lingering: asyncio.TimerHandle | None = None

    @property
    def heard(self) -> bool:
        """Whether any of the answer has come."""
        return self._headed or self._bare_bytes > 0

    async def ask(self, request: bytes) -> Answer:
        """The answer, as soon as its head is there. Whoever gives up waiting ends the connection."""
        if self.transport.is_closing():
            raise HttpBroken("the server closed the connection at once")
        self._answer = answer = Answer(self)
        self._head = head = self._loop.create_future()
        self._headed = self._reusable = self._until_end = False
        self._head_bytes = self._bare_bytes = 0
        self.transport.write(request)
        try:
            await head
        except BaseException:
            self.abort()
            raise
        return answer

    # ---- what an answer asks for

    def listen(self, wanted: bool) -> None:
        if self._listening is wanted or self.transport.is_closing():
            return
        self._listening = wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def linger(self) -> None:
        self._lingering = self._loop.call_later(_LINGER_SECONDS, self.abort)
        self.listen(True)

    def abort(self) -> None:
        self._until_end = False
        self.transport.abort()

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # Said without being asked: what would come next might be taken for an answer.
            self.abort()
            return
        self._bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reusable = False
            if self._failure is None:
                self._failure = HttpBroken(f"what came is not HTTP as it was asked for: {error}")
        if answer.whole:
            self._finish(answer)
            return
        if self._failure is None and self._bare_bytes > _HEAD_BYTES:
            self._failure = _too_large()
        if self._failure is not None:
            self._fail(self._failure)
        else:
            answer.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        answer = self._answer
        if answer is not None and exc is None and self._headed and self._until_end:
            self._answer = None
            answer.end()
        elif answer is not None:
            self._fail(exc or HttpBroken("the server closed the connection before the answer was whole"))
        self._stop_lingering()
        self._lost(self)

    def _finish(self, answer: Answer) -> None:
        self._answer = self._failure = None
        self._stop_lingering()
        # Nobody may have listened to all of it yet.
        self.listen(True)
        answer.wake()
        if self._reusable and not self.transport.get_write_buffer_size():
            self._freed(self)
        else:
            self.transport.close()

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
        if answer is not None:
            answer.end(error)
        self.abort()

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    # ---- the parser's callbacks

    def on_message_begin(self) -> None:
        if self._headed:
            self._reusable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed and self._answer is not None:  # else it is a trailer
            self._head_bytes += len(name) + len(value)
            self._answer.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        answer = self._answer
        if self._headed or answer is None:
            return
        status = self._parser.get_status_code()
        if status < 200:
            answer.headers.clear()  # the answer itself is still to come
            return
        self._headed = True
        self._bare_bytes = 0
        self._reusable = self._parser.should_keep_alive()
        answer.status = status
        headers = answer.headers
        if self._head_bytes > _HEAD_BYTES:
            self._failure = _too_large()
            return
        for name in (b"content-encoding", b"transfer-encoding"):
            given = headers.get(name, b"").strip().lower()
            if given not in _PLAIN and not (given == b"chunked" and name == b"transfer-encoding"):
                told = given[:100].decode("latin-1")
                self._failure = ValueError(f"the answer is encoded as {told}, though it was asked for as it is")
                return
        if not self._reusable:
            framed = b"content-length" in headers or b"transfer-encoding" in headers
            self._until_end = not framed and status not in _WITHOUT_BODY
        elif b"keep-alive" in headers and (found := _TIMEOUT.search(headers[b"keep-alive"])):
            self.kept_seconds = float(found[1])
        if self._head is not None and not self._head.done():
            self._head.set_result(None)

    def on_body(self, body: bytes) -> None:
        if self._answer is not None and not self._answer.whole and self._failure is None:
            self._bare_bytes = 0
            self._answer.take(body)

    def on_message_complete(self) -> None:
        if self._headed and self._answer is not None and self._failure is None:
            self._answer.whole = True


def _too_large() -> ValueError:
    return ValueError(f"the head of the answer is larger than {_HEAD_BYTES} bytes")
