"""A repeated head is recognized by its bytes, without any other effect."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.types import Scope

from rookery.wire.http.auth import OWNER, Tokens, make_tcp_authenticator
from rookery.wire.http.connection import HttpServerConnection
from rookery.wire.http.head import RequestHead
from rookery.wire.http.head_cache import RepeatedHead, make_repeated_head
from rookery.wire.http.pool import HttpLimits
from tests.support.http.listener import Client, echo, request, start_listener, within_limit

pytestmark = pytest.mark.anyio

_SIX = b'{"a":1'


@pytest.fixture
def repeats(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The bodies of requests that were not parsed."""
    seen: list[bytes] = []
    repeat = HttpServerConnection._handle_repeated

    def noted(self: HttpServerConnection, known: RepeatedHead, body: bytes) -> None:
        seen.append(body)
        repeat(self, known, body)

    monkeypatch.setattr(HttpServerConnection, "_handle_repeated", noted)
    yield seen


def scope_of(data: bytes, **more: Any) -> Scope:
    """What the parser makes of a request."""
    lines = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    pairs = [line.partition(b":")[::2] for line in lines[1:]]
    head = RequestHead([(name.lower(), value.strip()) for name, value in pairs])
    method, path, version = lines[0].decode().split(" ")
    return {"method": method, "path": path, "http_version": version.removeprefix("HTTP/"), "headers": head, **more}


async def heard(client: Client, data: bytes) -> dict[str, Any]:
    return (await client.ask(data)).json()


async def test_requests_with_the_same_head_are_heard_as_they_were_sent(repeats: list[bytes]) -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        for body in (b"{}", b'{"a": 1}', b"", b'{"b": 12345678901234567890}', b"{}"):
            data = request("POST", "/mcp?x=1", "X-Tag: y", body=body)
            first = await heard(await site.client(), data)
            assert await heard(client, data) == first
            assert first["body"] == body.decode() and ["content-length", str(len(body))] in first["headers"]
    assert repeats == [b'{"a": 1}', b"", b'{"b": 12345678901234567890}', b"{}"]


async def test_another_head_is_parsed_and_known_from_then_on(repeats: list[bytes]) -> None:
    async with start_listener(echo) as site:
        client = await site.client()
        for path in ("/a", "/b", "/b", "/a"):
            assert (await heard(client, request("POST", path, body=_SIX)))["path"] == path
    assert repeats == [_SIX]


async def test_a_repeated_request_may_come_in_pieces_or_with_the_next_one(repeats: list[bytes]) -> None:
    data = request("POST", "/a", body=_SIX)
    async with start_listener(echo) as site:
        client = await site.client()
        await client.ask(data)
        for cut in (1, 20, data.index(b"\r\n\r\n") + 2, len(data) - 1):
            await client.send(data[:cut])
            await client.send(data[cut:])
            assert (await client.answer()).json()["body"] == _SIX.decode()
        await client.send(data + data)
        for _ in range(2):
            assert (await client.answer()).json()["body"] == _SIX.decode()
        assert (await heard(client, data))["body"] == _SIX.decode()


async def test_a_token_that_counts_no_more_is_refused_on_a_connection_that_it_opened(repeats: list[bytes]) -> None:
    tokens = Tokens()
    tokens.add("one", OWNER)
    async with start_listener(echo, judge_of=lambda port: make_tcp_authenticator(port, tokens)) as site:
        client = await site.client()
        data = request("POST", "/a", "Authorization: Bearer one", body=_SIX)
        data = data.replace(b"Host: here", b"Host: 127.0.0.1:%d" % site.port)
        assert [(await client.ask(data)).status for _ in range(2)] == [200, 200]
        tokens.remove("one")
        assert (await client.ask(data)).status == 401
    assert len(repeats) == 2


async def test_a_body_that_is_too_large_is_refused_however_often_its_head_was_heard(repeats: list[bytes]) -> None:
    async with start_listener(echo, HttpLimits(body_bytes=2000)) as site:
        client = await site.client()
        assert (await client.ask(request("POST", "/a", body=_SIX))).status == 200
        assert (await client.ask(request("POST", "/a", body=b"1" * 2001))).status == 413
    assert len(repeats) == 1


@pytest.mark.parametrize(
    ("method", "header"),
    [
        ("POST", "Expect: 100-continue"),
        ("POST", "Connection: close"),
        ("POST", "Transfer-Encoding: chunked"),
        ("POST", "Content-Length: 6"),
        ("PUT", "X-Tag: y"),
    ],
)
def test_what_asks_for_more_than_to_be_read_is_parsed_each_time(method: str, header: str) -> None:
    data = request(method, "/a", header, body=_SIX)
    assert make_repeated_head(data, scope_of(data), len(data)) is None


def test_a_request_is_learned_only_from_all_of_it_and_nothing_else() -> None:
    data = request("POST", "/a", body=_SIX)
    assert make_repeated_head(data, scope_of(data), len(data)) is not None
    assert make_repeated_head(data[:-1], scope_of(data), len(data[:-1])) is None
    assert make_repeated_head(data + b"G", scope_of(data), len(data + b"G")) is None


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(-3, 3))
def test_only_a_whole_request_with_that_head_has_a_body(before: bytes, body: bytes, off: int) -> None:
    first = request("POST", "/a", body=b"{}")
    known = make_repeated_head(first, scope_of(first), len(first))
    assert known is not None
    data = request("POST", "/a", body=body)
    assert known.match_body(data) == body
    assert ("content-length", str(len(body))) in [(a.decode(), b.decode()) for a, b in known.head]
    assert known.match_body(data + b"G") is None and known.match_body(data[:-1]) is None
    if before:
        assert known.match_body(before + data) is None
    if off:
        other = data.replace(b"Length: %d" % len(body), b"Length: %d" % max(0, len(body) + off))
        assert known.match_body(other) in (None, body if other == data else None)
    for sign in (b"+", b"-", b" ", b"0x", b"_"):
        assert known.match_body(data.replace(b"Length: ", b"Length: " + sign)) is None


async def test_the_scope_of_a_repeated_request_is_its_own(repeats: list[bytes]) -> None:
    seen: list[int] = []

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        seen.append(scope["state"].get("count", 0))
        scope["state"]["count"] = 1
        scope["mine"] = json.dumps(seen)
        await echo(scope, receive, send)

    async with start_listener(app) as site:
        client = await site.client()
        for _ in range(3):
            await client.ask(request("POST", "/a", body=_SIX))
    assert seen == [0, 0, 0] and len(repeats) == 2


async def test_the_end_of_a_request_is_not_taken_for_a_whole_one(
    repeats: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in a header, on its own it is what it says."""
    begun, on_url = asyncio.Event(), HttpServerConnection.on_url

    def noted(self: HttpServerConnection, url: bytes) -> None:
        begun.set()
        on_url(self, url)

    monkeypatch.setattr(HttpServerConnection, "on_url", noted)
    async with start_listener(echo) as site:
        inner = request("POST", "/inner", "X-Tag: y", body=b"{}")
        outer = request("POST", "/outer", "X-Tag: y", body=b"{}").partition(b"Content-Length")[0] + b"X-Inner: "
        client = await site.client()
        await client.send(outer)
        await within_limit(begun.wait())
        # The rest comes in a piece of its own, and looks like a request.
        assert (await heard(client, inner))["path"] == "/outer"
        assert (await heard(client, inner))["path"] == "/inner"
    assert repeats == []
