"""One HTTP request as the MCP transports see it, and the answer that becomes a stream only when it must."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from rookery.wire.head import Head
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.session import Session
from rookery.wire.streams import STILL_HERE, Stream, event

_SSE = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_JSON = (b"content-type", b"application/json")
ONLY_JSON = (_JSON,)
KEEP_ALIVE_SECONDS = 15.0
_RESUME_SECONDS = 60.0
_WITH_PRIMING = frozenset({"2025-11-25"})


class Http:
    """A request and the means to answer it."""

    __slots__ = ("_lost_calls", "_receive", "_send", "answer", "headers", "lost", "owner", "whole_body")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = Head.of(scope["headers"])
        # Whose sessions and states these are.
        self.owner: str = scope["state"]["principal"].name
        self.lost = False
        self._receive = receive
        self._send = send
        extensions = scope["extensions"]
        self.answer: Callable[[int, tuple[tuple[bytes, bytes], ...], bytes], None] = extensions["rookery.answer"]
        self.whole_body: Callable[[], bytes | None] = extensions["rookery.whole_body"]
        self._lost_calls: list[Callable[[], object]] = []
        extensions["rookery.on_lost"](self._on_lost)

    def header(self, name: bytes) -> str | None:
        found = self.headers.first(name)
        return found.decode("latin-1").strip() if found is not None else None

    def accepts(self, kind: bytes) -> bool:
        given = self.headers.all(b"accept")
        offered = {part.partition(b";")[0].strip().lower() for value in given for part in value.split(b",")}
        return not given or bool(offered & {kind, kind.partition(b"/")[0] + b"/*", b"*/*"})

    def is_lost(self) -> bool:
        return self.lost

    def on_lost(self, call: Callable[[], object]) -> None:
        """Be told when the client has gone; at once if it has."""
        self._lost_calls.append(call)
        if self.lost:
            call()

    def forget(self) -> None:
        """Nobody needs to be told any more, and none of them is kept, as each keeps us."""
        self._lost_calls.clear()

    def _on_lost(self) -> None:
        self.lost = True
        for call in self._lost_calls:
            call()

    async def body(self) -> bytes:
        message = await self._receive()
        if not message.get("more_body"):
            return message.get("body", b"")
        parts = [message["body"]]
        while message.get("more_body"):
            message = await self._receive()
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def json(self, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
        self.answer(status, (_JSON, *more), body)

    async def empty(self, status: int, *more: tuple[bytes, bytes]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": list(more)})
        await self._send({"type": "http.response.body"})

    async def refuse(self, status: int, error: WireError) -> None:
        await self.json(status, error.encoded(None))

    async def start_stream(self, first: bytes = b"") -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE})
        await self._send({"type": "http.response.body", "body": first, "more_body": True})

    async def send_stream(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": data})

    async def still_here(self) -> None:
        await self.send_stream(STILL_HERE)

    async def follow(self, stream: Stream, position: int) -> None:
        """Send what comes on a stream until it ends, with a sign of life where nothing does."""
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    events, position = await stream.after(position)
            except TimeoutError:
                await self.still_here()
                continue
            if not events:
                return
            await self.send_stream(b"".join(events))


class Outlet:
    """Where a call's messages go: nowhere yet, or a stream that was begun because the call had something to say."""

    __slots__ = ("_begun", "_http", "_session", "_stream")

    def __init__(self, http: Http, session: Session | None) -> None:
        self._http = http
        self._session = session
        self._begun = False
        self._stream: Stream | None = None

    async def send(self, message: bytes) -> None:
        """Send what comes before the answer. A client that takes no streams goes without."""
        if self._http.accepts(b"text/event-stream"):
            await self._begin()
            await self._http.send_stream(self._event(message))

    async def ask(self, message: bytes) -> None:
        """Send a request to the client."""
        if not self._http.accepts(b"text/event-stream"):
            raise WireError(INVALID_REQUEST, "this call asks back; accept text/event-stream")
        await self.send(message)

    async def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        first = b""
        if self._session is not None:  # only a session can be come back to
            self._stream = self._session.streams.new()
            first = self._stream.prime() if self._session.client.revision in _WITH_PRIMING else b""
        await self._http.start_stream(first)

    def _event(self, message: bytes) -> bytes:
        return self._stream.push(message) if self._stream is not None else event(message)

    async def finish(self, message: bytes, status: int) -> None:
        if not self._begun:
            self._http.answer(status, ONLY_JSON, message)
            return
        await self._end(self._event(message))

    async def finish_all(self, messages: list[bytes]) -> None:
        """The answers to a batch."""
        if not self._begun:
            await self._http.json(200, b"[" + b",".join(messages) + b"]")
            return
        await self._end(b"".join(map(self._event, messages)))

    async def _end(self, made: bytes) -> None:
        if self._stream is not None:
            self._stream.end()
        await self._http.end_stream(made)

    def lose(self, task: asyncio.Task[object]) -> None:
        """The client has gone: the call with it, unless it can come back for the rest of a stream."""
        if self._stream is None:
            task.cancel()
        else:
            asyncio.get_running_loop().call_later(_RESUME_SECONDS, task.cancel)
