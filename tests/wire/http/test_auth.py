"""Nothing runs for a request that authentication refuses, and it cannot be bypassed."""

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from rookery.wire.http.auth import (
    ANYBODY,
    LOOPBACK,
    OWNER,
    Principal,
    Refusal,
    Tokens,
    make_owner_authenticator,
    make_socket_authenticator,
    make_tcp_authenticator,
)
from tests.support.http.listener import RawResponse, RunningListener, reply, request, start_listener
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

TOKEN = "s3cret-token"
BEARER = f"Authorization: Bearer {TOKEN}"
OF_WORKSPACE, WORKSPACE = "of-a-workspace", Principal("workspace", workspace=Path("/app/.git/worktrees/fix"))
ROUTES = ["/", "/api/health", "/api/events", "/mcp", "/nowhere"]


class Guarded:
    """A site behind the gate, and what got through to its app."""

    def __init__(self, site: RunningListener) -> None:
        self.site = site
        self.port = site.port
        self.passed: list[tuple[str, str, Principal]] = []

    async def send(self, method: str, path: str, *headers: str, body: bytes = b"") -> RawResponse:
        """A request whose headers are exactly these."""
        lines = [f"{method} {path} HTTP/1.1", *headers, "", ""]
        client = await self.site.client()
        try:
            await client.send("\r\n".join(lines).encode("latin-1"), body)
            return await client.answer(bodyless=method == "HEAD")
        finally:
            client.close()

    async def ask(self, method: str, path: str, *headers: str, body: bytes = b"") -> RawResponse:
        """The same with the right Host."""
        return await self.send(method, path, f"Host: 127.0.0.1:{self.port}", *headers, body=body)


@asynccontextmanager
async def guarded(*, tokenless: Principal | None = None) -> AsyncGenerator[Guarded]:
    tokens = Tokens()
    tokens.add(TOKEN, OWNER)
    tokens.add(OF_WORKSPACE, WORKSPACE)
    passed: list[tuple[str, str, Principal]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append((scope["method"], scope["path"], scope["state"]["principal"]))
        await reply(send, b"in")

    async with start_listener(
        app, judge_of=lambda port: make_tcp_authenticator(port, tokens, tokenless=tokenless)
    ) as site:
        made = Guarded(site)
        made.passed = passed
        yield made


def no_cors(answer: RawResponse) -> bool:
    return not any(name.startswith("access-control-") for name in answer.headers)


# ---- A01


@requirement("house.auth.cross-site")
@pytest.mark.parametrize("path", ROUTES)
async def test_a01_a_foreign_host_is_refused_on_every_route(path: str) -> None:
    async with guarded() as gate:
        for host in (
            f"evil.test:{gate.port}",
            "evil.test",
            "127.0.0.1",
            "localhost",
            f"127.0.0.1:{gate.port + 1}",
            f"127.0.0.1.evil.test:{gate.port}",
            f"localhost:{gate.port}.evil.test",
            f"[::1]:{gate.port}",
            f"0.0.0.0:{gate.port}",
            f"127.1:{gate.port}",
            f"localhost.:{gate.port}",
            f"x@127.0.0.1:{gate.port}",
            f"127.0.0.1:0{gate.port}",
            "",
        ):
            answer = await gate.send("GET", path, f"Host: {host}", BEARER)
            assert (answer.status, answer.code) == (421, "wrong-host"), host
            assert no_cors(answer)
        assert gate.passed == []


@requirement("house.auth.cross-site")
async def test_a01_a_missing_or_doubled_host_is_refused() -> None:
    async with guarded() as gate:
        right = f"Host: 127.0.0.1:{gate.port}"
        for hosts in ([], [right, right], [right, "Host: evil.test"], ["Host: evil.test", right], [f"X-{right}"]):
            assert (await gate.send("GET", "/", *hosts, BEARER)).status == 421
        for line in ("GET / HTTP/1.0\r\n", "GET /\r\n"):
            assert (await gate.site.ask(line.encode(), BEARER.encode(), b"\r\n\r\n")).status in (400, 421)
        assert gate.passed == []


@requirement("house.auth.cross-site")
async def test_a01_a_url_with_a_host_of_its_own_is_refused() -> None:
    async with guarded() as gate:
        for url in (f"http://evil.test:{gate.port}/", f"http://127.0.0.1:{gate.port}/", "evil.test:80"):
            assert (await gate.ask("GET", url, BEARER)).status == 400
        assert (await gate.ask("GET", "//evil.test/", BEARER)).status == 200
        assert [path for _, path, _ in gate.passed] == ["//evil.test/"]


async def test_our_own_names_pass_in_any_case_and_with_white_space_around() -> None:
    async with guarded() as gate:
        for host in ("127.0.0.1:{}", "localhost:{}", "LocalHost:{}", "LOCALHOST:{}", "\t 127.0.0.1:{} \t"):
            answer = await gate.send("GET", "/", f"Host: {host.format(gate.port)}", BEARER)
            assert answer.status == 200, host
        assert (await gate.send("GET", "/", f"HOST:localhost:{gate.port}", BEARER)).status == 200


# ---- A02


@requirement("house.auth.cross-site")
@pytest.mark.parametrize("path", ROUTES)
async def test_a02_a_foreign_origin_is_refused_on_every_route(path: str) -> None:
    async with guarded() as gate:
        ours = f"http://127.0.0.1:{gate.port}"
        for origin in (
            "https://evil.test",
            "null",
            "",
            "*",
            "http://localhost.evil.test",
            f"http://localhost.evil.test:{gate.port}",
            "http://127.0.0.1.evil.test:80",
            f"http://127.0.0.1:{gate.port + 1}",
            "http://127.0.0.1",
            f"https://127.0.0.1:{gate.port}",
            f"{ours}/",
            f"{ours} https://evil.test",
            f"{ours}, https://evil.test",
            f"http://[::1]:{gate.port}",
            "file://",
        ):
            answer = await gate.ask("GET", path, f"Origin: {origin}", BEARER)
            assert (answer.status, answer.code) == (403, "foreign-origin"), origin
            assert no_cors(answer)
        assert gate.passed == []


@requirement("house.auth.cross-site")
async def test_a02_a_foreign_origin_cannot_hide_behind_ours() -> None:
    async with guarded() as gate:
        ours, foreign = f"Origin: http://127.0.0.1:{gate.port}", "Origin: https://evil.test"
        for pair in ([ours, foreign], [foreign, ours]):
            assert (await gate.ask("GET", "/", *pair, BEARER)).status == 403
        assert gate.passed == []


async def test_our_own_origin_passes_and_still_needs_the_token() -> None:
    async with guarded() as gate:
        for host in ("127.0.0.1", "localhost", "LOCALHOST"):
            ours = f"Origin: http://{host}:{gate.port}"
            assert (await gate.ask("GET", "/", ours, BEARER)).status == 200
            assert (await gate.ask("GET", "/", ours)).status == 401


# ---- A03


@requirement("house.auth.token")
@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization: Bearer wrong"],
        ["Authorization:"],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Bearer{TOKEN}"],
        [f"Authorization: Basic {TOKEN}"],
        ["Authorization: Basic czNjcmV0LXRva2VuOg=="],
        [f"Authorization: Token {TOKEN}"],
        [f"Authorization: Bearer {TOKEN} x"],
        [f"Authorization: Bearer {TOKEN},"],
        [f"Authorization: Bearer {TOKEN}x"],
        [f"Authorization: Bearer {TOKEN[:-1]}"],
        [f"Authorization: Bearer {TOKEN.upper()}"],
        [f'Authorization: Bearer "{TOKEN}"'],
        [f"Authorization: Bearer Bearer {TOKEN}"],
        [f"Authorization: Bearer\t{TOKEN}"],
        [f"Authorization: Bearer \xff{TOKEN}"],
        [BEARER, BEARER],
        [BEARER, "Authorization: Bearer wrong"],
        [f"X-Authorization: Bearer {TOKEN}"],
        [f"Proxy-Authorization: Bearer {TOKEN}"],
        [f"Cookie: Authorization=Bearer {TOKEN}; token={TOKEN}"],
    ],
)
async def test_a03_a_request_without_exactly_the_token_is_unauthorized(headers: list[str]) -> None:
    async with guarded() as gate:
        answer = await gate.ask("GET", "/api/status", *headers)
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN.encode() not in answer.body
        assert not answer.kept
        assert gate.passed == []


@requirement("house.auth.token")
@pytest.mark.parametrize("query", [f"token={TOKEN}", f"access_token={TOKEN}", f"authorization=Bearer%20{TOKEN}"])
async def test_a03_a_token_in_the_query_does_not_count(query: str) -> None:
    async with guarded() as gate:
        assert (await gate.ask("GET", f"/api/status?{query}")).status == 401
        assert gate.passed == []


@requirement("house.auth.token")
async def test_a03_the_token_opens_every_route_and_names_the_owner() -> None:
    async with guarded() as gate:
        for words in (BEARER, f"authorization: bearer {TOKEN}", f"AUTHORIZATION: BEARER   {TOKEN}  "):
            assert (await gate.ask("GET", "/api/status", words)).status == 200
        assert gate.passed == [("GET", "/api/status", OWNER)] * 3


async def test_an_empty_token_is_nobody_and_tokens_are_not_kept_in_the_clear() -> None:
    tokens = Tokens()
    assert tokens.find(b"") is None
    tokens.add(TOKEN, OWNER)
    assert tokens.find(TOKEN.encode()) is OWNER
    assert TOKEN.encode() not in repr(vars(tokens)).encode()


# ---- health


@requirement("house.auth.token", "house.api.health")
async def test_health_is_open_for_get_and_head_on_exactly_that_path() -> None:
    async with guarded() as gate:
        assert (await gate.ask("GET", "/api/health")).status == 200
        assert (await gate.ask("HEAD", "/api/health")).status == 200
        assert (await gate.ask("GET", "/api/health?x=/api/status")).status == 200
        assert [(method, path, who.kind) for method, path, who in gate.passed] == [
            ("GET", "/api/health", "anybody"),
            ("HEAD", "/api/health", "anybody"),
            ("GET", "/api/health", "anybody"),
        ]
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            assert (await gate.ask(method, "/api/health")).status == 401, method
        for path in (
            "/api/health/",
            "/api/health/../status",
            "//api/health",
            "/api//health",
            "/API/health",
            "/api/%68ealth",
            "/api/health%00",
            "/api/health;x",
            "/api/status?/api/health",
            "/api/status#/api/health",
        ):
            assert (await gate.ask("GET", path)).status == 401, path
        assert len(gate.passed) == 3


# ---- A04


@requirement("house.auth.cross-site")
async def test_a04_no_preflight_is_ever_granted() -> None:
    async with guarded() as gate:
        ours = f"http://127.0.0.1:{gate.port}"
        wishes = [
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: authorization, content-type",
            "Access-Control-Request-Private-Network: true",
        ]
        for origin, token, path in itertools.product(
            ("https://evil.test", "null", ours), ([], [BEARER]), ("/api/health", "/api/status", "/mcp")
        ):
            answer = await gate.ask("OPTIONS", path, f"Origin: {origin}", *wishes, *token)
            assert no_cors(answer)
            assert answer.status == (403 if origin != ours else 200 if token else 401)


# ---- A05


@requirement("house.auth.cross-site")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a05_a_body_that_a_web_page_could_send_unasked_is_refused(method: str) -> None:
    async with guarded() as gate:
        for kind in (
            [],
            ["Content-Type: text/plain"],
            ["Content-Type: text/plain; application/json"],
            ["Content-Type: application/x-www-form-urlencoded"],
            ["Content-Type: multipart/form-data; boundary=application/json"],
            ["Content-Type: application/jsonp"],
            ["Content-Type: application/json, text/plain"],
            ["Content-Type: application/json", "Content-Type: text/plain"],
            ["Content-Type: application/json", "Content-Type: application/json"],
            ["Content-Type:"],
        ):
            answer = await gate.ask(method, "/api/status", BEARER, *kind, "Content-Length: 2", body=b"{}")
            assert (answer.status, answer.code) == (415, "not-json"), kind
        chunked = await gate.ask(method, "/", BEARER, "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n")
        assert chunked.status == 415
        assert gate.passed == []


async def test_long_polling_posts_text_and_nothing_else_that_is_not_json() -> None:
    async with guarded() as gate:
        for kind, path, passes in (
            ("text/plain;charset=UTF-8", "/socket.io/", True),
            ("Text/Plain", "/socket.io/", True),
            ("application/x-www-form-urlencoded", "/socket.io/", False),
            ("text/plain", "/socket.io", False),
            ("text/plain", "/socket.io/more", False),
            ("text/plain", "/mcp", False),
        ):
            sent = [BEARER, f"Content-Type: {kind}", "Content-Length: 2"]
            assert (await gate.ask("POST", path, *sent, body=b"{}")).status == (200 if passes else 415), (kind, path)
        assert (await gate.ask("POST", "/socket.io/", *sent[1:], body=b"{}")).status == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_json_of_any_spelling_passes_and_so_does_no_body_at_all(method: str) -> None:
    async with guarded() as gate:
        for kind in (
            "application/json",
            "application/json; charset=utf-8",
            "application/json;charset=utf-8",
            "APPLICATION/JSON",
            " application/json ; x=y ",
        ):
            sent = [BEARER, f"Content-Type: {kind}", "Content-Length: 2"]
            assert (await gate.ask(method, "/", *sent, body=b"{}")).status == 200, kind
        assert (await gate.ask(method, "/", BEARER)).status == 200
        assert (await gate.ask(method, "/", BEARER, "Content-Length: 0")).status == 200


# ---- all of it together


@requirement("house.auth.loopback")
async def test_without_tokens_host_origin_and_content_are_still_judged() -> None:
    async with guarded(tokenless=LOOPBACK) as gate:
        assert (await gate.ask("GET", "/mcp")).status == 200
        assert [who for _, _, who in gate.passed] == [LOOPBACK]
        assert (await gate.send("GET", "/mcp", "Host: evil.test")).status == 421
        assert (await gate.ask("GET", "/mcp", "Origin: null")).status == 403
        plain = ["Content-Type: text/plain", "Content-Length: 2"]
        assert (await gate.ask("POST", "/mcp", *plain, body=b"{}")).status == 415
        assert len(gate.passed) == 1


@requirement("house.auth.loopback-agents")
async def test_a_token_counts_also_where_none_is_needed() -> None:
    async with guarded(tokenless=LOOPBACK) as gate:
        assert (await gate.ask("GET", "/api/status", BEARER)).status == 200
        assert (await gate.ask("GET", "/mcp", f"Authorization: Bearer {OF_WORKSPACE}")).status == 200
        assert [who for _, _, who in gate.passed] == [OWNER, WORKSPACE]
        assert (await gate.ask("GET", "/api/status", f"Authorization: Bearer {OF_WORKSPACE}")).status == 403
        for wrong in ("Bearer rk_garbage", "Bearer", "", f"Basic {TOKEN}"):
            assert (await gate.ask("GET", "/mcp", f"Authorization: {wrong}")).status == 401, wrong
        assert len(gate.passed) == 2


@requirement("house.auth.loopback-agents")
@pytest.mark.parametrize("path", ["/api/status", "/api/mcp", "/metrics", "/socket.io/", "/", "/api/health/", "/wx/mcp"])
async def test_without_a_token_only_the_endpoints_of_mcp_are_open(path: str) -> None:
    async with guarded(tokenless=LOOPBACK) as gate:
        for method in ("GET", "POST", "DELETE"):
            assert (await gate.ask(method, path)).status == 401
        for open_ in ("/mcp", "/sse", "/ws", "/w/app/fix/mcp"):
            assert (await gate.ask("GET", open_)).status == 200
        assert {who for _, _, who in gate.passed} == {LOOPBACK}


@requirement("house.auth.cross-site")
@pytest.mark.parametrize("tokenless", [None, LOOPBACK], ids=["token", "loopback"])
async def test_a_get_that_another_site_is_behind_is_refused(tokenless: Principal | None) -> None:
    async with guarded(tokenless=tokenless) as gate:
        for site in ("cross-site", "same-site", "CROSS-SITE", "unheard-of", ""):
            for path in ("/mcp", "/sse", "/w/app/fix/mcp", "/api/health"):
                answer = await gate.ask("GET", path, BEARER, f"Sec-Fetch-Site: {site}")
                assert (answer.status, answer.code) == (403, "foreign-origin"), (site, path)
        assert gate.passed == []
        for site in ("same-origin", "none"):
            assert (await gate.ask("GET", "/mcp", BEARER, f"Sec-Fetch-Site: {site}")).status == 200
        twice = ["Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"]
        assert (await gate.ask("GET", "/mcp", BEARER, *twice)).status == 403


async def test_host_is_judged_before_origin_before_content_before_token() -> None:
    """So that a page of another place learns nothing, not even whether its content would do."""
    wrongs = [(421, "Host: evil.test"), (403, "Origin: null"), (415, "Content-Type: text/plain"), (401, "X: y")]
    async with guarded() as gate:
        rights = [f"Host: 127.0.0.1:{gate.port}", "Accept: */*", "Content-Type: application/json", BEARER]
        for wrong in itertools.product([False, True], repeat=4):
            headers = [bad if is_bad else good for is_bad, (_, bad), good in zip(wrong, wrongs, rights, strict=True)]
            answer = await gate.send("POST", "/", *headers, "Content-Length: 2", body=b"{}")
            first = next((status for is_bad, (status, _) in zip(wrong, wrongs, strict=True) if is_bad), 200)
            assert answer.status == first, headers


async def test_a_refusal_ends_its_connection_and_touches_no_other() -> None:
    async with guarded() as gate:
        client = await gate.site.client()
        refused = await client.ask(request("GET", "/"))
        assert refused.status == 421
        assert await client.rest() == b""
        assert (await gate.ask("GET", "/", BEARER)).status == 200


def test_on_the_unix_socket_the_content_type_is_all_that_is_judged() -> None:
    for headers in ([], [(b"host", b"evil.test")], [(b"origin", b"null")], [(b"authorization", b"Bearer wrong")]):
        who = make_socket_authenticator()("GET", "/api/status", headers)
        assert isinstance(who, Principal)
        assert who.kind == "owner"
        assert who.local
    refused = make_socket_authenticator()("POST", "/", [(b"content-type", b"text/plain"), (b"content-length", b"2")])
    assert not isinstance(refused, Principal)
    assert refused.status == 415


def test_with_a_sandbox_the_unix_socket_wants_the_owners_token() -> None:
    tokens = Tokens()
    tokens.add(TOKEN, OWNER)
    tokens.add(OF_WORKSPACE, WORKSPACE)
    authenticate = make_owner_authenticator(tokens)
    owner = authenticate("GET", "/api/status", [(b"authorization", BEARER.partition(": ")[2].encode())])
    assert isinstance(owner, Principal) and owner.kind == "owner" and owner.local
    none: list[tuple[bytes, bytes]] = []
    wrong = (none, [(b"authorization", b"Bearer wrong")], [(b"authorization", f"Bearer {OF_WORKSPACE}".encode())])
    for headers in (*wrong, [(b"authorization", TOKEN.encode())], [(b"authorization", b"Bearer ")]):
        refused = authenticate("GET", "/api/status", headers)
        assert not isinstance(refused, Principal) and refused.status == 401
        assert authenticate("GET", "/api/health", headers) == ANYBODY


@requirement("ws.agent.principal")
@pytest.mark.parametrize("path", [*ROUTES, "/mcp", "/sse", "/ws", "/w/app/fix/mcp", "/socket.io/", "/metrics"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_on_the_unix_socket_a_workspace_opens_what_its_token_opens_on_a_port(method: str, path: str) -> None:
    async with guarded() as gate:
        answer = await gate.ask(method, path, f"Authorization: Bearer {OF_WORKSPACE}")
        found = make_socket_authenticator(WORKSPACE)(method, path, [])
        if answer.status == 200:
            assert found == gate.passed[0][2]
        else:
            assert isinstance(found, Refusal) and found.status == answer.status
    nobody = make_socket_authenticator(ANYBODY)(method, path, [])
    assert nobody is ANYBODY if (method, path) == ("GET", "/api/health") else isinstance(nobody, Refusal)
