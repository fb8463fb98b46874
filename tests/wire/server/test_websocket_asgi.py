"""WebSockets for ASGI apps on our HTTP server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rookery.wire.server.websocket import is_upgrade_request, serve_websocket
from tests.support.http.listener import RunningListener, request, start_listener, within_limit

pytestmark = pytest.mark.anyio
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")


def on_front(app: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        assert is_upgrade_request(scope)
        await serve_websocket(app, scope, receive, send, message_bytes=1000)

    return served


@asynccontextmanager
async def a_socket(app: ASGIApp) -> AsyncGenerator[tuple[ClientConnection, RunningListener]]:
    async with (
        start_listener(on_front(app)) as site,
        connect(f"ws://127.0.0.1:{site.port}/a?b=c", proxy=None) as socket,
    ):
        yield socket, site


class Echo:
    """Says everything again, and how it ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.send_text(f"{socket.url.path}?{socket.url.query} {socket.headers['upgrade']}")
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    self.ended.set_result(message["code"])
                    return
                await send({**message, "type": "websocket.send"})
        except WebSocketDisconnect as gone:
            self.ended.set_result(gone.code)


async def closed_with(socket: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as caught:
        await within_limit(socket.recv())
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code


async def test_text_and_bytes_go_both_ways_and_the_app_sees_the_request() -> None:
    async with a_socket(Echo()) as (socket, _):
        assert await within_limit(socket.recv()) == "/a?b=c websocket"
        await socket.send("schön")
        assert await within_limit(socket.recv()) == "schön"
        await socket.send(b"\xff\x00")
        assert await within_limit(socket.recv()) == b"\xff\x00"


async def test_the_app_hears_that_the_client_has_gone() -> None:
    app = Echo()
    async with a_socket(app) as (socket, site):
        await within_limit(socket.recv())
        await socket.close()
        assert await within_limit(app.ended) == 1006
        await site.connections.reach(0)


async def test_text_that_is_not_utf_8_ends_it_with_1007_and_too_much_with_1009() -> None:
    for sent, code in ((b"\xff", 1007), (b"x" * 1001, 1009)):
        async with a_socket(Echo()) as (socket, _):
            await within_limit(socket.recv())
            await socket.send(sent, text=True)
            assert await closed_with(socket) == code


async def test_an_app_that_refuses_or_returns_or_is_asked_wrongly_gives_a_plain_answer() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await WebSocket(scope, receive, send).close(reason="not you")

    async def return_(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        assert (await receive())["type"] == "websocket.disconnect"

    for app, told in ((refuse, b"not you"), (return_, b"no WebSocket")):
        async with start_listener(on_front(app)) as site:
            with pytest.raises(InvalidStatus) as caught:
                await connect(f"ws://127.0.0.1:{site.port}/", proxy=None)
            assert caught.value.response.status_code == 400
            assert told in bytes(caught.value.response.body)
            assert (await site.ask(request("GET", "/", *UPGRADE))).status == 400


async def test_an_app_that_closes_says_goodbye() -> None:
    async def close(scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.close(4000, "enough")

    async with a_socket(close) as (socket, site):
        assert await closed_with(socket) == 4000
        await site.connections.reach(0)
