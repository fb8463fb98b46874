"""Streamable HTTP servers that restart, refuse, disconnect and send wrong data; no call is sent twice."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.client.http import HttpTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol.messages import WireError
from tests.support.mcp.client import (
    ConnectedClient,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    connect,
    read,
    text,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SECRET = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y"}
DONE = {"content": [{"type": "text", "text": '"done"'}]}


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as made:
        yield made


async def call(met: ConnectedClient, **arguments: Any) -> Any:
    return text(await within_limit(met.client.call_tool("echo", arguments)))


def fails(met: ConnectedClient, match: str) -> Awaitable[None]:
    """A call fails with a typed error that says why."""

    async def run() -> None:
        with pytest.raises(RookeryError, match=match) as caught:
            await call(met)
        assert caught.value.code == ("needs-auth" if "HTTP 401" in match else "upstream-failed")

    return run()


# ---- lost sessions

LOST = {
    "404": (404, b"who?"),
    "400": (400, b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID"},"id":null}'),
    "404 with our id": (404, b'{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":4}'),
}


@requirement("wire.client.reconnect")
@pytest.mark.parametrize("kind", LOST)
async def test_a_lost_session_is_made_anew_and_the_call_arrives_once(kind: str, http: HttpClient) -> None:
    ran: list[Any] = []

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        ran.append(asked.message["params"]["arguments"])
        await out.json(asked.result(DONE))

    handler = HandshakeHandler(on_call)
    handler.lost_as = LOST[kind]
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        await call(met, n=1)
        handler.forget()
        assert await asyncio.gather(*(call(met, n=n) for n in range(2, 12))) == ["done"] * 10
        assert sorted(one["n"] for one in ran) == list(range(1, 12))
        assert handler.made == 2


@requirement("wire.client.reconnect")
async def test_a_late_word_about_the_old_session_does_not_cost_the_new_one(http: HttpClient) -> None:
    proper = HandshakeHandler()
    go = asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "tools/call" and asked.message["params"]["arguments"].get("late") and not go.is_set():
            await go.wait()
            await out.answer(404)
        else:
            await proper(asked, out)

    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        late = asyncio.create_task(call(met, late=True))
        await server.wait_for("tools/call")
        proper.forget()
        assert await call(met) == "done"
        go.set()
        assert await within_limit(late) == "done"
        assert await call(met) == "done"
        assert proper.made == 2


@requirement("wire.client.reconnect")
async def test_a_notification_that_finds_the_session_lost_leaves_that_to_the_next_call(
    http: HttpClient,
) -> None:
    handler = HandshakeHandler()
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        handler.forget()
        await within_limit(met.client.notify("notifications/roots/list_changed", {}))
        assert await call(met) == "done"
        assert (handler.made, len(server.of("tools/call"))) == (2, 2)


@requirement("wire.client.reconnect")
async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more(http: HttpClient) -> None:
    handler = HandshakeHandler()
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        handler.lost_as = (404, b"")

        async def always(asked: HttpRequest, out: HttpResponder) -> None:
            await out.answer(404)

        handler.on_call = always
        await fails(met, "loses every new session")
        assert len(server.of("tools/call")) == 2


@requirement("wire.client.reconnect")
async def test_failing_to_reopen_a_session_is_a_typed_error_and_the_next_call_retries(
    http: HttpClient,
) -> None:
    proper, down = HandshakeHandler(), asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if down.is_set() and asked.what == "initialize":
            await out.answer(404, b"starting")
        else:
            await proper(asked, out)

    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        proper.forget()
        down.set()
        await fails(met, "a new one could not be opened: HTTP 404: starting")
        down.clear()
        assert await call(met) == "done"


@requirement("wire.client.reconnect", "wire.client.timeouts")
async def test_a_timed_out_call_is_not_repeated_when_its_cancellation_finds_no_session(
    http: HttpClient,
) -> None:
    handler = HandshakeHandler()

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        handler.forget()
        (running,) = met.client.in_flight.requests.values()
        running.set_limit(0)
        await out.left()

    handler.on_call = on_call
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        with pytest.raises(RookeryError, match="execution timeout"):
            await call(met)
        await server.wait_for("notifications/cancelled")
        assert len(server.of("tools/call")) == 1


# ---- D20: trouble in the middle of a call

Trouble = Callable[[HttpRequest, HttpResponder], Awaitable[None]]


async def _reset(asked: HttpRequest, out: HttpResponder) -> None:
    out.reset()


async def _half_body(asked: HttpRequest, out: HttpResponder) -> None:
    await out.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"json')
    out.reset()


async def _half_chunks(asked: HttpRequest, out: HttpResponder) -> None:
    await out.stream()
    await out.chunk(b'data: {"jsonrpc":"2.0",')
    await out.raw(b"ff\r\nand no more")
    out.writer.close()


async def _stream_without_answer(asked: HttpRequest, out: HttpResponder) -> None:
    await out.stream()
    await out.chunk(b": nothing\n\n")
    await out.end()


async def _no_http(asked: HttpRequest, out: HttpResponder) -> None:
    await out.raw(b"220 smtp.example.com ready\r\n")
    out.writer.close()


async def _other_id(asked: HttpRequest, out: HttpResponder) -> None:
    await out.json({"jsonrpc": "2.0", "id": 987, "result": {}})


def _status(status: int, body: bytes = b"trouble", kind: str = "text/plain") -> Trouble:
    async def answer(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(status, body, kind)

    return answer


async def _redirect(asked: HttpRequest, out: HttpResponder) -> None:
    await out.answer(307, headers={"Location": "http://127.0.0.1:9/elsewhere"})


async def _redirect_with_password(asked: HttpRequest, out: HttpResponder) -> None:
    await out.answer(307, headers={"Location": "http://me:hush@127.0.0.1:9/elsewhere"})


async def _redirect_nowhere(asked: HttpRequest, out: HttpResponder) -> None:
    await out.answer(308, b"moved", "text/plain")


TROUBLES: dict[str, tuple[Trouble, str]] = {
    "reset": (_reset, "reset"),
    "half a body": (_half_body, "reset"),
    "truncated chunks": (_half_chunks, "before the response was complete"),
    "a stream without the answer": (_stream_without_answer, "ended before it was complete"),
    "no HTTP": (_no_http, "not valid HTTP"),
    "502": (_status(502), "HTTP 502: trouble"),
    "503": (_status(503), "HTTP 503"),
    "429": (_status(429), "HTTP 429"),
    "401": (_status(401), "HTTP 401"),
    "400": (_status(400), "HTTP 400"),
    "an HTML page": (_status(200, b"<html>hello", "text/html"), "not a valid message"),
    "an empty body": (_status(200, b""), "not a valid message"),
    "nothing but 202": (_status(202, b""), "ended before it was complete"),
    "another id": (_other_id, "ended before it was complete"),
    "redirect": (
        _redirect,
        "redirects to http://127.0.0.1:9/elsewhere; redirects to another origin are not followed",
    ),
    "redirect with a password": (_redirect_with_password, "redirects to http://127.0.0.1:9/elsewhere;"),
    "redirect without a target": (_redirect_nowhere, "HTTP 308: moved"),
}


@requirement("wire.client.reconnect")
@pytest.mark.parametrize("kind", TROUBLES)
async def test_d20_trouble_in_a_call_is_told_and_the_call_is_not_repeated(kind: str, http: HttpClient) -> None:
    trouble, error = TROUBLES[kind]
    handler = HandshakeHandler(trouble)
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url, SECRET)) as met:
        await fails(met, error)
        assert len(server.of("tools/call")) == 1
        handler.on_call = None
        assert await call(met) == "done"


@requirement("wire.client.reconnect")
async def test_d20_a_call_that_a_restart_interrupts_is_sent_once_and_the_next_reconnects(
    http: HttpClient,
) -> None:
    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()

    handler = HandshakeHandler(never)
    server = ScriptedHttpServer(handler)
    await server.start()
    try:
        async with connect(HttpTransport(http, server.url)) as met:
            calling = asyncio.create_task(call(met, n=1))
            await server.wait_for("tools/call")
            await server.stop()
            with pytest.raises(RookeryError, match="tools/call"):
                await within_limit(calling)
            await fails(met, "Connect")
            handler.forget()
            handler.on_call = None
            await server.start()
            assert await call(met, n=2) == "done"
            numbers = [one.message["params"]["arguments"]["n"] for one in server.of("tools/call")]
            assert numbers == [1, 2, 2]
            assert handler.made == 2
    finally:
        await server.stop()


@requirement("wire.client.reconnect")
async def test_d20_a_redirect_takes_no_header_and_no_message_elsewhere(http: HttpClient) -> None:
    async with ScriptedHttpServer(HandshakeHandler()) as thief:

        async def everywhere(asked: HttpRequest, out: HttpResponder) -> None:
            await out.answer(307, headers={"Location": thief.url})

        proper, moved = HandshakeHandler(), asyncio.Event()

        async def handler(asked: HttpRequest, out: HttpResponder) -> None:
            await (everywhere if moved.is_set() else proper)(asked, out)

        async with ScriptedHttpServer(handler) as server:
            async with connect(HttpTransport(http, server.url, SECRET)) as met:
                moved.set()
                await fails(met, "to another origin are not followed")
                await met.client.notify("notifications/x", {})
            assert server.asked[-1].what == "DELETE"
            with pytest.raises(RookeryError, match="to another origin are not followed"):
                async with connect(HttpTransport(http, server.url, SECRET)):
                    pass
        assert thief.asked == []


async def test_the_error_for_a_redirect_contains_no_password_of_the_url(http: HttpClient) -> None:
    async def elsewhere(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(302, headers={"Location": "/login"})

    async with ScriptedHttpServer(elsewhere) as server:
        url = server.url.replace("//", "//me:hush@")
        with pytest.raises(RookeryError, match=f"redirects to {server.url.removesuffix('/mcp')}/login;") as caught:
            async with connect(HttpTransport(http, url)):
                pass
        assert "hush" not in caught.value.message


# ---- streams


async def test_an_answer_stream_that_breaks_off_is_taken_up_where_it_broke(http: HttpClient) -> None:
    handler = HandshakeHandler()
    asked_for: list[HttpRequest] = []

    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        asked_for.append(asked)
        await out.stream()
        await out.chunk(b"retry: 1\nid: 1\ndata:\n\n")
        await out.event({"jsonrpc": "2.0", "method": "notifications/first"}, "2")
        await out.chunk(b'id: 3\ndata: {"jsonrpc":"2.0","id"')
        out.reset()

    async def resumed(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        if "last-event-id" in asked.headers:
            await out.event(asked_for[0].result(DONE), "3")
        await out.left()

    handler.on_call, handler.stream = on_call, resumed
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        assert await call(met) == "done"
        assert [one.headers.get("last-event-id") for one in server.of("GET")] == [None, "2"]
        assert len(server.of("tools/call")) == 1
        await met.heard.wait_for("notifications/first")


@pytest.mark.parametrize("status", [404, 405])
async def test_a_broken_stream_that_cannot_be_taken_up_is_a_typed_error(status: int, http: HttpClient) -> None:
    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.chunk(b"retry: 1\nid: 1\ndata:\n\n")
        await out.end()

    async def refuse(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(status)

    handler = HandshakeHandler(on_call)
    handler.stream = refuse
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        await fails(met, f"cannot be resumed: HTTP {status}")
        assert len(server.of("tools/call")) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_an_answer_stream_is_read_with_every_line_end_cut_at_every_byte(end: bytes, http: HttpClient) -> None:
    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        first, second = json.dumps(asked.result(DONE | {"wide": "ü😀"}), ensure_ascii=False).split('"result"')
        lines = [": hello", "event: message", f"data: {first}", f'data:"result"{second}', "", ""]
        await out.stream()
        for byte in end.join(line.encode() for line in lines):
            await out.chunk(bytes([byte]))
        await out.left()  # the answer alone has to do

    async with (
        ScriptedHttpServer(HandshakeHandler(on_call)) as server,
        connect(HttpTransport(http, server.url), known="handshake") as met,
    ):
        assert read(await within_limit(met.client.call_tool("echo", {})))["wide"] == "ü😀"


async def test_questions_on_the_standing_stream_are_answered_and_it_is_re_made(
    http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.wire.client.http._RETRY_SECONDS", 0.01)
    rounds: list[int] = []

    async def stream(asked: HttpRequest, out: HttpResponder) -> None:
        rounds.append(len(rounds))
        if len(rounds) == 2:
            await out.answer(503)
            return
        await out.stream()
        await out.event({"jsonrpc": "2.0", "id": f"q{len(rounds)}", "method": "roots/list"})
        if len(rounds) == 1:
            await out.end()
        else:
            await out.left()

    handler = HandshakeHandler()
    handler.stream = stream
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)):
        answers = [(await server.wait_for("answer", n)).message for n in (1, 2)]
        assert [one["id"] for one in answers] == ["q1", "q3"]
        assert answers[0]["result"]["roots"][0]["uri"] == "file:///here"


async def test_a_body_beyond_all_measure_is_an_error(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.http_client.connection._BODY_BYTES", 2**20)
    monkeypatch.setattr("rookery.wire.http_client.sse._LONGEST_EVENT", 2**20)
    handler = HandshakeHandler(_status(200, b"[" * 2**21, "application/json"))

    async def endless(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        while True:
            await out.chunk(b"data: " + b"x" * 10_000 + b"\n")

    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        await fails(met, "larger than 1048576 bytes")
        handler.on_call = endless
        await fails(met, "longer than 1048576 bytes")
        assert len(server.of("tools/call")) == 2


# ---- side by side, and the end


async def test_a_server_that_hangs_delays_no_other(http: HttpClient) -> None:
    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()

    async with (
        ScriptedHttpServer(HandshakeHandler(never)) as stuck,
        ScriptedHttpServer(HandshakeHandler()) as server,
        connect(HttpTransport(http, stuck.url)) as one,
        connect(HttpTransport(http, server.url)) as other,
    ):
        hanging = [asyncio.create_task(call(one)) for _ in range(20)]
        await stuck.wait_for("tools/call", 20)
        assert await asyncio.gather(*(call(other) for _ in range(20))) == ["done"] * 20
        await within_limit(one.client.close())
        for task in hanging:
            with pytest.raises(RookeryError, match="the connection was closed"):
                await within_limit(task)


@requirement("wire.cancel.progress")
async def test_a_cancelled_call_of_a_handshake_server_is_told_to_it(http: HttpClient) -> None:
    left = asyncio.Event()

    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()
        left.set()

    async with ScriptedHttpServer(HandshakeHandler(never)) as server, connect(HttpTransport(http, server.url)) as met:
        calling = asyncio.create_task(call(met))
        number = (await server.wait_for("tools/call")).message["id"]
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within_limit(calling)
        assert (await server.wait_for("notifications/cancelled")).message["params"]["requestId"] == number
        await within_limit(left.wait())


async def test_an_error_answer_with_an_http_error_is_the_answer(http: HttpClient) -> None:
    async def refuse(asked: HttpRequest, out: HttpResponder) -> None:
        await out.json(asked.error(-32602, "no such tool", {"x": [1]}), 400)

    async with ScriptedHttpServer(HandshakeHandler(refuse)) as server, connect(HttpTransport(http, server.url)) as met:
        with pytest.raises(WireError, match="no such tool") as caught:
            await call(met)
        assert (caught.value.code, caught.value.data) == (-32602, {"x": [1]})
