"""Connections that are kept, abandoned, cut off and closed; no request that may have arrived is sent twice."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.client.http import HttpTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.http_client.connection import HttpBroken, HttpResponse
from rookery.wire.http_client.request import HttpRequestWriter
from tests.support.mcp.client import (
    LIMIT,
    Handler,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    connect,
    within_limit,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as made:
        yield made


class Peer(ScriptedHttpServer):
    """Knows on how many connections it was asked."""

    def __init__(self, handler: Handler) -> None:
        self.ports: list[int] = []

        async def counted(asked: HttpRequest, out: HttpResponder) -> None:
            self.ports.append(out.writer.get_extra_info("peername")[1])
            await handler(asked, out)

        super().__init__(counted)

    @property
    def connections(self) -> int:
        return len(set(self.ports))


async def ask(http: HttpClient, server: ScriptedHttpServer, method: str = "POST") -> HttpResponse:
    requests = HttpRequestWriter(server.url, {})
    body = b"{}" if method == "POST" else None
    return await within_limit(http.send(requests.origin, requests.write(method, {}, body), idempotent=method == "GET"))


async def told(http: HttpClient, server: ScriptedHttpServer, method: str = "POST") -> bytes:
    with await ask(http, server, method) as answer:
        return await within_limit(answer.read())


async def until(true: Callable[[], object]) -> None:
    """For what only the client itself knows, and tells nobody."""
    async with asyncio.timeout(LIMIT):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def ok(asked: HttpRequest, out: HttpResponder) -> None:
    await out.answer(200, b"ok")


# ---- keeping


async def test_a_connection_serves_one_request_after_another(http: HttpClient) -> None:
    async with Peer(ok) as server:
        assert [await told(http, server) for _ in range(10)] == [b"ok"] * 10
        assert server.connections == 1


async def test_requests_at_the_same_time_have_connections_of_their_own(http: HttpClient) -> None:
    together = asyncio.Barrier(20)

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await together.wait()
        await ok(asked, out)

    async with Peer(handler) as server:
        for _ in range(2):
            assert await asyncio.gather(*(told(http, server) for _ in range(20))) == [b"ok"] * 20
        assert server.connections == 20


async def test_an_idle_connection_is_closed_after_a_while(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.client._IDLE_SECONDS", 0.05)
    async with Peer(ok) as server:
        await told(http, server)
        await until(lambda: not http._connections and not http._idle and http._sweeper is None)
        assert await told(http, server) == b"ok"
        assert server.connections == 2


async def test_a_connection_is_not_used_in_the_last_second_that_the_server_keeps_it(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(200, b"ok", headers={"Keep-Alive": "timeout=1, max=100"})

    async with Peer(handler) as server:
        assert [await told(http, server) for _ in range(3)] == [b"ok"] * 3
        assert server.connections == 3


async def test_a_connection_that_the_server_closed_is_not_used_again(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await ok(asked, out)
        out.writer.close()

    async with Peer(handler) as server:
        for _ in range(3):
            assert await told(http, server) == b"ok"
            await until(lambda: not http._connections)
        assert server.connections == len(server.asked) == 3


async def test_what_a_server_says_unasked_costs_it_the_connection(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await ok(asked, out)
        await out.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    async with Peer(handler) as server:
        for _ in range(2):
            assert await told(http, server) == b"ok"
            await until(lambda: not http._connections)


# ---- D20


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_d20_only_a_harmless_request_is_sent_again_where_a_kept_connection_is_dead(
    method: str, http: HttpClient
) -> None:
    seen: list[int] = []

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        seen.append(len(seen))
        if len(seen) == 2:
            out.reset()
        else:
            await ok(asked, out)

    async with Peer(handler) as server:
        await told(http, server)
        if method == "GET":
            assert await told(http, server, method) == b"ok"
            assert len(seen) == 3
        else:
            with pytest.raises(ConnectionError):
                await told(http, server, method)
            assert len(seen) == 2
            assert await told(http, server) == b"ok"


async def test_d20_a_harmless_request_is_not_sent_again_once_its_answer_has_begun(http: HttpClient) -> None:
    seen: list[int] = []

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        seen.append(len(seen))
        await (ok(asked, out) if len(seen) == 1 else out.raw(b"HTTP/1.1 2"))
        if len(seen) > 1:
            out.writer.close()

    async with Peer(handler) as server:
        await told(http, server)
        with pytest.raises(HttpBroken, match="before the response was complete"):
            await told(http, server, "GET")
        assert len(seen) == 2


# ---- bodies


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_server_that_closes_its_side_has_answered_all_the_same(method: str, http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.raw(b"HTTP/1.1 200 OK\r\n\r\nto the ")
        await out.raw(b"end")
        out.writer.write_eof()
        await out.left()

    async with Peer(handler) as server:
        assert await told(http, server, method) == b"to the end"


async def test_a_server_that_closes_its_side_too_early_has_not_answered(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        out.writer.write_eof()
        await out.left()

    async with Peer(handler) as server:
        with pytest.raises(HttpBroken, match="before the response was complete"):
            await told(http, server)


async def test_a_large_answer_comes_whole_and_a_large_request_too(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(200, asked.body)

    async with Peer(handler) as server:
        requests, body = HttpRequestWriter(server.url, {}), bytes(range(256)) * 40_000
        for _ in range(2):
            with await within_limit(http.send(requests.origin, requests.write("POST", {}, body))) as answer:
                assert await within_limit(answer.read()) == body
        assert server.connections == 1


async def test_a_server_that_talks_more_than_is_read_has_to_wait(http: HttpClient) -> None:
    written: list[int] = []

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        while True:
            await out.chunk(b"x" * 65_536)
            written.append(65_536)

    async with Peer(handler) as server:
        with await ask(http, server) as answer:
            await until(lambda: not next(iter(http._connections))._reading)
            assert len(answer._body) < 2**20
            read = 0
            while read < 2**24:
                read += len(await within_limit(answer.next()))
                assert len(answer._body) < 2**20
        await until(lambda: not http._connections)


async def test_an_answer_that_trickles_is_waited_for_as_long_as_the_caller_wants(http: HttpClient) -> None:
    left = asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n":
            await out.raw(bytes([byte]))
        limit.reschedule(asyncio.get_running_loop().time())
        await out.left()
        left.set()

    async with Peer(handler) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await told(http, server)
        await within_limit(left.wait())


# ---- giving up


@pytest.mark.parametrize("begun", [False, True], ids=["before the head", "in the body"])
async def test_whoever_gives_up_an_answer_closes_its_connection(begun: bool, http: HttpClient) -> None:
    asked_for, left = asyncio.Event(), asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if begun:
            await out.stream()
        asked_for.set()
        await out.left()
        left.set()

    async with Peer(handler) as server:
        asking = asyncio.get_running_loop().create_task(told(http, server))
        await within_limit(asked_for.wait())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within_limit(asking)
        await within_limit(left.wait())


async def test_a_stream_that_ends_after_what_was_wanted_keeps_its_connection(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.chunk(b"wanted")
        await out.chunk(b"not wanted")
        await out.end()

    async with Peer(handler) as server:
        for _ in range(3):
            with await ask(http, server) as answer:
                assert (await within_limit(answer.next())).startswith(b"wanted")
                answer.discard_rest()
            await until(lambda: http._idle.get(HttpRequestWriter(server.url, {}).origin))
        assert server.connections == 1


@pytest.mark.parametrize("talks", [False, True])
async def test_a_stream_that_does_not_end_after_what_was_wanted_is_cut(
    talks: bool, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.wire.http_client.connection._LINGER_SECONDS", 60.0 if talks else 0.05)
    left = asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.chunk(b"wanted")
        with contextlib.suppress(ConnectionError):
            while talks:
                await out.chunk(b"x" * 1000)
            await out.left()
        left.set()

    async with Peer(handler) as server:
        with await ask(http, server) as answer:
            assert (await within_limit(answer.next())).startswith(b"wanted")
            answer.discard_rest()
        await within_limit(left.wait())
        await until(lambda: not http._connections)


async def test_closing_the_client_ends_what_runs_and_what_is_kept() -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await (ok(asked, out) if asked.method == "GET" else out.left())

    async with Peer(handler) as server:
        http = HttpClient()
        running = [asyncio.get_running_loop().create_task(told(http, server)) for _ in range(3)]
        await until(lambda: len(server.asked) == 3)
        assert await told(http, server, "GET") == b"ok"
        await within_limit(http.close())
        assert not http._connections
        for task in running:
            with pytest.raises(HttpBroken):
                await within_limit(task)
        with pytest.raises(HttpBroken, match="closed"):
            await told(http, server)
        await within_limit(http.close())


# ---- connecting


async def test_an_address_that_refuses_is_an_error(http: HttpClient) -> None:
    server = Peer(ok)
    await server.start()
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await told(http, server)


@pytest.mark.parametrize(
    ("url", "headers", "match"),
    [
        ("http://no-such-host.invalid/mcp", {}, "the name no-such-host.invalid cannot be resolved"),
        ("http://127.0.0.1:99999/mcp", {}, "out of range"),
        ("gopher://127.0.0.1/", {}, "not a valid http or https URL"),
        ("http://127.0.0.1:9/", {"X-Key": "s3cret\r\nX-Evil: 1"}, "X-Key must not contain a line break"),
    ],
)
async def test_what_cannot_be_asked_is_a_typed_error(
    url: str, headers: dict[str, str], match: str, http: HttpClient
) -> None:
    with pytest.raises(RookeryError, match=match) as caught:
        async with connect(HttpTransport(http, url, headers)):
            pass
    assert caught.value.code == "upstream-failed"
    assert "s3cret" not in str(caught.value)


async def test_a_server_at_an_ipv6_address_is_reached(http: HttpClient) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 Told\r\n\r\n")
        writer.close()

    heads: list[bytes] = []
    async with await asyncio.start_server(serve, "::1") as server:
        port: int = server.sockets[0].getsockname()[1]
        requests = HttpRequestWriter(f"http://[::1]:{port}/", {})
        with await within_limit(http.send(requests.origin, requests.write("GET", {}))) as answer:
            assert answer.status == 204
        assert b"Host: [::1]:%d\r\n" % port in heads[0]


async def test_a_call_through_a_stream_keeps_its_connection(http: HttpClient) -> None:
    """As most servers answer: an event, then the end of the stream."""

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.event(asked.result({"content": []}))
        await out.end()

    async with (
        Peer(HandshakeHandler(on_call, sessions=False)) as server,
        connect(HttpTransport(http, server.url)) as met,
    ):
        for _ in range(10):
            await within_limit(met.client.call_tool("echo", {}))
            await until(lambda: http._idle.get(HttpRequestWriter(server.url, {}).origin))
        assert server.connections == 1
