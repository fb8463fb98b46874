"""How our client detects the protocol of a remote server: modern, handshake, or HTTP+SSE."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Timeouts
from rookery.wire.client.connect import Era
from rookery.wire.client.http import HttpTransport, SseTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol.revisions import META_CAPABILITIES, META_CLIENT, META_SERVER, META_VERSION
from tests.support.mcp.client import (
    IDENTITY,
    LIMIT,
    ConnectedClient,
    Handler,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    SseHandler,
    connect,
    odd,
    text,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SECRET = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y"}
ENDPOINT = b"event: endpoint\ndata: /messages?%d\n\n"


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as made:
        yield made


async def call(met: ConnectedClient, **arguments: Any) -> Any:
    return text(await within_limit(met.client.call_tool("echo", arguments)))


# ---- the handshake, its headers and its session


@requirement("wire.handshake.client")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_the_handshake_is_said_as_the_revision_wants_it(revision: str, http: HttpClient) -> None:
    server = ScriptedHttpServer(HandshakeHandler(revision=revision))
    async with server, connect(HttpTransport(http, server.url, SECRET)) as met:
        assert (met.era, met.client.revision) == ("handshake", revision)
        assert await call(met) == "done"
    probe, hello, ready, *_ = server.asked
    assert [one.what for one in (probe, hello, ready)] == [
        "server/discover",
        "initialize",
        "notifications/initialized",
    ]
    assert hello.message["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": False}},
        "clientInfo": {"name": "rookery-test", "version": "1.2.3"},
    }
    assert not {"mcp-session-id", "mcp-protocol-version", "mcp-method"} & hello.headers.keys()
    later = [one for one in server.asked if one.what in ("notifications/initialized", "GET", "tools/call", "DELETE")]
    assert len(later) == 4
    for one in later:
        assert one.headers["mcp-session-id"] == "session-1"
        assert one.headers["mcp-protocol-version"] == revision
        assert "mcp-method" not in one.headers
    for one in server.asked:
        assert (one.headers["authorization"], one.headers["x-api-key"]) == ("Bearer s3cret", "k3y")


async def test_a_session_id_that_comes_with_the_refusal_of_the_probe_is_not_taken(
    http: HttpClient,
) -> None:
    proper = HandshakeHandler(sessions=False)

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "server/discover":
            await out.answer(400, b"what?", headers={"Mcp-Session-Id": "a trap"})
        else:
            await proper(asked, out)

    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        assert await call(met) == "done"
        assert not any("mcp-session-id" in asked.headers for asked in server.asked)


# ---- the order


async def modern(asked: HttpRequest, out: HttpResponder) -> None:
    """A server that speaks only the modern era."""
    if asked.what == "GET":
        await out.answer(405)
    elif asked.what == "server/discover":
        about: dict[str, Any] = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "instructions": "be brief",
            "_meta": {META_SERVER: {"name": "modern"}},
        }
        await out.json(asked.result(about))
    elif asked.what == "initialize":
        await out.json(asked.error(-32022, "not that old", {"supported": ["2026-07-28"]}), 400)
    else:
        await out.json(asked.result({"resultType": "complete", "content": [{"type": "text", "text": '"modern"'}]}))


@requirement("wire.client.era")
@pytest.mark.parametrize("known", [None, "modern", "handshake"])
async def test_a_modern_server_is_recognised_whatever_was_remembered(known: Era | None, http: HttpClient) -> None:
    async with (
        ScriptedHttpServer(modern) as server,
        connect(HttpTransport(http, server.url, SECRET), known=known) as met,
    ):
        assert (met.era, met.client.revision, met.client.info) == ("modern", "2026-07-28", {"name": "modern"})
        assert met.client.instructions == "be brief"
        assert await call(met) == "modern"
        asked = server.asked[-1]
        assert asked.message["params"]["_meta"] == {
            META_VERSION: "2026-07-28",
            META_CAPABILITIES: IDENTITY.capabilities,
            META_CLIENT: IDENTITY.info,
            "progressToken": asked.message["id"],
        }
        assert asked.headers["mcp-protocol-version"] == "2026-07-28"
        assert (asked.headers["mcp-method"], asked.headers["mcp-name"]) == ("tools/call", "echo")
        assert server.whats().count("initialize") == (1 if known == "handshake" else 0)


@requirement("wire.cancel.progress")
async def test_a_cancelled_call_of_a_modern_server_is_just_closed(http: HttpClient) -> None:
    left = asyncio.Event()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "tools/call":
            await out.left()
            left.set()
        else:
            await modern(asked, out)

    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        calling = asyncio.create_task(call(met))
        await server.wait_for("tools/call")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within_limit(calling)
        await within_limit(left.wait())
        assert server.whats() == ["server/discover", "tools/call"]


@requirement("wire.client.era")
async def test_a_server_that_shares_no_revision_with_us_is_not_asked_further(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.json(asked.error(-32022, "too old", {"supported": ["2099-01-01"]}), 400)

    async with ScriptedHttpServer(handler) as server:
        with pytest.raises(RookeryError, match="too old"):
            async with connect(HttpTransport(http, server.url), older=SseTransport(http, server.url)):
                pass
        assert server.whats() == ["server/discover"]


@requirement("wire.client.fallback", "wire.client.era")
async def test_discover_then_initialize_then_sse_each_with_our_headers(http: HttpClient) -> None:
    async with ScriptedHttpServer(SseHandler()) as server:
        ways = HttpTransport(http, server.url, SECRET), SseTransport(http, server.url, SECRET)
        async with connect(ways[0], older=ways[1]) as met:
            assert (met.era, met.client.revision) == ("sse", "2024-11-05")
            assert await call(met) == "old"
        assert server.whats() == [
            "server/discover",
            "initialize",
            "GET",
            "initialize",
            "notifications/initialized",
            "tools/call",
        ]
        for asked in server.asked:
            assert (asked.headers["authorization"], asked.headers["x-api-key"]) == ("Bearer s3cret", "k3y")
        server.asked.clear()
        ways = HttpTransport(http, server.url, SECRET), SseTransport(http, server.url, SECRET)
        async with connect(ways[0], older=ways[1], known="sse") as met:
            assert await call(met) == "old"
        assert server.whats()[0] == "GET"


@requirement("wire.client.fallback")
async def test_where_both_ways_fail_the_error_tells_of_both(http: HttpClient) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(404 if asked.method == "POST" else 410, b"no post", "text/plain")

    async with ScriptedHttpServer(handler) as server:
        with pytest.raises(RookeryError, match="over Streamable HTTP: HTTP 404: no post; over HTTP\\+SSE: HTTP 410"):
            async with connect(HttpTransport(http, server.url), older=SseTransport(http, server.url)):
                pass


@requirement("wire.client.era")
@pytest.mark.parametrize("handler", [HandshakeHandler(), modern], ids=["handshake", "modern"])
async def test_a_server_that_has_left_the_older_kind_behind_is_asked_anew(handler: Handler, http: HttpClient) -> None:
    async with ScriptedHttpServer(handler) as server:
        ways = HttpTransport(http, server.url), SseTransport(http, server.url)
        async with connect(ways[0], older=ways[1], known="sse") as met:
            assert met.era == ("modern" if handler is modern else "handshake")
            assert server.whats()[:2] == ["GET", "server/discover"]
            assert await call(met) in ("modern", "done")


async def test_where_what_was_remembered_and_everything_else_fails_the_error_tells_of_both(
    http: HttpClient,
) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(404 if asked.method == "POST" else 410, b"no post", "text/plain")

    async with ScriptedHttpServer(handler) as server:
        ways = HttpTransport(http, server.url), SseTransport(http, server.url)
        with pytest.raises(RookeryError, match="over HTTP\\+SSE: HTTP 410; over Streamable HTTP: HTTP 404: no post"):
            async with connect(ways[0], older=ways[1], known="sse"):
                pass


@requirement("wire.client.timeouts")
async def test_a_remote_server_that_never_answers_is_given_up_by_the_start_up_time_out(
    http: HttpClient,
) -> None:
    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()

    limits = Timeouts(startup=2.0, catalog=LIMIT, execution=LIMIT)
    async with ScriptedHttpServer(never) as server:
        ways = HttpTransport(http, server.url), SseTransport(http, server.url)
        with pytest.raises(RookeryError, match=r"start-up timeout of 2 s"):
            async with connect(ways[0], older=ways[1], timeouts=limits):
                pass
        assert server.whats() == ["server/discover", "initialize"]


# ---- D22: the endpoint event


@requirement("wire.client.survives")
@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/messages",
        "//evil.example/messages",
        "https://127.0.0.1/messages",
        "http://127.0.0.1:1/messages",
        "http://127.0.0.1@evil.example/",
        "http://[",
    ],
)
async def test_d22_an_endpoint_at_another_origin_is_refused(target: str, http: HttpClient) -> None:
    async with ScriptedHttpServer(SseHandler(f"event: endpoint\ndata: {target}\n\n".encode())) as server:
        with pytest.raises(RookeryError, match=r"another origin|ValueError"):
            async with connect(SseTransport(http, server.url, SECRET), known="sse"):
                pass
        assert server.whats() == ["GET"]


async def test_an_endpoint_is_relative_to_where_the_stream_is(http: HttpClient) -> None:
    class Moved(SseHandler):
        async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
            if asked.path == "/mcp":
                await out.answer(307, headers={"Location": "/v2/tenant/sse"})
            elif asked.method == "POST" and not asked.path.startswith("/v2/tenant/"):
                await out.answer(404)
            else:
                asked.path = asked.path.removeprefix("/v2/tenant")
                await super().__call__(asked, out)

    moved = Moved(b"event: endpoint\ndata: messages?%d\n\n")
    async with ScriptedHttpServer(moved) as server:
        url = server.url.replace("//", "//me:hush@")
        async with connect(SseTransport(http, url), known="sse") as met:
            assert await call(met) == "old"
        assert len({asked.headers["authorization"] for asked in server.asked}) == 1


@requirement("wire.client.survives")
async def test_d22_a_second_endpoint_changes_nothing(http: HttpClient) -> None:
    channel_of = SseHandler(ENDPOINT, b"event: endpoint\ndata: /elsewhere\n\n")
    async with ScriptedHttpServer(channel_of) as server:
        channel = SseTransport(http, server.url)
        async with connect(channel, known="sse") as met:
            assert await call(met) == "old"
            assert {asked.path for asked in server.asked if asked.method == "POST"} == {"/messages?0"}
            assert channel.strays == 1


@requirement("wire.client.survives")
async def test_d22_an_endpoint_that_never_comes_is_given_up(http: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.client.http._ENDPOINT_SECONDS", 0.2)
    async with ScriptedHttpServer(SseHandler(b": nothing\n\n")) as server:
        with pytest.raises(RookeryError, match="no endpoint event"):
            async with connect(SseTransport(http, server.url), known="sse"):
                pass


async def test_an_endpoint_may_be_told_with_any_line_end(http: HttpClient) -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        async with (
            ScriptedHttpServer(SseHandler(ENDPOINT.replace(b"\n", end))) as server,
            connect(SseTransport(http, server.url), known="sse") as met,
        ):
            assert await call(met) == "old"


async def test_a_stream_of_the_older_kind_that_ends_ends_its_calls(http: HttpClient) -> None:
    class Ends(SseHandler):
        async def say(self, asked: HttpRequest, stream: HttpResponder) -> None:
            if asked.what == "tools/call":
                await stream.chunk(b'data: no json\n\ndata: {"jsonrpc":"2.0","id":99,"result":{}}\n\n')
                stream.reset()
            else:
                await super().say(asked, stream)

    async with ScriptedHttpServer(Ends()) as server:
        channel = SseTransport(http, server.url)
        async with connect(channel, known="sse") as met:
            for _ in range(2):
                with pytest.raises(RookeryError, match="reset"):
                    await call(met)
            assert (channel.strays, len(server.of("tools/call"))) == (2, 1)


@pytest.mark.parametrize("status", [307, 404, 500])
async def test_a_post_of_the_older_kind_that_is_refused_is_a_typed_error(status: int, http: HttpClient) -> None:
    old = SseHandler()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "tools/call":
            await out.answer(status, b"no", headers={"Location": "http://other.example/x"})
        else:
            await old(asked, out)

    async with ScriptedHttpServer(handler) as server, connect(SseTransport(http, server.url), known="sse") as met:
        words = "the server redirects to http://other.example/x" if status == 307 else "no"
        with pytest.raises(RookeryError, match=f"HTTP {status}: {words}"):
            await call(met)
        assert len(server.of("tools/call")) == 1


async def test_closing_ends_the_calls_of_the_older_kind(http: HttpClient) -> None:
    class Hangs(SseHandler):
        async def say(self, asked: HttpRequest, stream: HttpResponder) -> None:
            if asked.what != "tools/call":
                await super().say(asked, stream)

    async with ScriptedHttpServer(Hangs()) as server, connect(SseTransport(http, server.url), known="sse") as met:
        calling = asyncio.create_task(call(met))
        await server.wait_for("tools/call")
        await within_limit(met.client.close())
        with pytest.raises(RookeryError, match="closed"):
            await within_limit(calling)


async def test_a_channel_that_was_never_opened_can_be_closed(http: HttpClient) -> None:
    for channel in (SseTransport(http, "http://127.0.0.1:1/"), HttpTransport(http, "http://127.0.0.1:1/"), odd()):
        await within_limit(channel.close())
        assert channel.strays == 0
        assert channel.strays == 0
