"""MCP over WebSocket: one message a text frame, both eras."""

from starlette.types import Receive, Scope, Send
from websockets.frames import CloseCode

from rookery.wire.connection import Peer
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.service import SHUTTING_DOWN, Service
from rookery.wire.websocket import Upgrade

MESSAGE_BYTES = 67_108_864
_SUBPROTOCOL = "mcp"
_PING_SECONDS = 20.0
_NO_UPGRADE = WireError(INVALID_REQUEST, "this path speaks WebSocket only")


class WebSocket:
    """An ASGI app for requests to be upgraded, which the gate has judged already like every other."""

    def __init__(
        self, service: Service, *, message_bytes: int = MESSAGE_BYTES, ping_seconds: float = _PING_SECONDS
    ) -> None:
        self._service = service
        self._message_bytes = message_bytes
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Http(scope, receive, send)
        if self._service.closing:
            await http.refuse(503, SHUTTING_DOWN)
            return
        if "rookery.take_over" not in scope["extensions"]:
            await http.json(426, _NO_UPGRADE.encoded(None), (b"upgrade", b"websocket"))
            return
        upgrade = Upgrade(scope, self._message_bytes, [_SUBPROTOCOL])
        if upgrade.response.status_code != 101:
            error = WireError(INVALID_REQUEST, upgrade.refusal)
            await http.json(upgrade.response.status_code, error.encoded(None))
            return
        await self._serve(upgrade, http)

    async def _serve(self, upgrade: Upgrade, http: Http) -> None:
        """Until one side closes it."""
        socket = upgrade.open(http, ping_seconds=self._ping_seconds)
        peer = Peer(self._service, http.owner, socket.send)
        self._service.join(socket.stop)
        try:
            while (message := await socket.next()) is not None:
                await peer.take(message.data)
        finally:
            self._service.leave(socket.stop)
            await peer.end(lost=not socket.open)
            socket.close(CloseCode.GOING_AWAY, "shutting down")
