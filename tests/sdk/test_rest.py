"""Requests of the SDK to a scripted server at the daemon's socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.sdk.rest import RestClient, drop_none, to_milliseconds, to_whole_milliseconds
from rookery.system.errors import RookeryError

pytestmark = pytest.mark.anyio

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
NOT_FOUND = (
    b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n"
    b'{"error": {"code": "session-not-found", "message": "there is no such session"}}'
)


@asynccontextmanager
async def server_that_sends(*pieces: bytes, state: Path, holds: bool = False) -> AsyncGenerator[list[str]]:
    """A server that sends these pieces to each client; yields the first lines of the requests."""
    requests: list[str] = []
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n")).decode().strip())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if holds:
            # Until the client closes the connection.
            while await reader.read(65536):
                pass
            closed.set()
        writer.close()

    server = await asyncio.start_unix_server(serve, state / "rookery.sock")
    try:
        yield requests
        if holds:
            await asyncio.wait_for(closed.wait(), 30)
    finally:
        server.close()


async def read_stream(seconds: float = 30.0) -> list[Any]:
    client = RestClient()
    try:
        stream = client.stream("GET", "/api/events", {"count": int, "": dict[str, Any]}, seconds=seconds)
        async with aclosing(stream):
            return [(event.type, event.data, event.id) async for event in stream]
    finally:
        await client.http.close()


async def test_events_arrive_with_the_types_of_their_names_and_with_ids(state: Path) -> None:
    pieces = [STREAM, b": hello\n\nevent: cou", b"nt\ndata: 3\n\n", b'id: 7\nevent: other\ndata: {"a": 1}\n\n']
    async with server_that_sends(*pieces, state=state):
        assert await read_stream() == [("count", 3, None), ("other", {"a": 1}, 7)]


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ([STREAM, b'event: error\ndata: {"error": {"code": "turn-failed", "message": "no"}}\n\n'], "turn-failed"),
        ([NOT_FOUND], "session-not-found"),
        ([STREAM, b"event: count\ndata: no number\n\n"], "internal-error"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nevent"], "daemon-unreachable"),
    ],
)
async def test_a_stream_that_fails_raises_the_error(pieces: list[bytes], code: str, state: Path) -> None:
    async with server_that_sends(*pieces, state=state):
        with pytest.raises(RookeryError) as caught:
            await read_stream()
    assert caught.value.code == code


async def test_the_time_limit_of_a_stream_counts_from_event_to_event(state: Path) -> None:
    async with server_that_sends(STREAM, b"event: count\ndata: 1\n\n", state=state, holds=True):
        with pytest.raises(RookeryError) as caught:
            await read_stream(seconds=0.2)
    assert caught.value.code == "timeout"


async def test_a_reader_that_leaves_a_stream_ends_the_request(state: Path) -> None:
    client = RestClient()
    async with server_that_sends(STREAM, b"event: count\ndata: 1\n\n", state=state, holds=True):
        stream = client.stream("GET", "/api/events", {}, seconds=30.0)
        async with aclosing(stream):
            assert (await anext(stream)).data == 1
    await client.http.close()


async def test_bytes_come_with_their_media_type_and_the_headers_of_rookery(state: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: image/png; q=1\r\nX-Rookery-Source: terminal\r\ncontent-length: 3\r\n\r\n"
    client = RestClient()
    async with server_that_sends(head + b"\x89PN", state=state) as requests:
        query = {"scale": 2, "since": 1.5, "json": False, "colours": True, "text": "a b&c", "none": None}
        result = await client.download("GET", "/api/x", query=query, seconds=30.0)
    await client.http.close()
    assert (result.data, result.media_type, result.headers) == (
        b"\x89PN",
        "image/png",
        {"x-rookery-source": "terminal"},
    )
    assert requests == ["GET /api/x?scale=2&since=1.5&json=false&colours=true&text=a+b%26c HTTP/1.1"]


def test_times_are_sent_in_milliseconds_and_none_is_left_out() -> None:
    assert (to_milliseconds(1.5), to_milliseconds(None)) == (1500.0, None)
    assert (to_whole_milliseconds(0.0299999), to_whole_milliseconds(None)) == (30, None)
    assert drop_none({"a": None, "b": False, "c": 0}) == {"b": False, "c": 0}
