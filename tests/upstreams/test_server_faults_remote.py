"""Remote servers that fail, and that no credentials of a client are sent to a server."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import rookery
from tests.support.gateway.gateway import UNSCANNED, start_gateway
from tests.support.http.certificates import Authority
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, failure, told, words
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer, SseHandler
from tests.support.mcp.remote_server import Remote
from tests.support.mcp.scripted_server import Message, ServerScript, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def calls(server: ScriptedHttpServer) -> list[Message]:
    return [asked.message for asked in server.of("tools/call")]


@requirement("hub.config.remote", "wire.handshake.client", "wire.client.era")
@pytest.mark.parametrize("era", ERAS)
async def test_c17_s2_only_the_configured_headers_are_sent_and_nothing_of_the_callers(era: str) -> None:
    secret = {
        "Authorization": "Bearer the-callers-own",
        "Cookie": "session=the-callers-own",
        "X-Api-Key": "the-callers-own",
        "Proxy-Authorization": "Basic the-callers-own",
        "X-Forwarded-For": "the-callers-own",
        "Origin": "http://127.0.0.1:1",
        "Traceparent": "the-callers-own",
    }
    async with ScriptedHttpServer(Remote(era)) as server:
        headers = {"Authorization": "Bearer configured", "X-Extra": "yes"}
        async with start_gateway({"far": {"url": server.url, "headers": headers}}) as gateway:
            for mine in ERAS:
                caller = await gateway.caller("/mcp", mine, headers=secret)
                assert told(await caller.call("far__echo", {"a": 1}))["arguments"] == {"a": 1}
            assert (await gateway.rest("GET", "/api/mcp/far"))[1]["era"] == era
        assert len(server.of("tools/call")) == 2
        # The client that a server meets is Rookery, whoever is behind it.
        about = {"name": "rookery", "version": rookery.__version__}
        able: dict[str, object] = {
            "roots": {"listChanged": True},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
        }
        hello: dict[str, object] = {"protocolVersion": HANDSHAKE, "capabilities": able, "clientInfo": about}
        # A modern server is asked once for the handshake too, in which the first client can be asked.
        whats = ["initialize", "notifications/initialized"] if era == HANDSHAKE else ["initialize"]
        found = [asked for asked in server.asked if asked.what in ("initialize", "notifications/initialized")]
        assert [asked.what for asked in found] == whats
        assert [asked.message["params"] for asked in found[:1]] == [hello][: len(found)]
        for asked in server.asked:
            assert asked.headers["authorization"] == "Bearer configured" and asked.headers["x-extra"] == "yes"
            assert "the-callers-own" not in json.dumps(asked.headers) + asked.body.decode()
            assert "cookie" not in asked.headers and "origin" not in asked.headers


@requirement("wire.client.era", "wire.client.fallback")
async def test_a_server_of_the_older_transport_is_shown_and_remembered_as_such() -> None:
    async with ScriptedHttpServer(SseHandler()) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        _, found = await gateway.rest("POST", "/api/mcp/far/connect")
        assert (found["status"], found["era"]) == ("connected", "HTTP+SSE")
        assert server.whats()[:2] == ["server/discover", "initialize"]
        _, found = await gateway.rest("POST", "/api/mcp/far/disconnect")
        assert (found["status"], found["era"]) == ("stopped", "HTTP+SSE")
        server.asked.clear()
        _, found = await gateway.rest("POST", "/api/mcp/far/connect")
        assert found["status"] == "connected" and server.whats()[:2] == ["GET", "initialize"]


async def test_s2_what_a_server_sets_as_cookie_comes_back_to_nobody() -> None:
    remote = Remote()

    async def setting(asked: HttpRequest, out: HttpResponder) -> None:
        await out.json(asked.result(text("x")), headers={"Set-Cookie": "tracking=1; Path=/"})

    remote.on_call = setting
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        for _ in range(2):
            assert "result" in await caller.call("far__echo")
        assert not [asked for asked in server.asked if "cookie" in asked.headers]


@requirement("hub.call.abort")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mine", ERAS)
async def test_an_aborted_call_is_cancelled_over_http_as_the_servers_era_has_it(era: str, mine: str) -> None:
    remote = Remote(era)
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller("/mcp", mine)
        running = caller.begin("far__hold", id_="x")
        request = await server.wait_for("tools/call")
        if mine == MODERN:
            running.cancel()
        else:
            await caller.cancel("x")
            assert "error" in await running
        # The connection of the call is closed; a handshake server is told in words as well.
        await asyncio.wait_for(remote.left.wait(), 10)
        if era == HANDSHAKE:
            cancelled = await server.wait_for("notifications/cancelled")
            assert cancelled.message["params"]["requestId"] == request.message["id"]
        assert told(await caller.call("far__echo", {"n": 1}))["arguments"] == {"n": 1}


@requirement("hub.call.hang")
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("502", "502"),
        ("503", "503"),
        ("429", "429"),
        ("500", "500"),
        ("reset", ""),
        ("half", ""),
        ("nonsense", "not a valid message"),
    ],
)
async def test_d20_a_call_that_fails_on_its_way_fails_typed_and_is_not_made_twice(fault: str, why: str) -> None:
    remote = Remote()

    async def failing(asked: HttpRequest, out: HttpResponder) -> None:
        if fault.isdigit():
            await out.answer(int(fault), b"<html>sorry</html>", "text/html", {"Retry-After": "1"})
        elif fault == "reset":
            out.reset()
        elif fault == "half":
            await out.raw(
                b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"jsonrpc":'
            )
            out.reset()
        else:
            await out.answer(200, b"<html>hello</html>")

    remote.on_call = failing
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        found = await caller.call("far__echo", {"transfer": "all my money"})
        assert failure(found) == "upstream-failed" and why in words(found)
        assert len(calls(server)) == 1
        remote.on_call = None
        assert told(await caller.call("far__echo", {"n": 2}))["arguments"] == {"n": 2}
        assert len(calls(server)) == 2


@requirement("hub.call.hang")
async def test_d20_a_server_restart_fails_the_running_call_and_the_next_opens_a_session() -> None:
    remote = Remote()
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        running = caller.begin("far__hold", {"once": True})
        await server.wait_for("tools/call")
        await server.stop()
        found = await running
        assert failure(found) == "upstream-failed"
        remote.sessions = {"s-other"}
        await server.start()
        assert told(await caller.call("far__echo", {"n": 2}))["arguments"] == {"n": 2}
        # Two of the second call: the session that it named was unknown, so that nothing of the first try was done.
        assert [one["params"]["arguments"] for one in calls(server)] == [{"once": True}, {"n": 2}, {"n": 2}]
        assert len(server.of("initialize")) == 2


@requirement("hub.status.failed", "wire.client.fallback")
async def test_d20_a_server_that_is_not_there_is_failed_with_what_every_transport_said() -> None:
    async with ScriptedHttpServer(Remote()) as server:
        url = server.url
    async with start_gateway({"far": {"url": url}, "nowhere": {"url": "http://no.such.host.invalid/mcp"}}) as gateway:
        assert await (await gateway.caller()).tools() == ["hub_list_servers"]
        records = {one.name: one for one in await gateway.hub.records(None)}
        assert records["far"].status == records["nowhere"].status == "failed"
        assert "127.0.0.1" in str(records["far"].error) and "no.such.host.invalid" in str(records["nowhere"].error)


@requirement("hub.status.failed")
@pytest.mark.parametrize("what", ["expired", "unknown"])
async def test_d20_a_certificate_that_does_not_hold_keeps_a_server_out_until_it_does(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    if what == "expired":
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    server = ScriptedHttpServer(Remote(), tls=authority.server(expired=what == "expired"))
    async with server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        assert await caller.tools() == ["hub_list_servers"]
        error = await gateway.becomes("far", "failed", "backoff")
        assert error is not None and {"expired": "certificate has expired", "unknown": "unable to get"}[what] in error
        assert server.asked == []
        if what == "expired":
            await server.stop()
            server.tls = authority.server()
            await server.start()
            await gateway.rest("POST", "/api/mcp/far/connect")
            assert told(await caller.call("far__echo", {"a": 1}))["arguments"] == {"a": 1}


@requirement("hub.status.values", "hub.filter.disconnected")
@pytest.mark.parametrize(("over", "status"), [("POST", 401), ("GET", 401), ("POST", 403)])
async def test_a_server_that_asks_who_is_there_needs_auth_and_says_what_to_do(over: str, status: int) -> None:
    remote = Remote()
    unknown = True

    async def deny(asked: HttpRequest, out: HttpResponder) -> None:
        if not unknown:
            await remote(asked, out)
        else:
            # One that is reached by GET only is of the older transport.
            wants = {"WWW-Authenticate": 'Bearer error="insufficient_scope"'} if status == 403 else {}
            await out.answer(status if asked.method == over else 405, b"who are you?", headers=wants)

    async with ScriptedHttpServer(deny) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        assert await caller.tools() == ["hub_list_servers"]
        assert f"HTTP {status}" in str(await gateway.becomes("far", "needs_auth"))
        await gateway.rest("POST", "/api/mcp/far/connect")
        assert await gateway.status("far") == "needs_auth"
        assert "needs_auth" in str(await caller.call("far__echo"))
        debugged = (await gateway.rest("POST", "/api/mcp/far/debug"))[1]
        assert debugged["remedy"] == "sign in: rookery mcp login far"
        unknown = False
        await gateway.rest("POST", "/api/mcp/far/connect")
        assert await gateway.status("far") == "connected"
        assert "far__echo" in await caller.tools()


@requirement("hub.status.failed", "wire.client.fallback")
@pytest.mark.parametrize(("status", "said"), [(404, ("Streamable HTTP", "HTTP+SSE")), (403, ("HTTP 403",))])
async def test_a_server_that_lets_nobody_in_is_failed_with_what_it_said(status: int, said: Sequence[str]) -> None:
    async def deny(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(status, b"no")

    async with ScriptedHttpServer(deny) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        await (await gateway.caller()).tools()
        error = await gateway.becomes("far", "failed", "backoff")
        assert error is not None and all(one in error for one in said)


async def test_d20_an_answer_without_end_is_cut_off() -> None:
    remote = Remote()

    async def flooding(asked: HttpRequest, out: HttpResponder) -> None:
        await out.stream()
        await out.chunk(b"data: ")
        for _ in range(200):
            await out.chunk(b"x" * 1_000_000)

    remote.on_call = flooding
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller = await gateway.caller()
        found = await caller.call("far__echo")
        assert failure(found) == "upstream-failed" and "longer than" in words(found)
        remote.on_call = None
        assert "result" in await caller.call("far__echo")


async def test_a_redirect_leads_nowhere_and_takes_no_credential_along() -> None:
    stolen: list[HttpRequest] = []

    async def thief(asked: HttpRequest, out: HttpResponder) -> None:
        stolen.append(asked)
        await out.answer(200, b"{}")

    async with ScriptedHttpServer(thief) as elsewhere:

        async def redirecting(asked: HttpRequest, out: HttpResponder) -> None:
            await out.answer(307, b"", headers={"Location": elsewhere.url})

        async with ScriptedHttpServer(redirecting) as server:
            config = {"url": server.url, "headers": {"Authorization": "Bearer configured"}}
            async with start_gateway({"far": config}) as gateway:
                await (await gateway.caller()).tools()
                assert await gateway.becomes("far", "failed", "backoff")
    assert stolen == []


@requirement("hub.catalog.cached")
async def test_c15_s11_a_reference_in_a_schema_is_fetched_by_nobody() -> None:
    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(200, b'{"type":"object"}')

    async with ScriptedHttpServer(never) as listener:
        away = listener.url
        schemas: list[Message] = [
            {"$ref": away},
            {"type": "object", "properties": {"a": {"$ref": away}, "b": {"$ref": "file:///etc/passwd"}}},
            {"$schema": away, "$id": away, "$dynamicRef": away, "allOf": [{"$ref": away + "#/x"}]},
            {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
        ]
        tools = [tool(f"t{number}", outputSchema=one) | {"inputSchema": one} for number, one in enumerate(schemas)]
        play = ServerScript(tools=tools)
        async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}, settings=UNSCANNED) as gateway:
            for era in ERAS:
                caller = await gateway.caller("/mcp", era)
                listed = {one["name"]: one for one in await caller.listed("tools")}
                for number, schema in enumerate(schemas):
                    assert listed[f"one__t{number}"]["inputSchema"] == {"type": "object"} | schema
                    assert told(await caller.call(f"one__t{number}", {"a": 1, "b": 2}))["arguments"] == {"a": 1, "b": 2}
            assert (await gateway.rest("GET", "/api/tools"))[0] == 200
        assert listener.asked == []
