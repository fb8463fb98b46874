"""One HTTP request as the MCP transports see it, and a response that becomes a stream if needed."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.session import KEEP_ALIVE_COMMENT, EventStream, Session, encode_event
from rookery.wire.shares import Shares, decrease_count

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_JSON_HEADER = (b"content-type", b"application/json")
JSON_HEADERS = (_JSON_HEADER,)
KEEP_ALIVE_SECONDS = 15.0
_RESUME_SECONDS = 60.0
_PRIMED_REVISIONS = frozenset({"2025-11-25"})


class HttpRequest:
    """An HTTP request and the means to respond to it."""

    __slots__ = ("_lost_callbacks", "_receive", "_send", "headers", "lost", "owner", "respond", "whole_body")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = RequestHead.from_headers(scope["headers"])
        # The principal whose sessions and sealed states the request may use.
        self.owner: str = scope["state"]["principal"].name
        self.lost = False
        self._receive = receive
        self._send = send
        extensions = scope["extensions"]
        self.respond: Callable[[int, tuple[tuple[bytes, bytes], ...], bytes], None] = extensions["rookery.answer"]
        self.whole_body: Callable[[], bytes | None] = extensions["rookery.whole_body"]
        self._lost_callbacks: list[Callable[[], object]] = []
        extensions["rookery.on_lost"](self._on_lost)

    def header(self, name: bytes) -> str | None:
        """Return the first value of a header as text, or None."""
        value = self.headers.first(name)
        return value.decode("latin-1").strip() if value is not None else None

    def accepts(self, kind: bytes) -> bool:
        """Return whether the client accepts this media type."""
        values = self.headers.all(b"accept")
        accepted = {part.partition(b";")[0].strip().lower() for value in values for part in value.split(b",")}
        return not values or bool(accepted & {kind, kind.partition(b"/")[0] + b"/*", b"*/*"})

    def is_lost(self) -> bool:
        return self.lost

    def add_lost_callback(self, callback: Callable[[], object]) -> None:
        """Add a callback for the loss of the client. Call it at once if the client is lost already."""
        self._lost_callbacks.append(callback)
        if self.lost:
            callback()

    def clear_callbacks(self) -> None:
        """Remove all callbacks, which breaks reference cycles."""
        self._lost_callbacks.clear()

    def _on_lost(self) -> None:
        self.lost = True
        for callback in self._lost_callbacks:
            callback()

    async def body(self) -> bytes:
        """Return the whole body."""
        message = await self._receive()
        if not message.get("more_body"):
            return message.get("body", b"")
        parts = [message["body"]]
        while message.get("more_body"):
            message = await self._receive()
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def json(self, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
        """Send a JSON response."""
        self.respond(status, (_JSON_HEADER, *more), body)

    async def empty(self, status: int, *more: tuple[bytes, bytes]) -> None:
        """Send a response without a body."""
        await self._send({"type": "http.response.start", "status": status, "headers": list(more)})
        await self._send({"type": "http.response.body"})

    async def refuse(self, status: int, error: WireError) -> None:
        """Send an error without an id."""
        await self.json(status, error.encode(None))

    async def start_stream(self, first: bytes = b"") -> None:
        """Send the head of an event stream, and its first data."""
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
        await self._send({"type": "http.response.body", "body": first, "more_body": True})

    async def send_stream(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": data})

    async def send_keep_alive(self) -> None:
        """Send a keep-alive comment on the stream."""
        await self.send_stream(KEEP_ALIVE_COMMENT)

    async def follow(self, stream: EventStream, position: int) -> None:
        """Send the events of a stream until it ends, and a keep-alive comment when there are none."""
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    events, position = await stream.wait_after(position)
            except TimeoutError:
                await self.send_keep_alive()
                continue
            if not events:
                return
            await self.send_stream(b"".join(events))


class CallResponse:
    """The response to a call. It becomes an event stream if the call sends a message before its result."""

    __slots__ = ("_http", "_session", "_shares", "_stream", "_stream_started")

    def __init__(self, http: HttpRequest, session: Session | None, shares: Shares) -> None:
        self._http = http
        self._shares = shares
        self._session = session
        self._stream_started = False
        self._stream: EventStream | None = None

    async def send(self, message: bytes) -> None:
        """Send a message before the result. It is dropped if the client does not accept event streams."""
        if self._http.accepts(b"text/event-stream"):
            await self._begin()
            await self._http.send_stream(self._event(message))

    async def ask(self, message: bytes) -> None:
        """Send a request to the client. Raise WireError if it does not accept event streams."""
        if not self._http.accepts(b"text/event-stream"):
            raise WireError(
                INVALID_REQUEST,
                "this call asks the client a question; the Accept header must include text/event-stream",
            )
        await self.send(message)

    async def _begin(self) -> None:
        if self._stream_started:
            return
        self._stream_started = True
        first = b""
        if self._session is not None:  # only a stream of a session can be resumed
            self._stream = self._session.streams.new()
            first = self._stream.prime() if self._session.client.revision in _PRIMED_REVISIONS else b""
        await self._http.start_stream(first)

    def _event(self, message: bytes) -> bytes:
        return self._stream.push(message) if self._stream is not None else encode_event(message)

    async def finish(self, message: bytes, status: int) -> None:
        """Send the result: as a response with this status, or as the last event of the stream."""
        if not self._stream_started:
            self._http.respond(status, JSON_HEADERS, message)
            return
        await self._end(self._event(message))

    async def finish_all(self, messages: list[bytes]) -> None:
        """Send the results of a batch."""
        if not self._stream_started:
            await self._http.json(200, b"[" + b",".join(messages) + b"]")
            return
        await self._end(b"".join(map(self._event, messages)))

    async def _end(self, event: bytes) -> None:
        if self._stream is not None:
            self._stream.end()
        await self._http.end_stream(event)

    def on_client_lost(self, task: asyncio.Task[object]) -> None:
        """Cancel the call of a client that is gone, unless the client can resume the stream."""
        name = self._http.owner
        if self._stream is None or not self._shares.can_detach(name):
            task.cancel()
            return
        self._shares.detached[name] += 1
        task.add_done_callback(lambda _: decrease_count(self._shares.detached, name))
        asyncio.get_running_loop().call_later(_RESUME_SECONDS, task.cancel)
