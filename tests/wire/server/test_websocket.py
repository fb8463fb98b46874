"""MCP over WebSocket on our HTTP server: authenticated, limited, and closed properly."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.http.connection import HttpLimits
from rookery.wire.protocol.provider import Call, report_log
from rookery.wire.server.endpoint import Endpoint
from rookery.wire.server.service import Service
from rookery.wire.server.websocket import WebSocketServer
from tests.conformance.busy import Busy
from tests.conformance.fixture import Result
from tests.support.http.listener import Client, RunningListener, request, start_listener, within_limit
from tests.support.mcp.line_client import enveloped, hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")


@asynccontextmanager
async def a_socket(
    app: Any, limits: HttpLimits | None = None, **more: Any
) -> AsyncGenerator[tuple[ClientConnection, RunningListener]]:
    async with (
        start_listener(app, limits) as site,
        connect(f"ws://127.0.0.1:{site.port}/ws", proxy=None, **more) as socket,
    ):
        yield socket, site


async def ask(socket: ClientConnection, sent: Any) -> Any:
    await socket.send(sent if isinstance(sent, str) else json.dumps(sent))
    return json.loads(await within_limit(socket.recv()))


async def goodbye(socket: ClientConnection) -> ConnectionClosed:
    """How the connection ends; no message comes before."""
    with pytest.raises(ConnectionClosed) as caught:
        await within_limit(socket.recv())
    return caught.value


def calling(tool: str, id_: int = 1) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}}, id_)


async def raw_socket(site: RunningListener, **more: Any) -> Client:
    """A WebSocket whose client does nothing by itself."""
    client = await site.client(**more)
    await client.send(request("GET", "/ws", *UPGRADE, KEY))
    head = await within_limit(client.reader.readuntil(b"\r\n\r\n"))
    assert head.startswith(b"HTTP/1.1 101 ")
    return client


def frame(data: bytes, opcode: int = 1, *, last: bool = True) -> bytes:
    """A frame of a client, masked with nothing."""
    assert len(data) < 65_536
    return bytes([opcode | (0x80 if last else 0), 0xFE]) + len(data).to_bytes(2) + bytes(4) + data


@requirement("wire.websocket.server")
@pytest.mark.parametrize("offered", [None, "mcp"])
async def test_both_eras_are_served_one_message_a_frame(offered: str | None) -> None:
    subprotocols = [Subprotocol("other"), Subprotocol(offered)] if offered else None
    async with a_socket(Endpoint(Busy()), subprotocols=subprotocols) as (socket, _):
        assert socket.subprotocol == offered
        assert (await ask(socket, message("server/discover", enveloped(), 1)))["result"]["supportedVersions"]
        assert (await ask(socket, hello()))["result"]["serverInfo"]["name"] == "rookery-conformance"
        assert (await ask(socket, calling("test_simple_text")))["result"]["content"][0]["type"] == "text"


@requirement("wire.jsonrpc.errors", "wire.limits.messages")
async def test_what_is_no_message_is_answered_and_the_connection_stays() -> None:
    async with a_socket(Endpoint(Busy())) as (socket, _):
        for sent, code in (("{", -32700), ("5", -32600), ("", -32700)):
            answer = await ask(socket, sent)
            assert (answer["id"], answer["error"]["code"]) == (None, code)
        assert (await ask(socket, message("ping", {}, 1)))["result"] == {}


@requirement("house.auth.cross-site")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Host: evil.example", "Authorization: Bearer t"], 421),
        (["Host: {host}", "Authorization: Bearer t", "Origin: http://evil.example"], 403),
        (["Host: {host}", "Authorization: Bearer t", "Origin: null"], 403),
        (["Host: {host}"], 401),
        (["Host: {host}", "Authorization: Bearer wrong"], 401),
        (["Host: {host}", "Authorization: Bearer t"], 101),
    ],
)
async def test_an_upgrade_is_judged_like_every_other_request(headers: list[str], status: int) -> None:
    tokens = Tokens()
    tokens.add("t", OWNER)
    async with start_listener(Endpoint(Busy()), judge_of=lambda port: make_tcp_authenticator(port, tokens)) as site:
        client = await site.client()
        lines = ["GET /ws HTTP/1.1", *(line.format(host=f"127.0.0.1:{site.port}") for line in headers), *UPGRADE, KEY]
        await client.send("\r\n".join([*lines, "", ""]).encode())
        head = await within_limit(client.reader.readuntil(b"\r\n\r\n"))
        assert int(head.split()[1]) == status


async def test_a_request_that_is_no_upgrade_or_a_wrong_one_is_told_so() -> None:
    async with start_listener(Endpoint(Busy())) as site:
        plain = await site.ask(request("GET", "/ws"))
        assert (plain.status, plain.headers["upgrade"]) == (426, "websocket")
        assert (await site.ask(request("GET", "/ws", *UPGRADE))).status == 400
        assert (await site.ask(request("GET", "/sse", *UPGRADE, "Accept: text/plain"))).status == 406
        with pytest.raises(InvalidStatus) as caught:
            await connect(f"ws://127.0.0.1:{site.port}/elsewhere", proxy=None)
        assert caught.value.response.status_code == 404


@requirement("wire.limits.messages")
async def test_a_message_over_the_limit_ends_the_connection_with_1009() -> None:
    async with a_socket(Endpoint(Busy(), message_bytes=1000)) as (socket, _):
        assert (await ask(socket, message("ping", {"pad": "x" * 800}, 1)))["id"] == 1
        await socket.send("x" * 1001)
        ended = (await goodbye(socket)).rcvd
        assert ended is not None and ended.code == 1009 and "1000 bytes" in ended.reason


async def test_a_binary_frame_ends_the_connection_with_1003() -> None:
    async with a_socket(Endpoint(Busy())) as (socket, _):
        await socket.send(b"{}")
        assert (await goodbye(socket)).rcvd.code == 1003  # pyright: ignore[reportOptionalMemberAccess]


async def test_a_message_in_pieces_with_a_ping_between_them_is_one() -> None:
    async with start_listener(Endpoint(Busy())) as site:
        client = await raw_socket(site)
        whole = json.dumps(message("ping", {}, 5)).encode()
        pieces = frame(whole[:9], last=False) + frame(b"still?", 9) + frame(whole[9:20], 0, last=False)
        await client.send(pieces, frame(whole[20:], 0))
        assert await within_limit(client.reader.readexactly(8)) == b"\x8a\x06still?"
        answer = b'{"jsonrpc":"2.0","id":5,"result":{}}'
        assert await within_limit(client.reader.readexactly(2 + len(answer))) == bytes([0x81, len(answer)]) + answer


@pytest.mark.parametrize("reset", [False, True])
@requirement("wire.http.lost-client")
async def test_the_loss_of_the_client_cancels_its_calls_and_ends_its_session(reset: bool) -> None:
    provider = Busy()
    endpoint = Endpoint(provider)
    async with start_listener(endpoint) as site:
        client = await raw_socket(site)
        await client.send(frame(json.dumps(hello()).encode()), frame(json.dumps(calling("hang")).encode()))
        await within_limit(client.reader.readuntil(b"notifications/progress"))
        if reset:
            client.reset()
        else:
            client.close()
        await site.connections.reach(0)
        async with connect(f"ws://127.0.0.1:{site.port}/ws", proxy=None) as socket:
            counted = message("tools/call", enveloped({"name": "count_cancelled", "arguments": {"least": 1}}), 1)
            assert (await ask(socket, counted))["result"]["content"][0]["text"] == "1"
        assert len(endpoint.service.sessions) == 0


@requirement("wire.server.shutdown")
async def test_a_shutdown_answers_open_calls_and_says_goodbye_with_1001() -> None:
    endpoint = Endpoint(Busy())
    async with a_socket(endpoint) as (socket, site):
        await ask(socket, hello())
        assert (await ask(socket, calling("hang")))["method"] == "notifications/progress"
        endpoint.close()
        assert json.loads(await within_limit(socket.recv()))["error"] == {"code": -32000, "message": "shutting down"}
        assert (await goodbye(socket)).rcvd.code == 1001  # pyright: ignore[reportOptionalMemberAccess]
        assert (await site.ask(request("GET", "/ws", *UPGRADE, KEY))).status == 503


async def test_a_goodbye_of_the_client_is_answered() -> None:
    async with a_socket(Endpoint(Busy())) as (socket, site):
        await ask(socket, hello())
        await socket.close(1000, "done")
        assert socket.close_code == 1000
        await site.connections.reach(0)


async def test_a13_a_client_that_answers_no_ping_is_cut_off_and_one_that_does_is_kept() -> None:
    provider = Busy()
    app = WebSocketServer(Service(provider), ping_seconds=1.0)
    async with start_listener(app) as site, connect(f"ws://127.0.0.1:{site.port}/ws", proxy=None) as alive:
        client = await raw_socket(site)
        assert await within_limit(client.reader.readexactly(2)) == b"\x89\x00"
        assert await client.rest() == b""
        await site.connections.reach(1)
        assert (await ask(alive, message("ping", {}, 1)))["id"] == 1


class Flood(Busy):
    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        self._tools["flood"] = self.flood

    async def flood(self, call: Call, given: Mapping[str, Any]) -> Result:
        """Says more than anybody reads."""
        try:
            while True:
                await report_log(call, "info", "x" * 100_000)
        finally:
            self.ended.set()


@requirement("wire.http.lost-client")
async def test_a_client_that_does_not_read_is_cut_off_and_its_call_cancelled() -> None:
    provider = Flood()
    async with start_listener(Endpoint(provider), HttpLimits(write_seconds=0.2)) as site:
        client = await raw_socket(site, receive_bytes=4096)
        await client.send(frame(json.dumps(hello()).encode()), frame(json.dumps(calling("flood")).encode()))
        await within_limit(provider.ended.wait())
        await site.connections.reach(0)
        assert provider.ended.is_set()


async def test_more_messages_than_fit_are_taken_one_after_the_other() -> None:
    async with a_socket(Endpoint(Busy())) as (socket, _):
        pad = "x" * 40_000
        for number in range(20):
            await socket.send(json.dumps(message("ping", {"pad": pad}, number)))
        assert [json.loads(await within_limit(socket.recv()))["id"] for _ in range(20)] == list(range(20))
