"""Data of workspaces that takes long to parse delays no other connection."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rookery.system.clock import SYSTEM_CLOCK, thread_cpu_seconds
from rookery.wire.http.auth import OWNER, Headers, Principal
from rookery.wire.server.websocket import is_upgrade_request, serve_websocket
from tests.support.http.listener import Client, body_of, reply, request, start_listener, within_limit
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.limits.shares")]

WORKSPACE = Principal("workspace", workspace=Path("/one"))
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
CLIENTS = 24
SIZE = 60_000
# The largest share of the work on the data of all clients that one pass of the event loop may do.
LARGEST_SHARE = 0.25


def judge(method: str, path: str, headers: Headers) -> Principal:
    return WORKSPACE if path == "/workspace" else OWNER


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if is_upgrade_request(scope):
        await serve_websocket(count_messages, scope, receive, send, message_bytes=1_000_000)
    else:
        await reply(send, await body_of(receive))


async def count_messages(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer `count` with the number of messages before it."""
    socket, count = WebSocket(scope, receive, send), 0
    await socket.accept()
    try:
        while await socket.receive_text() != "count":
            count += 1
        await socket.send_text(str(count))
    except WebSocketDisconnect:
        return


class Passes:
    """Measures the CPU time of each pass of the event loop. The garbage collector would distort it, and is off."""

    def __init__(self) -> None:
        gc.disable()
        self._began = self._last = thread_cpu_seconds()
        self._longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        now = thread_cpu_seconds()
        self._longest, self._last = max(self._longest, now - self._last), now
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> float:
        """Return the share of the longest pass in the CPU time of all."""
        self._handle.cancel()
        gc.enable()
        return self._longest / (thread_cpu_seconds() - self._began)


@asynccontextmanager
async def clients() -> AsyncGenerator[list[Client]]:
    async with start_listener(app, judge_of=lambda port: judge) as site:
        yield [await site.client() for _ in range(CLIENTS)]


async def send_on_all(clients: list[Client], data: bytes) -> None:
    await asyncio.gather(*(client.send(data) for client in clients))


async def test_a_body_in_very_small_chunks_is_parsed_in_slices() -> None:
    async with clients() as crowd:
        chunks = b"".join(b"1\r\n%c\r\n" % (97 + number % 26) for number in range(SIZE))
        passes = Passes()
        head = b"POST /workspace HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        await send_on_all(crowd, head + chunks + b"0\r\n\r\n")
        body = bytes(97 + number % 26 for number in range(SIZE))
        for client in crowd:
            assert (await client.answer()).body == body
        assert passes.stop() < LARGEST_SHARE


async def test_heads_of_very_many_headers_are_parsed_in_slices() -> None:
    async with clients() as crowd:
        passes = Passes()
        head = request("GET", "/workspace", *(["a:"] * 6000))
        await send_on_all(crowd, head * 8)
        for client in crowd:
            for _ in range(8):
                assert (await client.answer()).status == 200
        assert passes.stop() < LARGEST_SHARE


async def test_very_small_frames_of_a_websocket_are_parsed_in_slices_and_all_counted() -> None:
    async with clients() as crowd:
        for client in crowd:
            await client.send(request("GET", "/workspace", *UPGRADE))
            await within_limit(client.reader.readuntil(b"\r\n\r\n"))
        passes = Passes()
        # Pings and empty messages.
        frames = (b"\x89\x80" + bytes(4)) * 3000 + (b"\x81\x80" + bytes(4)) * 3000
        await send_on_all(crowd, frames + b"\x81\x85" + bytes(4) + b"count")
        for client in crowd:
            data = b""
            while b"\x81\x043000" not in data:
                more = await within_limit(client.reader.read(65_536))
                assert more, data[-100:]
                data += more
        assert passes.stop() < LARGEST_SHARE


async def test_data_of_the_owner_is_parsed_at_once() -> None:
    async with clients() as crowd:
        body = b"x" * 1_000_000
        for client in crowd[:2]:
            for path in ("/owner", "/workspace", "/owner"):
                assert (await client.ask(request("POST", path, body=body))).body == body
                chunked = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode()
                chunked += b"ffff\r\n" + body[:0xFFFF] + b"\r\n0\r\n\r\n"
                assert (await client.ask(chunked)).body == body[:0xFFFF]


async def test_the_first_request_of_the_owner_waits_for_no_workspace() -> None:
    served: list[str] = []

    async def record(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["path"])
        await app(scope, receive, send)

    async with start_listener(record, judge_of=lambda port: judge) as site:
        workspace, owner = await site.client(), await site.client()
        await owner.ask(request("GET", "/owner"))
        await workspace.ask(request("GET", "/workspace"))
        # As after very long work for a workspace.
        site.door.shares.pacer.charge(SYSTEM_CLOCK.monotonic() - 100)
        served.clear()
        await workspace.send(request("POST", "/workspace", body=b"x" * 100_000))
        newcomer = await site.client()
        assert (await newcomer.ask(request("POST", "/owner", body=b"x" * 100_000))).status == 200
        assert served == ["/owner"]
        assert (await workspace.answer()).status == 200
