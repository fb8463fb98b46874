"""A connection handles HTTP/1.1 correctly, however the bytes are split."""

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from rookery.wire.http.pool import HttpLimits
from tests.support.http.listener import LIMIT, RawResponse, body_of, echo, reply, request, start_listener, within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

CHUNKED = "Transfer-Encoding: chunked"
JSON = "Content-Type: application/json"


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    """An answer in three pieces, of unknown length."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one ", b"", b"two "):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"three"})


class Gated:
    """An app that answers /slow only when it is let, and everything else at once."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.lost = asyncio.Event()
        self.go = asyncio.Event()
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await body_of(receive)
        if scope["path"] == "/slow":
            scope["extensions"]["rookery.on_lost"](self.lost.set)
            self.reached.set()
            await self.go.wait()
        await reply(send, scope["path"].encode())


# ---- keeping and closing


async def test_a_connection_is_used_again_for_the_next_request() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        for number in range(3):
            answer = await client.ask(request("GET", f"/{number}"))
            assert answer.json()["path"] == f"/{number}"
            assert answer.kept
        assert len(site.connections) == 1


async def test_a_client_that_asks_for_it_is_closed_after_its_answer() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        answer = await client.ask(request("GET", "/", "Connection: close"))
        assert not answer.kept
        assert await client.rest() == b""


async def test_http_1_0_is_answered_and_closed() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        answer = await client.ask(b"GET /old HTTP/1.0\r\n\r\n")
        assert answer.json()["path"] == "/old"
        assert not answer.kept
        assert await client.rest() == b""


async def test_http_1_0_can_keep_its_connection_by_asking() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        for _ in range(2):
            assert (await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")).kept


async def test_a_stream_goes_in_chunks_and_to_http_1_0_until_the_close() -> None:
    async with start_listener(stream) as site:
        client = await site.client()
        answer = await client.ask(request())
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.body == b"one two three"
        assert (await client.ask(request())).body == b"one two three"
        old = await site.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert "transfer-encoding" not in old.headers
        assert old.body == b"one two three"


@requirement("house.limits.requests")
async def test_an_idle_connection_is_closed_after_its_time_and_not_before_an_answer() -> None:
    async with start_listener(app := Gated(), HttpLimits(keep_alive_seconds=0.1)) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"))
        await within_limit(app.reached.wait())
        idle = await site.client()
        await idle.ask(request())
        assert await idle.rest() == b""  # and so at least as much time has passed for the other
        app.go.set()
        assert (await client.answer()).body == b"/slow"
        assert await client.rest() == b""


async def test_a_stray_line_end_between_requests_begins_no_request() -> None:
    async with start_listener(echo, HttpLimits(header_seconds=0.5, keep_alive_seconds=LIMIT)) as site:
        client, front = await site.fronted()
        await client.ask(request())
        front.data_received(b"\r\n\r\n")
        await site.ask(b"G")  # another one, which runs out of its header time meanwhile
        assert (await client.ask(request())).status == 200


# ---- answers without a body


async def test_head_gets_the_headers_and_no_body() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        await client.send(request("HEAD"), request("GET", "/next"))
        assert (await client.answer(bodyless=True)).headers["content-type"] == "application/json"
        assert (await client.answer()).json()["path"] == "/next"


async def test_head_of_a_stream_claims_no_length() -> None:
    async with start_listener(stream) as site:
        client = await site.client()
        await client.send(request("HEAD"), request())
        assert "content-length" not in (await client.answer(bodyless=True)).headers
        assert (await client.answer()).body == b"one two three"


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_has_no_body_by_nature_has_no_length_either(status: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"left out", status)

    async with start_listener(app) as site:
        client = await site.client()
        for _ in range(2):
            answer = await client.ask(request())
            assert answer.status == status
            assert not {"content-length", "transfer-encoding"} & set(answer.headers)


# ---- bodies of requests


async def test_a_body_of_known_length_arrives_whole() -> None:
    async with start_listener(echo) as site:
        for size in (0, 1, 65_535, 65_536, 65_537, 1_000_000):
            answer = await site.ask(request("POST", "/", body=b"x" * size))
            assert answer.json()["body"] == "x" * size


async def test_a_chunked_body_arrives_whole() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        pieces = [b"x" * size for size in (1, 10, 70_000, 3)]
        chunks = [b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        answer = await client.ask(request("POST", "/", CHUNKED, JSON), *chunks, b"0\r\n\r\n")
        assert answer.json()["body"] == b"".join(pieces).decode()
        assert (await client.ask(request())).status == 200


async def test_trailers_do_not_join_the_headers_that_were_judged() -> None:
    async with start_listener(echo) as site:
        body = b"2\r\n{}\r\n0\r\nX-Workspace-Path: /other\r\nAuthorization: Bearer stolen\r\n\r\n"
        answer = await site.ask(request("POST", "/", CHUNKED, JSON), body)
        names = [name for name, _ in answer.json()["headers"]]
        assert names == ["host", "transfer-encoding", "content-type"]


async def test_100_continue_is_said_when_the_app_wants_the_body() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        head = request("POST", "/", JSON, "Content-Length: 2", "Expect: 100-Continue")
        assert (await client.ask(head)).status == 100
        assert (await client.ask(b"{}")).json()["body"] == "{}"
        assert (await client.ask(request())).status == 200


async def test_100_continue_is_not_said_for_a_body_that_nobody_wants() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, b"no", 422)

    async with start_listener(app) as site:
        client = await site.client()
        head = request("POST", "/", JSON, "Content-Length: 2", "Expect: 100-continue")
        assert (await client.ask(head)).status == 422
        assert await client.rest() == b""


async def test_100_continue_is_never_said_to_http_1_0() -> None:
    async with start_listener(echo) as site:
        head = b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        assert (await site.ask(head, b"{}")).json()["body"] == "{}"


# ---- what is not served


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
async def test_a_request_to_upgrade_is_answered_as_if_it_had_not_asked_and_closed(upgrade: str) -> None:
    async with start_listener(echo) as site:
        wish = [f"Upgrade: {upgrade}", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13"]
        client = await site.client()
        answer = await client.ask(request("GET", "/ws?a=b", *wish, "X-Other: kept"))
        assert answer.status == 200
        assert not answer.kept
        assert (answer.json()["path"], answer.json()["query"]) == ("/ws", "a=b")
        assert ["x-other", "kept"] in answer.json()["headers"]
        assert await client.rest() == b""


async def test_a_request_to_upgrade_keeps_its_body() -> None:
    """Java's HttpClient asks for h2c on its first request, also where that is a POST."""
    async with start_listener(echo) as site:
        wish = [
            "Upgrade: h2c",
            "Connection: Upgrade, HTTP2-Settings",
            "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA",
        ]
        for cut in (0, 1, 5):
            client, front = await site.fronted()
            head = request("POST", "/", *wish, JSON, "Content-Length: 5")
            front.data_received(head + b"hello"[:cut])
            front.data_received(b"hello"[cut:]) if cut < 5 else None
            assert (await client.answer()).json()["body"] == "hello"
            client.close()


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT evil.test:80 HTTP/1.1",
        "CONNECT /path HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
        "GET http://evil.test/ HTTP/1.1",
        "GET x HTTP/1.1",
    ],
)
async def test_only_paths_are_served(line: str) -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        answer = await client.ask(line.encode(), b"\r\nHost: here\r\n\r\n")
        assert (answer.status, answer.code) == (400, "bad-request")
        assert not answer.kept
        assert await client.rest() == b""


@requirement("house.limits.requests")
@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00",
        b"hello\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\nHost: here\n\n",
        b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\rX: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\x80: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    ],
)
async def test_a12_garbage_is_answered_with_400_and_runs_nothing(garbage: bytes) -> None:
    heard: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(await body_of(receive))
        await reply(send)

    async with start_listener(app) as site:
        client = await site.client()
        answer = await client.ask(garbage)
        assert (answer.status, answer.code) == (400, "bad-request")
        assert await client.rest() == b""
        assert heard == []
        assert (await site.ask(request())).status == 200


async def test_garbage_behind_a_whole_request_takes_no_answer_from_it() -> None:
    async with start_listener(app := Gated()) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"), b"\x00 garbage \r\n\r\n")
        await within_limit(app.reached.wait())
        app.go.set()
        assert (await client.answer()).body == b"/slow"
        assert (await client.answer()).code == "bad-request"
        assert await client.rest() == b""


async def test_garbage_behind_the_last_request_is_not_answered() -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        assert (await client.ask(request("GET", "/", "Connection: close"), b"\x00 garbage")).status == 200
        assert await client.rest() == b""


# ---- pieces and spellings


async def test_a_request_in_any_two_pieces_or_byte_by_byte_gets_the_same_answer() -> None:
    chunked = b"2\r\n{}\r\n3;x=y\r\nabc\r\n0\r\nTrailer: 1\r\n\r\n"
    whole = request("POST", "/a%20b?c=d", JSON, CHUNKED) + chunked + request("GET", "/next", "X:  y ")
    async with start_listener(echo) as site:
        client, front = await site.fronted()

        async def answers(*pieces: bytes) -> list[bytes]:
            for piece in pieces:
                front.data_received(piece)
            return [(await client.answer()).body for _ in range(2)]

        expected = await answers(whole)
        assert await answers(*(whole[at : at + 1] for at in range(len(whole)))) == expected
        for at in range(1, len(whole)):
            assert await answers(whole[:at], whole[at:]) == expected, at
        assert len(site.connections) == 1


async def test_header_values_lose_the_white_space_around_them_and_keep_their_bytes() -> None:
    async with start_listener(echo) as site:
        sent = ["A:b", "B:  \t b c \t ", "C:", "D: \xe9\xff", "E: a:b", "e: second"]
        heard = (await site.ask(request("GET", "/", *sent))).json()["headers"]
        assert heard[1:] == [["a", "b"], ["b", "b c"], ["c", ""], ["d", "\xe9\xff"], ["e", "a:b"], ["e", "second"]]


async def test_a_path_is_decoded_once_and_its_raw_form_kept() -> None:
    seen: list[tuple[str, bytes, bytes]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], scope["raw_path"], scope["query_string"]))
        await reply(send)

    async with start_listener(app) as site:
        for path in ("/%C3%A9?q=%20", "/%252e", "/a%2Fb", "/%ff", "/x?y#z", "/%zz"):
            assert (await site.ask(request("GET", path))).status == 200
    assert seen == [
        ("/é", b"/%C3%A9", b"q=%20"),
        ("/%2e", b"/%252e", b""),
        ("/a/b", b"/a%2Fb", b""),
        ("/�", b"/%ff", b""),
        ("/x", b"/x", b"y"),
        ("/%zz", b"/%zz", b""),
    ]


# ---- pipelining


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    async with start_listener(app := Gated()) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"), request("GET", "/b"), request("POST", "/c", body=b"{}"))
        await within_limit(app.reached.wait())
        assert app.paths == ["/slow"]
        app.go.set()
        assert [(await client.answer()).body for _ in range(3)] == [b"/slow", b"/b", b"/c"]


async def test_a_refusal_waits_for_the_answers_before_it() -> None:
    """Or else the client takes it for the answer to its first request."""
    async with start_listener(app := Gated(), HttpLimits(body_bytes=100)) as site:
        for last, status in ((request("POST", "/b", body=b"x" * 101), 413), (request("GET", "*"), 400)):
            client = await site.client()
            app.reached.clear()
            app.go.clear()
            await client.send(request("GET", "/slow"), request("GET", "/a"), last, request("GET", "/never"))
            await within_limit(app.reached.wait())
            app.go.set()
            answers: list[RawResponse] = [await client.answer() for _ in range(3)]
            assert [answer.status for answer in answers] == [200, 200, status]
            assert [answer.kept for answer in answers] == [True, True, False]
            assert await client.rest() == b""
        assert "/never" not in app.paths


@requirement("house.limits.requests")
async def test_more_pipelined_requests_than_the_limit_are_cut_off() -> None:
    async with start_listener(app := Gated()) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"), request("GET", "/b") * 5000)
        assert await client.rest() == b""
        await site.connections.reach(0)
        assert set(app.paths) <= {"/slow"}


# ---- one write, and a client that goes


async def test_an_answer_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_listener(echo) as site:
        client, front = await site.fronted()
        written: list[bytes] = []
        write = front.transport.write

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                written.append(data)
                write(data)

        transport = front.transport
        monkeypatch.setattr(front, "transport", Counting())
        bodies = [(await client.ask(request("POST", "/", body=b"x" * size))).body for size in (0, 10, 50_000)]
        assert [data.partition(b"\r\n\r\n")[2] for data in written] == bodies
        await client.ask(request("GET", "*"))
        assert len(written) == 4


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("size", [0, 10, 100_000])
async def test_a15_an_app_that_waits_is_told_that_its_client_has_gone(how: str, size: int) -> None:
    """Also after a large body, for which reading was paused."""
    async with start_listener(app := Gated()) as site:
        client = await site.client()
        await client.send(request("POST", "/slow", body=b"x" * size))
        await within_limit(app.reached.wait())
        client.close() if how == "close" else client.reset()
        await within_limit(app.lost.wait())
        await site.connections.reach(0)
        app.go.set()
        assert (await site.ask(request())).status == 200


async def test_whoever_asks_after_the_loss_is_told_at_once_and_reads_a_disconnect() -> None:
    told = asyncio.Event()
    lost = asyncio.Event()
    types: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"]["rookery.on_lost"](lost.set)
        await lost.wait()
        scope["extensions"]["rookery.on_lost"](told.set)
        types.append((await receive())["type"])
        await reply(send, b"to nobody")

    async with start_listener(app) as site:
        client, _ = await site.fronted()
        await client.send(request("POST", "/", JSON, "Content-Length: 2", "Expect: 100-continue"))
        client.reset()
        await within_limit(told.wait())
        await site.connections.reach(0)
        assert types == ["http.disconnect"]


async def test_a_client_that_closes_its_half_counts_as_gone() -> None:
    async with start_listener(app := Gated()) as site:
        client = await site.client()
        await client.send(request("GET", "/slow"))
        await within_limit(app.reached.wait())
        client.writer.write_eof()
        await within_limit(app.lost.wait())
        app.go.set()
        assert await client.rest() == b""
