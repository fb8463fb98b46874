"""Responses in every form, cut at every byte, and invalid bytes."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rookery.wire.http_client.connection import HttpClientConnection


class Line(asyncio.Transport):
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        """The test knows what it asks."""

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing comes unless the test says so."""

    resume_reading = pause_reading


class Told:
    """What became of one request whose answer came in these pieces, before the connection ended."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.status, self.kind = 0, ""
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes | None = None
        self.error: Exception | None = None
        self.freed = 0
        asyncio.run(self._run(pieces))

    async def _run(self, pieces: Sequence[bytes]) -> None:
        line = Line()
        connection = HttpClientConnection(self._count, lambda _: None)
        connection.connection_made(line)
        asking = asyncio.get_running_loop().create_task(connection.send(b""))
        await asyncio.sleep(0)
        for piece in pieces:
            if not line.closed:
                connection.data_received(piece)
        connection.connection_lost(None)
        try:
            answer = await asking
            self.status, self.kind, self.headers = answer.status, answer.media_type, answer.headers
            self.body = await answer.read()
        except (OSError, ValueError) as error:
            self.error = error

    def _count(self, _: HttpClientConnection) -> None:
        self.freed += 1


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[first:last] for first, last in itertools.pairwise(marks)]


def by_length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def by_chunks(body: bytes) -> bytes:
    chunks = [body[place : place + 7] for place in range(0, len(body), 7)]
    framed = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\nX-Trailer: 1\r\n\r\n"


def by_end(body: bytes) -> bytes:
    return b"\r\n" + body


framings: list[Callable[[bytes], bytes]] = [by_length, by_chunks, by_end]
before = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3])


@settings(deadline=None, max_examples=200)
@given(
    st.binary(max_size=100),
    st.sampled_from(framings),
    before,
    st.sampled_from([200, 202, 400, 404, 500]),
    st.lists(st.integers(0, 1000), max_size=20),
)
def test_an_answer_is_the_same_wherever_it_is_cut(
    body: bytes, framed: Callable[[bytes], bytes], before: bytes, status: int, places: list[int]
) -> None:
    data = before + b"HTTP/1.1 %d Told\r\nContent-Type: text/plain ; x=y\r\n%b" % (status, framed(body))
    told = Told(cut(data, places))
    assert (told.status, told.kind, told.body) == (status, "text/plain", body)
    assert b"link" not in told.headers and b"x-trailer" not in told.headers
    assert told.freed == (framed is not by_end)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([by_length, by_chunks]), st.integers(0, 10_000), st.lists(st.integers(0, 1000), max_size=5))
def test_an_answer_that_breaks_off_is_an_error_wherever_it_does(
    framed: Callable[[bytes], bytes], end: int, places: list[int]
) -> None:
    data = b"HTTP/1.1 200 OK\r\n" + framed(b"what was said")
    told = Told(cut(data[: end % len(data)], places))
    assert isinstance(told.error, ConnectionError)
    assert (told.body, told.freed) == (None, 0)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 101 x\r\n", b"HTTP/1.0 204 x\r\n", b"\r\n", b"\n", b"\0"]
            ),
            st.sampled_from([b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"]),
            st.sampled_from([b"Upgrade: x\r\nConnection: upgrade\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"hello"]),
        ),
        max_size=12,
    )
)
def test_whatever_comes_is_an_answer_or_an_error(pieces: list[bytes]) -> None:
    told = Told(pieces)
    assert (told.body is None) is (told.error is not None)
    assert told.freed <= 1


@pytest.mark.parametrize(
    "after",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", b"HTTP/1.1 2", b"garbage\0", b"\r\n\r\nx"],
    ids=["answer", "half an answer", "garbage", "lines"],
)
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "later"])
def test_what_comes_after_the_answer_is_nobodys(after: bytes, apart: bool) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
    told = Told([answer, after] if apart else [answer + after])
    assert (told.body, told.error) == (b"good", None)
    # Where it comes later, the connection was free for that long.
    assert told.freed == (1 if apart else 0)


@pytest.mark.parametrize(
    ("head", "freed"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", 0),
        (b"HTTP/1.0 200 OK\r\n", 0),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n", 1),
    ],
)
def test_a_connection_is_used_again_where_the_server_wants_it(head: bytes, freed: int) -> None:
    told = Told([head + b"Content-Length: 2\r\n\r\nok"])
    assert (told.body, told.freed) == (b"ok", freed)


def test_an_answer_without_a_body_is_whole_with_its_head() -> None:
    told = Told([b"HTTP/1.1 204 No Content\r\n\r\n"])
    assert (told.body, told.freed) == (b"", 1)


HUGE = b"X-Long: " + b"x" * 70_000


@pytest.mark.parametrize(
    ("pieces", "match"),
    [
        ([b"HTTP/1.1 200 OK\r\n", HUGE], "head of the response is larger"),
        ([b"HTTP/1.1 200 OK\r\n" + HUGE + b"\r\nContent-Length: 0\r\n\r\n"], "head of the response is larger"),
        ([b"HTTP/1.1 200 OK\r\n", *[b"X: 1\r\n"] * 20_000], "head of the response is larger"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"] * 5000, "head of the response is larger"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", *[b"x" * 1000] * 70], "head of the response"),
        ([b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"], "encoded as gzip"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"], "encoded as gzip, chunked"),
        ([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx"], "not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"], "not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], "not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "not valid HTTP"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "not valid HTTP"),
        ([], "before the response was complete"),
    ],
)
def test_an_answer_that_cannot_be_taken_is_told(pieces: list[bytes], match: str) -> None:
    told = Told(pieces)
    assert told.freed == 0
    with pytest.raises((OSError, ValueError), match=match):
        raise told.error or AssertionError
