"""Whatever an app does, its client gets a complete response or a closed connection."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from rookery.wire.http.exchange import REQUESTS_TOTAL
from tests.support.http.listener import body_of, reply, request, start_listener, within_limit

pytestmark = pytest.mark.anyio

START: Message = {"type": "http.response.start", "status": 200, "headers": []}
Act = Callable[[Receive, Send], Awaitable[None]]


def piece(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


class App:
    """Does at /bad whatever the test says, and answers everything else."""

    def __init__(self, act: Act) -> None:
        self.act = act

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/bad":
            await self.act(receive, send)
        else:
            await reply(send, scope["path"].encode())


async def fails_whole(act: Act, log: pytest.LogCaptureFixture) -> bool:
    """The answer is a whole 500, nothing of what was meant is in it, and the log tells why."""
    async with start_listener(App(act)) as site:
        client = await site.client()
        before = REQUESTS_TOTAL.value("200"), REQUESTS_TOTAL.value("500")
        with log.at_level(logging.ERROR, "rookery.http"):
            answer = await client.ask(request("GET", "/bad"))
        assert (answer.status, answer.code) == (500, "internal-error")
        assert list(answer.headers) == ["content-type", "content-length", "connection"]
        assert not answer.kept
        assert await client.rest() == b""
        assert (REQUESTS_TOTAL.value("200"), REQUESTS_TOTAL.value("500")) == (before[0], before[1] + 1)
        assert [record.getMessage() for record in log.records] == ["GET /bad failed"]
        return (await site.ask(request("GET", "/good"))).body == b"/good"


async def fails_halfway(act: Act, client_got: bytes) -> bool:
    """What was begun ends without its end, so that nobody takes it for whole."""
    async with start_listener(App(act)) as site:
        client = await site.client()
        await client.send(request("GET", "/bad"), request("GET", "/never"))
        got = await client.rest()
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(client_got)
        assert not got.endswith(b"0\r\n\r\n")
        return (await site.ask(request("GET", "/good"))).body == b"/good"


# ---- before the answer began


async def test_an_app_that_raises_before_its_answer_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        raise ValueError("secret detail")

    assert await fails_whole(act, caplog)


async def test_an_app_that_raises_after_the_start_alone_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(start((b"x-meant", b"otherwise"), (b"content-length", b"5")))
        raise ValueError("secret detail")

    assert await fails_whole(act, caplog)


async def test_an_app_that_returns_without_an_answer_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await body_of(receive)

    assert await fails_whole(act, caplog)


async def test_an_app_that_only_starts_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(START)

    assert await fails_whole(act, caplog)


async def test_an_app_that_speaks_out_of_turn_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(piece(b"too early"))

    assert await fails_whole(act, caplog)


async def test_an_answer_that_is_started_twice_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(START)
        await send(START)

    assert await fails_whole(act, caplog)


@pytest.mark.parametrize("length", [b"0", b"4", b"6", b"-5", b"five", b""])
async def test_a_whole_answer_of_another_length_than_it_says_is_a_500(
    length: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await reply(send, b"12345", headers=[(b"content-length", length)])

    assert await fails_whole(act, caplog)


@pytest.mark.parametrize(
    "header",
    [
        (b"x-name", b"value\r\nset-cookie: a=b"),
        (b"x-name", b"value\nset-cookie: a=b"),
        (b"x-name", b"value\rset-cookie: a=b"),
        (b"x-name", b"val\0ue"),
        (b"x-name\r\nset-cookie", b"a=b"),
        (b"x-name\nset-cookie", b"a=b"),
        (b"x-name\rset-cookie", b"a=b"),
        (b"x-name\0", b"a=b"),
        (b"set-cookie: a=b; x", b"y"),
    ],
)
async def test_a_header_that_would_make_two_is_a_500(
    header: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await reply(send, b"body", headers=[(b"x-fine", b"yes"), header])

    assert await fails_whole(act, caplog)


# ---- after it


async def test_an_app_that_raises_in_its_answer_leaves_it_without_an_end() -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(START)
        await send(piece(b"begun"))
        raise ValueError

    assert await fails_halfway(act, b"5\r\nbegun\r\n")


async def test_an_app_that_returns_in_its_answer_leaves_it_without_an_end() -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(START)
        await send(piece(b"begun"))

    assert await fails_halfway(act, b"5\r\nbegun\r\n")


@pytest.mark.parametrize("more", [b"", b"1234567"])
async def test_a_streamed_answer_of_another_length_than_it_says_is_cut_off(more: bytes) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send(start((b"content-length", b"10")))
        await send(piece(b"12345"))
        await send(piece(more, more=False))

    assert await fails_halfway(act, b"\r\n\r\n12345")


async def test_an_app_that_is_cancelled_from_within_closes_its_connection() -> None:
    async def act(receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    async with start_listener(App(act)) as site:
        client = await site.client()
        await client.send(request("GET", "/bad"))
        assert await client.rest() == b""
        await site.connections.reach(0)


async def test_an_app_that_raises_after_its_whole_answer_harms_no_other_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    after = asyncio.Event()
    failed = asyncio.Event()

    async def act(receive: Receive, send: Send) -> None:
        await reply(send, b"whole")
        await after.wait()
        failed.set()
        raise ValueError

    async with start_listener(App(act)) as site:
        client = await site.client()
        assert (await client.ask(request("GET", "/bad"))).body == b"whole"
        assert (await client.ask(request("GET", "/b"))).body == b"/b"
        after.set()
        await within_limit(failed.wait())
        assert (await client.ask(request("GET", "/c"))).body == b"/c"
        assert [record.getMessage() for record in caplog.records] == ["GET /bad failed"]


async def test_an_app_that_goes_on_sending_after_the_end_adds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await reply(send, b"whole")
        await send(piece(b"more"))

    async with start_listener(App(act)) as site:
        client = await site.client()
        assert (await client.ask(request("GET", "/bad"), request("GET", "/b"))).body == b"whole"
        assert (await client.answer()).body == b"/b"
        assert "unexpected http.response.body" in caplog.text


# ---- bodies that are not read


async def answers_early(receive: Receive, send: Send) -> None:
    await reply(send, b"early")


async def test_an_answer_before_a_small_body_was_read_keeps_the_connection() -> None:
    async with start_listener(App(answers_early)) as site:
        client = await site.client()
        for size in (0, 10, 100_000):
            client_got = await client.ask(request("POST", "/bad", body=b"x" * size))
            assert (client_got.body, client_got.kept) == (b"early", True)


async def test_a_response_before_the_body_is_read_by_a_client_that_keeps_sending() -> None:
    async with start_listener(App(answers_early)) as site:
        client = await site.client()
        await client.send(request("POST", "/bad", "Content-Length: 1000000", "Content-Type: application/json"))
        assert (await client.answer()).body == b"early"
        for _ in range(10):
            await client.send(b"x" * 10_000)
        assert await client.rest() == b""
        client.close()
        await site.connections.reach(0)


async def test_a_body_left_unread_behind_a_pipelined_request_blocks_nothing() -> None:
    async with start_listener(App(answers_early)) as site:
        client, front = await site.fronted()
        second = request("POST", "/good", body=b"y" * 100_000)
        front.data_received(request("POST", "/bad", body=b"x" * 100_000) + second[:100])
        assert (await client.answer()).body == b"early"
        front.data_received(second[100:])
        assert (await client.answer()).body == b"/good"


async def test_an_app_that_reads_late_holds_the_sender_back_and_gets_every_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, held = asyncio.Event(), asyncio.Event()
    size = 30_000_000

    async def act(receive: Receive, send: Send) -> None:
        await reading.wait()
        await reply(send, b"%d" % len(await body_of(receive)))

    async with start_listener(App(act)) as site:
        client, front = await site.fronted()
        want = front.set_reading

        def want_body(wanted: bool) -> None:
            want(wanted)
            if not wanted:
                held.set()

        monkeypatch.setattr(front, "set_reading", want_body)
        client.writer.write(request("POST", "/bad", "Content-Type: application/json", f"Content-Length: {size}"))
        client.writer.write(b"x" * size)
        await within_limit(held.wait())
        assert front._incoming is not None
        assert len(front._incoming._body) < 1_000_000
        reading.set()
        await within_limit(client.writer.drain())
        assert (await client.answer()).body == b"%d" % size


# ---- time limits of the app's own


async def test_an_app_that_gives_up_waiting_for_a_slow_reader_can_still_send() -> None:
    gave_up = asyncio.Event()

    async def act(receive: Receive, send: Send) -> None:
        await send(START)
        try:
            async with asyncio.timeout(0.05):
                while True:
                    await send(piece(b"x" * 100_000))
        except TimeoutError:
            gave_up.set()
        await send(piece(b"the end", more=False))

    async with start_listener(App(act)) as site:
        client = await site.client(receive_bytes=4096)
        await client.send(request("GET", "/bad"))
        await within_limit(gave_up.wait())
        assert (await client.answer()).body.endswith(b"the end")
