"""WebSockets for ASGI apps, which want a scope of their own for them; the front knows only requests to take over."""

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.frames import CloseCode

from rookery.wire.http_server import Http
from rookery.wire.websocket import Upgrade, WebSocketMessages, upgrade_headers


def asks_for_websocket(scope: Scope) -> bool:
    return "rookery.take_over" in scope["extensions"]


async def serve_websocket(app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, message_bytes: int) -> None:
    """Call the app with the request as a WebSocket's, until one side closes it."""
    http = Http(scope, receive, send)
    upgrade = Upgrade(scope, message_bytes)
    if upgrade.response.status_code != 101:
        _refuse(http, upgrade.response.status_code, upgrade.refusal)
        return
    socket = _Socket(http, upgrade)
    try:
        await app({**scope, "type": "websocket", "headers": upgrade_headers(scope)}, socket.receive, socket.send)
    finally:
        socket.end()


def _refuse(http: Http, status: int, message: str) -> None:
    body = msgspec.json.encode({"error": {"code": "bad-request", "message": message}})
    http.answer(status, ((b"content-type", b"application/json"),), body)


class _Socket:
    """The two callables that the app gets."""

    def __init__(self, http: Http, upgrade: Upgrade) -> None:
        self._http = http
        self._upgrade = upgrade
        self._messages: WebSocketMessages | None = None
        self._connected = self._refused = False

    async def receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        message = await self._messages.next() if self._messages is not None else None
        if message is None or self._messages is None:
            return {"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE}
        if not message.text:
            return {"type": "websocket.receive", "bytes": message.data}
        try:
            return {"type": "websocket.receive", "text": message.data.decode()}
        except UnicodeDecodeError:
            self._messages.close(CloseCode.INVALID_DATA, "this is not UTF-8")
            return {"type": "websocket.disconnect", "code": CloseCode.INVALID_DATA}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.accept" and self._messages is None and not self._refused:
            self._messages = self._upgrade.open(self._http, binary=True)
        elif kind == "websocket.close" and self._messages is not None:
            self._messages.close(message.get("code", CloseCode.NORMAL_CLOSURE), message.get("reason") or "")
        elif kind == "websocket.close":
            self._refuse(message.get("reason") or "there is no WebSocket here")
        elif self._messages is not None:
            text: str | None = message.get("text")
            data: bytes = message["bytes"] if text is None else text.encode()
            await self._messages.send(data, text=text is not None)

    def end(self) -> None:
        """The app has returned, or crashed."""
        if self._messages is not None:
            self._messages.close()
        else:
            self._refuse("there is no WebSocket here")

    def _refuse(self, message: str) -> None:
        if not self._refused:
            self._refused = True
            _refuse(self._http, 400, message)
