"""How remote servers are reached: through redirects, over the older transport, and through proxies."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from rookery.daemon.settings.schema import ServerSettings, Settings
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.http.certificates import Authority
from tests.support.http.proxy import start_proxy
from tests.support.mcp.caller import told
from tests.support.mcp.client import (
    Handler,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    SseHandler,
)
from tests.support.mcp.oauth import browse, follow, start_oauth_servers
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SECRET = {"Authorization": "Bearer configured", "X-Extra": "yes"}


async def echo(asked: HttpRequest, out: HttpResponder) -> None:
    content = json.dumps(asked.message["params"]["arguments"])
    await out.json(asked.result({"content": [{"type": "text", "text": content}]}))


# ---- redirects


@requirement("servers.http.redirect")
@pytest.mark.parametrize("status", [307, 308])
async def test_redirects_within_the_origin_keep_method_body_and_headers(status: int) -> None:
    proper = HandshakeHandler(echo)

    async def mounted(asked: HttpRequest, out: HttpResponder) -> None:
        """Behave like a Starlette application that is mounted at /mcp/."""
        if asked.path == "/mcp":
            target = "/mcp/" if asked.what == "initialize" else f"http://{asked.headers['host']}/mcp/"
            await out.answer(status, b"", headers={"Location": target})
        else:
            await proper(asked, out)

    async with ScriptedHttpServer(mounted) as server:
        async with start_gateway({"far": {"url": server.url, "headers": SECRET}}) as gateway:
            caller = await gateway.caller()
            assert told(await caller.call("far__echo", {"a": 1})) == {"a": 1}
        sent, followed = server.of("tools/call")
        assert (sent.path, followed.path) == ("/mcp", "/mcp/")
        assert (sent.method, sent.body, sent.headers) == (followed.method, followed.body, followed.headers)
        assert "DELETE" in server.whats()
        for asked in server.asked:
            assert (asked.headers["authorization"], asked.headers["x-extra"]) == ("Bearer configured", "yes")


ELSEWHERE = {
    "another host": (307, "http://other.example/mcp"),
    "another port": (308, "http://127.0.0.1:9/mcp"),
    "another scheme": (307, "https://127.0.0.1:{port}/mcp"),
    "another host without a scheme": (308, "//other.example/mcp"),
    "a user name that looks like the host": (307, "http://127.0.0.1:{port}@other.example/mcp"),
    "no URL of HTTP": (307, "file:///etc/passwd"),
    "an invalid URL": (307, "http://["),
    "a status that changes the method": (301, "/mcp/"),
    "a loop": (307, "/mcp"),
}


@requirement("servers.http.redirect")
@pytest.mark.parametrize("kind", ELSEWHERE)
async def test_c16_other_redirects_are_refused_with_the_target_named(kind: str) -> None:
    status, location = ELSEWHERE[kind]
    target = ""

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(status, b"", headers={"Location": target})

    async with ScriptedHttpServer(handler) as server:
        target = location.format(port=server.port)
        async with start_gateway({"far": {"url": server.url, "headers": SECRET}}) as gateway:
            _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        full = {target: target.partition("//")[0] + "//" + target.rpartition("@")[2]} if "@" in target else {}
        full |= {"/mcp/": server.url + "/", "/mcp": server.url, "//other.example/mcp": "http://other.example/mcp"}
        assert record["status"] == "failed"
        assert f"the server redirects to {full.get(target, target)}; " in record["error"]
        if kind == "a loop":
            assert "no more than 5 redirects are followed" in record["error"]


# ---- the older transport


def refuse(status: int, body: bytes = b"no") -> Handler:
    async def answer(asked: HttpRequest, out: HttpResponder) -> None:
        await out.answer(status, body, "text/plain")

    return answer


async def hang_up(asked: HttpRequest, out: HttpResponder) -> None:
    out.reset()


async def refuse_to_initialize(asked: HttpRequest, out: HttpResponder) -> None:
    await out.json(asked.error(-32603, "not here"))


async def redirect(asked: HttpRequest, out: HttpResponder) -> None:
    await out.answer(302, b"", headers={"Location": "/login"})


FAILURES: dict[str, Handler] = {
    **{f"HTTP {status}": refuse(status) for status in (400, 403, 404, 405, 422, 429, 500, 502, 503)},
    "a page": refuse(200, b"<html>hello"),
    "nothing": refuse(202, b""),
    "a redirect": redirect,
    "a reset": hang_up,
    "an error of JSON-RPC": refuse_to_initialize,
}


@requirement("servers.http.fallback")
@pytest.mark.parametrize("kind", FAILURES)
async def test_the_older_transport_is_tried_after_any_other_failure(kind: str) -> None:
    older = SseHandler()

    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.method == "POST" and not asked.path.startswith("/messages"):
            await FAILURES[kind](asked, out)
        else:
            await older(asked, out)

    async with ScriptedHttpServer(handler) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        assert (record["status"], record["era"]) == ("connected", "HTTP+SSE")


@requirement("servers.http.fallback")
@pytest.mark.parametrize("kind", FAILURES)
async def test_a_server_that_fails_over_both_transports_is_failed_with_both_errors(kind: str) -> None:
    async def handler(asked: HttpRequest, out: HttpResponder) -> None:
        await (FAILURES[kind] if asked.method == "POST" else refuse(410))(asked, out)

    async with ScriptedHttpServer(handler) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        assert record["status"] == "failed"
        assert "over Streamable HTTP: " in record["error"] and "; over HTTP+SSE: HTTP 410" in record["error"]
        assert "GET" in server.whats()


@requirement("servers.http.fallback")
async def test_a_server_that_requires_credentials_is_not_tried_over_the_older_transport() -> None:
    async with ScriptedHttpServer(refuse(401)) as server:
        config = {"url": server.url, "headers": {"Authorization": "Bearer expired"}}
        async with start_gateway({"far": config}) as gateway:
            _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        assert record["status"] == "needs_auth"
        assert "GET" not in server.whats()


@requirement("servers.http.fallback")
async def test_a_server_that_never_answers_is_given_up_when_its_start_up_time_is_over() -> None:
    async def never(asked: HttpRequest, out: HttpResponder) -> None:
        await out.left()

    async with ScriptedHttpServer(never) as server:
        async with start_gateway({"far": {"url": server.url, "timeouts": {"startup": 1}}}) as gateway:
            _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        assert record["status"] == "failed" and "start-up timeout of 1 s" in record["error"]
        assert "GET" not in server.whats()


# ---- proxies


async def echo_twice(gateway: Gateway) -> None:
    caller = await gateway.caller()
    for number in range(2):
        assert told(await caller.call("far__echo", {"n": number})) == {"n": number}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    authority = Authority(tmp_path, "far.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


@requirement("servers.http.proxy")
async def test_s2_a_server_behind_https_proxy_is_reached_in_a_tunnel_without_the_token(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ScriptedHttpServer(HandshakeHandler(echo), tls=authority.server()) as server,
        start_proxy({"far.example:443": server.port}, "Basic bWU6czNjcmV0") as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret@{proxy.address}")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        async with start_gateway({"far": {"url": "https://far.example/mcp", "headers": SECRET}}) as gateway:
            await echo_twice(gateway)
        assert {first for first, _ in proxy.asked} == {"CONNECT far.example:443 HTTP/1.1"}
        assert all("authorization" not in headers and "x-extra" not in headers for _, headers in proxy.asked)
        assert len(server.of("tools/call")) == 2
        for asked in server.asked:
            assert asked.headers["authorization"] == "Bearer configured"
            assert "proxy-authorization" not in asked.headers


@requirement("servers.http.proxy")
async def test_a_server_without_tls_is_reached_over_http_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        ScriptedHttpServer(HandshakeHandler(echo)) as server,
        start_proxy({"far.example:80": server.port}) as proxy,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        async with start_gateway({"far": {"url": "http://far.example/mcp", "headers": SECRET}}) as gateway:
            await echo_twice(gateway)
        assert {first for first, _ in proxy.asked} >= {"POST http://far.example/mcp HTTP/1.1"}
        assert all(asked.path == "/mcp" and asked.headers["host"] == "far.example" for asked in server.asked)


@requirement("servers.http.proxy")
@pytest.mark.parametrize("kind", ["NO_PROXY", "servers.proxy", "this machine"])
async def test_a_server_is_reached_without_a_proxy_that_is_not_for_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedHttpServer(HandshakeHandler(echo)) as server, start_proxy({}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        url = server.url if kind == "this machine" else server.url.replace("127.0.0.1", "far.example")
        if kind == "NO_PROXY":
            monkeypatch.setenv("no_proxy", ".example")
        settings = Settings(servers=ServerSettings(proxy="none" if kind == "servers.proxy" else "environment"))

        resolve = socket.getaddrinfo

        def resolve_here(host: str, *more: Any, **named: Any) -> Any:
            return resolve("127.0.0.1" if host == "far.example" else host, *more, **named)

        monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
        async with start_gateway({"far": {"url": url}}, settings=settings) as gateway:
            await echo_twice(gateway)
        assert proxy.asked == []


PROXY_FAILURES = {
    "refused": "the proxy {proxy} refused a connection to far.example: HTTP 502",
    "credentials": "the proxy {proxy} refused a connection to far.example: HTTP 407; it requires other credentials",
    "unreachable": "the proxy 127.0.0.1:9 cannot be reached",
    "socks": "HTTPS_PROXY names a proxy of the type socks5, which is not supported",
}


@requirement("servers.http.proxy")
@pytest.mark.parametrize("kind", PROXY_FAILURES)
async def test_a_failure_of_the_proxy_is_named_without_its_password(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_proxy({}, "Basic other" if kind == "credentials" else None) as proxy:
        address = {"unreachable": "http://me:s3cret@127.0.0.1:9", "socks": "socks5://me:s3cret@127.0.0.1:9"}
        monkeypatch.setenv("HTTPS_PROXY", address.get(kind, f"http://me:s3cret@{proxy.address}"))
        async with start_gateway({"far": {"url": "https://far.example/mcp", "headers": SECRET}}) as gateway:
            _, record = await gateway.rest("POST", "/api/mcp/far/connect")
        assert record["status"] == "failed"
        assert PROXY_FAILURES[kind].format(proxy=proxy.address) in record["error"]
        assert "s3cret" not in str(record)


@requirement("servers.http.proxy")
async def test_s3_a_sign_in_uses_the_proxy_for_each_of_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_oauth_servers(HandshakeHandler(echo)) as oauth:
        routes = {"far.example:80": oauth.at_server.port, "issuer.example:80": oauth.at_issuer.port}
        oauth.server.url, oauth.issuer.url = "http://far.example/mcp", "http://issuer.example"
        async with start_proxy(routes) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.address)
            async with start_gateway({"far": {"url": oauth.url}}) as gateway:
                await gateway.rest("POST", "/api/mcp/far/connect")
                _, found = await gateway.rest("POST", "/api/mcp/far/login")
                browser = found["url"].replace("http://issuer.example", oauth.at_issuer.url.removesuffix("/mcp"))
                await follow(gateway.http, await browse(gateway.http, browser))
                _, found = await gateway.rest("GET", "/api/mcp/far/login")
                assert found["status"] == "connected", found
                await echo_twice(gateway)
        lines = [first for first, _ in proxy.asked]
        assert "POST http://issuer.example/token HTTP/1.1" in lines
        assert oauth.issuer.exchanged[0]["resource"] == "http://far.example/mcp"
        for first, headers in proxy.asked:
            assert "issuer.example" not in first or "at-" not in headers.get("authorization", "")
