"""HTTP+SSE, the transport of 2024-11-05: messages come in POSTs of their own, answers go out on one event stream."""

import asyncio
import secrets
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from rookery.wire.connection import Peer
from rookery.wire.http_server import KEEP_ALIVE_SECONDS, Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.service import SHUTTING_DOWN, Service
from rookery.wire.streams import event

_NO_STREAM = WireError(INVALID_REQUEST, "accept text/event-stream")
_UNKNOWN = WireError(INVALID_REQUEST, "there is no such session; open the event stream anew")
_FOREIGN = WireError(INVALID_REQUEST, "this session was opened with another credential")


class HttpSse:
    """Two ASGI apps: the stream, and the place to post to, which the stream tells. Handshake revisions only."""

    def __init__(self, service: Service, messages_path: str = "/messages") -> None:
        self._service = service
        self._messages_path = messages_path
        self._peers: dict[str, Peer] = {}

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /sse`: a session that lives as long as this stream."""
        http = Http(scope, receive, send)
        if scope["method"] != "GET":
            await http.empty(405, (b"allow", b"GET"))
        elif self._service.closing:
            await http.refuse(503, SHUTTING_DOWN)
        elif not http.accepts(b"text/event-stream"):
            await http.refuse(406, _NO_STREAM)
        else:
            # What chose this endpoint is to choose it again.
            query = scope["query_string"].decode("latin-1")
            # A port of its own has everything at its root.
            path = "/messages" if scope["path"] == "/sse" else self._messages_path
            await self._serve(http, f"{path}?{query}&" if query else f"{path}?")

    async def _serve(self, http: Http, messages: str) -> None:
        id_ = secrets.token_urlsafe(24)
        ending = asyncio.Event()

        async def write(message: bytes) -> None:
            await http.send_stream(event(message))

        peer = self._peers[id_] = Peer(self._service, http.owner, write, modern=False)
        http.on_lost(ending.set)
        self._service.join(ending.set)
        try:
            await http.start_stream(event(f"{messages}session_id={id_}".encode(), kind=b"endpoint"))
            while not ending.is_set():
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await ending.wait()
                except TimeoutError:
                    await http.still_here()
        finally:
            self._service.leave(ending.set)
            del self._peers[id_]
            await peer.end(lost=http.lost)
        await http.end_stream()

    async def messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /messages?session_id=…`: taken with 202, answered on the stream; the id alone opens nothing."""
        http = Http(scope, receive, send)
        ids = parse_qs(scope["query_string"].decode("latin-1")).get("session_id", [])
        peer = self._peers.get(ids[0]) if len(ids) == 1 else None
        if scope["method"] != "POST":
            await http.empty(405, (b"allow", b"POST"))
        elif peer is None:
            await http.refuse(404, _UNKNOWN)
        elif peer.owner != http.owner:
            await http.refuse(403, _FOREIGN)
        else:
            await self._take(http, peer)

    async def _take(self, http: Http, peer: Peer) -> None:
        try:
            messages = peer.decode(await http.body())
        except WireError as error:
            await http.refuse(400, error)
            return
        await http.empty(202)
        await peer.take_all(messages)
