"""HTTP+SSE, the transport of 2024-11-05.

Messages arrive in separate POSTs, and responses are sent on one event stream.
"""

import asyncio
import secrets
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.duplex import DuplexConnection
from rookery.wire.server.http_request import KEEP_ALIVE_SECONDS, HttpRequest
from rookery.wire.server.service import SHUTTING_DOWN, Service
from rookery.wire.server.session import encode_event

_NO_STREAM = WireError(INVALID_REQUEST, "the Accept header must include text/event-stream")
_UNKNOWN_SESSION = WireError(INVALID_REQUEST, "there is no such session; open a new event stream")
_FOREIGN_SESSION = WireError(INVALID_REQUEST, "this session was opened with another credential")


class SseServer:
    """Two ASGI apps: the event stream, and the path to post to, which the stream announces. Handshake era only."""

    def __init__(self, service: Service, messages_path: str = "/messages") -> None:
        self._service = service
        self._messages_path = messages_path
        self._connections: dict[str, DuplexConnection] = {}

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `GET /sse`: a session that lasts as long as this stream."""
        http = HttpRequest(scope, receive, send)
        if scope["method"] != "GET":
            await http.empty(405, (b"allow", b"GET"))
        elif self._service.is_closing:
            await http.refuse(503, SHUTTING_DOWN)
        elif not http.accepts(b"text/event-stream"):
            await http.refuse(406, _NO_STREAM)
        else:
            # The query may have selected this endpoint, so the path to post to repeats it.
            query = scope["query_string"].decode("latin-1")
            # A dedicated port serves everything at its root.
            path = "/messages" if scope["path"] == "/sse" else self._messages_path
            await self._serve(http, f"{path}?{query}&" if query else f"{path}?")

    async def _serve(self, http: HttpRequest, messages_path: str) -> None:
        id_ = secrets.token_urlsafe(24)
        ending = asyncio.Event()

        async def write(message: bytes) -> None:
            await http.send_stream(encode_event(message))

        peer = self._connections[id_] = DuplexConnection(self._service, http.owner, write, modern=False)
        http.add_lost_callback(ending.set)
        self._service.add_connection(ending.set)
        try:
            await http.start_stream(encode_event(f"{messages_path}session_id={id_}".encode(), kind=b"endpoint"))
            while not ending.is_set():
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await ending.wait()
                except TimeoutError:
                    await http.send_keep_alive()
        finally:
            self._service.remove_connection(ending.set)
            del self._connections[id_]
            await peer.end(lost=http.lost)
        await http.end_stream()

    async def messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `POST /messages?session_id=…`: accept with 202, and respond on the stream.

        The session id grants no access without the credential that opened the stream.
        """
        http = HttpRequest(scope, receive, send)
        ids = parse_qs(scope["query_string"].decode("latin-1")).get("session_id", [])
        peer = self._connections.get(ids[0]) if len(ids) == 1 else None
        if scope["method"] != "POST":
            await http.empty(405, (b"allow", b"POST"))
        elif peer is None:
            await http.refuse(404, _UNKNOWN_SESSION)
        elif peer.owner != http.owner:
            await http.refuse(403, _FOREIGN_SESSION)
        else:
            await self._take(http, peer)

    async def _take(self, http: HttpRequest, connection: DuplexConnection) -> None:
        body = await http.body()
        try:
            messages = connection.decode(body)
        except WireError as error:
            await http.refuse(400, error)
            return
        await http.empty(202)
        await connection.handle_messages(messages, len(body))
