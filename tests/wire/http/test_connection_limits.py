"""Slow, large, unresponsive or numerous clients are refused or disconnected; others are served."""

import asyncio
import contextlib
import itertools
import re
import socket

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from starlette.types import Receive, Scope, Send

from rookery.wire.http.connection import REFUSED_TOTAL
from rookery.wire.http.pool import HttpLimits
from tests.support.http.listener import (
    LIMIT,
    Client,
    RunningListener,
    body_of,
    raise_file_limit,
    reply,
    request,
    start_listener,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.limits.requests")]

JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
MEGABYTE = 1_048_576
# What the kernel may hold of one connection, both directions, and then some.
KERNEL = 16 * MEGABYTE


class App:
    """Answers; /wait waits until it is let; /much sends for ever; /big is large; tells what it was asked and lost."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.reached, self.go, self.lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.paths.append(path)
        scope["extensions"]["rookery.on_lost"](self.lost.set)
        self.reached.set()
        self.bodies.append(await body_of(receive))
        if path == "/wait":
            await self.go.wait()
        if path == "/much":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not self.lost.is_set():
                await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            return
        await reply(send, b"x" * MEGABYTE if path == "/big" else path.encode())


async def flood(site: RunningListener, opening: bytes, piece: bytes) -> bytes:
    """Send 100 MB, or as much as the other side lets us, which must be far less; answers what it said at last."""
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", site.port)) as sock:
        sock.setblocking(False)
        sent, got = 0, b""
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(sock, opening)
                while sent < 100 * MEGABYTE:
                    await loop.sock_sendall(sock, piece)
                    sent += len(piece)
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(sock, 65_536):
                    got += data
    assert sent < KERNEL
    return got


async def served(site: RunningListener) -> None:
    assert (await site.ask(request("GET", "/other"))).body == b"/other"


# ---- slow


async def test_a10_five_hundred_slow_clients_end_while_others_are_served() -> None:
    raise_file_limit(1500)
    async with start_listener(App(), HttpLimits(header_seconds=1.0)) as site:
        slow = [await site.client() for _ in range(500)]
        ended = [asyncio.ensure_future(client.rest()) for client in slow]
        text = b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 10_000
        good = await site.client()
        sent = 0
        async with asyncio.timeout(LIMIT):
            while not all(one.done() for one in ended):
                for client, end in zip(slow, ended, strict=True):
                    if not end.done():
                        client.writer.write(text[sent : sent + 1])
                sent += 1
                assert (await good.ask(request("GET", "/good"))).body == b"/good"
        got = [end.result() for end in ended]
        assert all(one.startswith(b"HTTP/1.1 408 ") or not one for one in got)
        assert any(b'"head-time"' in one for one in got)
        for client in slow:
            client.close()
        await site.connections.reach(1)
        await served(site)


async def test_a10_a_client_that_says_nothing_at_all_is_let_go() -> None:
    async with start_listener(App(), HttpLimits(header_seconds=0.05)) as site:
        client = await site.client()
        assert (await client.answer()).code == "head-time"
        assert await client.rest() == b""


async def test_a10_a_slow_body_is_refused_and_its_app_told() -> None:
    async with start_listener(app := App(), HttpLimits(body_seconds=0.2)) as site:
        client = await site.client()
        await client.send(request("POST", "/", JSON, "Content-Length: 100"), b"{")
        answer = await client.answer()
        assert (answer.status, answer.code) == (408, "body-time")
        await within_limit(app.lost.wait())
        assert app.bodies == []
        await served(site)


async def test_a_body_that_the_app_does_not_take_is_not_called_slow() -> None:
    async with start_listener(app := App(), HttpLimits(body_seconds=0.5)) as site:
        client, front = await site.fronted()
        await client.send(request("GET", "/wait"))
        await within_limit(app.reached.wait())
        front.data_received(request("POST", "/late", JSON, "Content-Length: 100000") + b"x" * 90_000)
        slow = await site.client()
        await slow.send(request("POST", "/slow", JSON, "Content-Length: 100"))
        assert (await slow.answer()).code == "body-time"  # so long has the other one waited, too
        app.go.set()
        assert (await client.answer()).body == b"/wait"
        await client.send(b"x" * 10_000)
        assert (await client.answer()).body == b"/late"


async def test_a_refused_body_takes_no_answer_from_the_request_before_it() -> None:
    async with start_listener(app := App(), HttpLimits(body_seconds=0.05)) as site:
        client = await site.client()
        await client.send(request("GET", "/wait"), request("POST", "/slow", JSON, "Content-Length: 100"))
        await within_limit(app.reached.wait())
        await site.ask(request("POST", "/slow", JSON, "Content-Length: 100"))
        app.go.set()
        assert (await client.answer()).body == b"/wait"
        assert (await client.answer()).code == "body-time"
        assert "/slow" not in app.paths[:1]


# ---- large


@pytest.mark.parametrize(
    "piece", [b"x" * 1000, b"X-Header: value\r\n" * 50, b"a:\r\n" * 250], ids=["line", "headers", "tiny headers"]
)
async def test_an_endless_head_is_refused_and_cut_off(piece: bytes) -> None:
    async with start_listener(app := App()) as site:
        opening = b"GET / HTTP/1.1\r\n" + (b"" if b"\n" in piece else b"X: ")
        assert (await flood(site, opening, piece)).startswith(b"HTTP/1.1 431 ")
        assert app.paths == []
        await served(site)


@pytest.mark.parametrize("line", [b"GET /%b HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: %b\r\n\r\n"])
async def test_a_head_over_the_limit_is_refused_also_in_one_piece(line: bytes) -> None:
    async with start_listener(app := App(), HttpLimits(header_bytes=1000)) as site:
        assert (await site.ask(line % (b"x" * 900))).status == 200
        for size in (1001, 20_000):
            answer = await site.ask(line % (b"x" * size))
            assert (answer.status, answer.code) == (431, "headers-too-large")
        assert (await site.ask(b"GET / HTTP/1.1\r\n", b"a:\r\n" * 300, b"\r\n")).status == 431
        assert len(app.paths) == 1


async def test_an_endless_head_behind_a_running_answer_is_bounded_too() -> None:
    async with start_listener(app := App()) as site:
        assert await flood(site, request("GET", "/wait") + b"GET / HTTP/1.1\r\nX: ", b"x" * 10_000) == b""
        await within_limit(app.lost.wait())


async def test_the_head_of_a_pipelined_request_may_follow_a_large_body() -> None:
    async with start_listener(App(), HttpLimits(header_bytes=1000)) as site:
        client, front = await site.fronted()
        front.data_received(request("POST", "/a", body=b"x" * 5000) + b"GET /b HTTP/1.1\r\n")
        front.data_received(b"X: " + b"y" * 500 + b"\r\n\r\n")
        assert [(await client.answer()).body for _ in range(2)] == [b"/a", b"/b"]


@pytest.mark.parametrize("piece", [b"X-Trailer: value\r\n" * 50, b"x" * 1000], ids=["trailers", "trailer"])
async def test_endless_trailers_are_refused_and_cut_off(piece: bytes) -> None:
    async with start_listener(App()) as site:
        opening = request("POST", "/", JSON, CHUNKED) + b"2\r\n{}\r\n0\r\n" + (b"" if b"\n" in piece else b"X: ")
        assert (await flood(site, opening, piece)).startswith(b"HTTP/1.1 431 ")
        await served(site)


@requirement("wire.limits.messages")
async def test_a_huge_announced_body_is_refused_before_any_of_it_is_read() -> None:
    async with start_listener(app := App(), HttpLimits(body_bytes=1000)) as site:
        for size in (1001, 2**40, 2**63):
            answer = await site.ask(request("POST", "/", JSON, f"Content-Length: {size}", "Expect: 100-continue"))
            assert (answer.status, answer.code) == (413, "body-too-large")
            assert "larger than 1000 bytes" in answer.json()["error"]["message"]
        assert app.paths == []
        assert (await site.ask(request("POST", "/", body=b"x" * 1000))).status == 200


async def test_a_chunked_body_over_the_limit_is_refused_when_it_passes_it() -> None:
    async with start_listener(app := App(), HttpLimits(body_bytes=1000)) as site:
        fits = request("POST", "/", JSON, CHUNKED) + b"1f4\r\n%b\r\n" % (b"x" * 500) * 2
        assert (await site.ask(fits, b"0\r\n\r\n")).status == 200
        client = await site.client()
        app.reached.clear()
        await client.send(fits)
        await within_limit(app.reached.wait())
        answer = await client.ask(b"1\r\nx\r\n")
        assert (answer.status, answer.code) == (413, "body-too-large")
        await within_limit(app.lost.wait())
        assert len(app.bodies) == 1


async def test_a_body_that_goes_on_after_a_refusal_is_cut_off_and_the_answer_still_read() -> None:
    async with start_listener(App(), HttpLimits(body_bytes=1000)) as site:
        before = REFUSED_TOTAL.value("body-after-refusal")
        opening = request("POST", "/", JSON, f"Content-Length: {200 * MEGABYTE}")
        assert (await flood(site, opening, b"x" * 10_000)).startswith(b"HTTP/1.1 413 ")
        await site.connections.reach(0)
        assert REFUSED_TOTAL.value("body-after-refusal") == before + 1
        await served(site)


# ---- deaf


@pytest.mark.parametrize("path", ["/much", "/big"])
async def test_a13_a_client_that_stops_reading_is_cut_off_and_others_are_served(path: str) -> None:
    async with start_listener(app := App(), HttpLimits(write_seconds=0.3)) as site:
        client = await site.client(receive_bytes=4096)
        asking = request("GET", path) * (1 if path == "/much" else 30)
        await client.send(asking)
        await within_limit(app.reached.wait())
        await served(site)
        await site.connections.reach(0)
        assert app.lost.is_set() or path == "/big"
        await served(site)


async def test_answers_that_nobody_takes_do_not_pile_up() -> None:
    async with start_listener(app := App()) as site:
        client = await site.client(receive_bytes=4096)
        await site.connections.reach(1)
        front = site.connections.only()
        await client.send(request("GET", "/big") * 30)
        await within_limit(app.reached.wait())
        await served(site)
        assert front.transport.get_write_buffer_size() < 2 * MEGABYTE
        assert len(app.paths) < 30
        sizes = [len((await client.answer()).body) for _ in range(30)]
        assert sizes == [MEGABYTE] * 30


@pytest.mark.parametrize("then", ["idle", "close", "half-close"])
async def test_an_answer_that_is_never_read_does_not_hold_its_connection(then: str) -> None:
    """Not even one so small that the transport would not complain."""
    async with start_listener(app := App(), HttpLimits(keep_alive_seconds=0.1, write_seconds=0.1)) as site:
        client = await site.client(receive_bytes=4096)
        await site.connections.reach(1)
        front = site.connections.only()
        front.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        front.transport.set_write_buffer_limits(high=10 * MEGABYTE)
        lines = ["Connection: close"] if then == "close" else []
        await client.send(request("GET", "/big", *lines))
        await within_limit(app.reached.wait())
        if then == "half-close":
            client.writer.write_eof()
        await site.connections.reach(0)
        assert len(await client.rest()) < MEGABYTE


# ---- many


async def proven(site: RunningListener, path: str = "/proven") -> Client:
    client = await site.client()
    assert (await client.ask(request("GET", path))).status == 200
    return client


async def test_the_oldest_that_has_not_proven_itself_makes_room() -> None:
    async with start_listener(App(), HttpLimits(connections=3)) as site:
        owner = await proven(site)
        silent = [await site.client() for _ in range(2)]
        await site.connections.reach(3)
        newcomer = await proven(site)
        assert await silent[0].rest() == b""
        assert (await silent[1].ask(request())).status == 200
        assert (await owner.ask(request())).status == 200
        assert (await newcomer.ask(request())).status == 200


async def test_whoever_asked_only_what_is_open_to_all_makes_room() -> None:
    async with start_listener(App(), HttpLimits(connections=3)) as site:
        owner = await proven(site)
        anybody = [await proven(site, "/anybody") for _ in range(2)]
        await proven(site)
        assert await anybody[0].rest() == b""
        assert (await owner.ask(request())).status == 200


async def test_when_all_are_proven_newcomers_get_429_however_many_they_are() -> None:
    async with start_listener(App(), HttpLimits(connections=3)) as site:
        owners = [await proven(site) for _ in range(3)]
        late = [await site.client() for _ in range(10)]
        answers = [await client.rest() for client in late]
        assert all(answer.startswith(b"HTTP/1.1 429 ") or not answer for answer in answers)
        assert any(b"too-many-connections" in answer for answer in answers)
        for owner in owners:
            assert (await owner.ask(request())).status == 200
        owners[0].close()
        for client in late:
            client.close()
        await site.connections.reach(2)
        await served(site)


async def test_a_burst_of_newcomers_pushes_out_as_many_as_it_brings() -> None:
    async with start_listener(App(), HttpLimits(connections=10)) as site:
        for _ in range(3):
            await asyncio.gather(*(site.client() for _ in range(50)))
        await site.connections.reach(10)
        await served(site)
        assert len(site.connections) <= 11
        assert len(site.door.unauthenticated) <= 10


async def test_refused_clients_that_hang_on_hold_no_place() -> None:
    async with start_listener(App(), HttpLimits(connections=5)) as site:
        for _ in range(20):
            refused = await site.client()
            assert (await refused.ask(b"GET * HTTP/1.1\r\n\r\n")).status == 400
        assert len(site.connections) <= 11
        assert len(site.door.closing_connections) <= 6
        owners = [await proven(site) for _ in range(5)]
        for owner in owners:
            assert (await owner.ask(request())).status == 200


# ---- anything at all

LINES = """GET / HTTP/1.1|POST /x HTTP/1.1|HEAD /y HTTP/1.0|CONNECT a:1 HTTP/1.1|Host: here|0|5||X: y|hello|Trailer: 1
Content-Length: 5|Content-Length: 0|Content-Length: 99999|Transfer-Encoding: chunked|Connection: close
Connection: upgrade|Upgrade: websocket|Expect: 100-continue"""
WISH = ("Upgrade: websocket", "Connection: Upgrade")
FRAGMENTS = [
    *(b"%b\r\n" % line.encode() for line in re.split("[|\n]", LINES)),
    *(request("GET", path) for path in ("/", "/wait", "/big", "*", "/ws")),
    *(request("POST", "/", *words, body=b"hello") for words in ((), WISH, ("Connection: close",))),
    *(request("POST", path, JSON, CHUNKED) for path in ("/", "/wait")),
    *(b"hello", b"5\r\nhello\r\n", b"0\r\n\r\n", b"\0", b"\xff", b" ", b"\n", b"\r", b":", b"z" * 600),
]


@settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    fragments=st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=30)), max_size=15),
    cuts=st.lists(st.integers(min_value=0, max_value=600), max_size=8),
    turns=st.integers(min_value=0, max_value=3),
)
async def test_a12_no_bytes_at_all_harm_the_door(fragments: list[bytes], cuts: list[int], turns: int) -> None:
    """It neither raises, nor loses count, nor ceases to serve, and what it answers is HTTP."""
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    data = b"".join(fragments)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    limits = HttpLimits(header_bytes=1000, body_bytes=2000)
    async with start_listener(app := App(), limits) as site:
        client, front = await site.fronted()
        for start, end in itertools.pairwise(places):
            if not front.transport.is_closing():
                front.data_received(data[start:end])
            for _ in range(turns):
                await asyncio.sleep(0)
        app.go.set()
        await served(site)
        client.writer.write_eof()
        got = await client.rest()
        assert re.match(rb"HTTP/1\.1 \d{3} [A-Z]", got) or not got
        await site.connections.reach(0)
    assert problems == []
