"""The callback server for the browser."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from rookery.system.errors import RookeryError
from rookery.upstreams.oauth.callback import CallbackServer, RedirectAddress
from tests.support.http.listener import RawResponse
from tests.support.mcp.client import within_limit
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("hub.signin.addresses")]


@asynccontextmanager
async def a_callback(place: RedirectAddress | None = None) -> AsyncGenerator[CallbackServer]:
    callback = CallbackServer(place or RedirectAddress())
    await callback.open()
    callback.expect_state("expected")
    try:
        yield callback
    finally:
        await callback.close()


async def ask(callback: CallbackServer, target: str, method: str = "GET", host: str | None = None) -> RawResponse:
    reader, writer = await asyncio.open_connection("127.0.0.1", callback.address.port)
    sent = host if host is not None else f"{callback.address.host}:{callback.address.port}"
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {sent}\r\n\r\n".encode())
    head, _, body = (await within_limit(reader.read())).partition(b"\r\n\r\n")
    writer.close()
    return RawResponse(head, body)


async def test_s9_only_the_answer_to_this_sign_in_is_taken_and_only_once() -> None:
    async with a_callback() as callback:
        assert callback.address.url == f"http://127.0.0.1:{callback.address.port}/callback"
        good = "/callback?code=c&state=expected&iss=https%3A%2F%2Fa.example"
        for target, method, host, status in (
            ("/", "GET", None, 404),
            ("/callback/x?code=c&state=expected", "GET", None, 404),
            ("/Callback?code=c&state=expected", "GET", None, 404),
            ("/callback?code=c&state=other", "GET", None, 400),
            ("/callback?code=c", "GET", None, 400),
            ("/callback?state=expected", "GET", None, 400),
            ("/callback?code=c&code=d&state=expected", "GET", None, 400),
            (good, "POST", None, 405),
            (good, "GET", "evil.example", 400),
            (good, "GET", f"evil.example:{callback.address.port}", 400),
        ):
            assert (await ask(callback, target, method, host)).status == status, target
        answer = await ask(callback, good)
        assert answer.status == 200 and b"close this window" in answer.body
        assert answer.headers["content-security-policy"] == "default-src 'none'"
        assert answer.headers["cache-control"] == "no-store"
        found = await within_limit(callback.wait_for_response())
        assert (found.code, found.state, found.iss) == ("c", "expected", "https://a.example")
        assert (await ask(callback, good)).status == 400


async def test_a_refusal_ends_the_sign_in_with_what_was_said_and_nothing_of_it_is_a_page() -> None:
    async with a_callback() as callback:
        assert (await ask(callback, "/callback?error=access_denied&state=other")).status == 400
        assert (await ask(callback, "/callback?error=access_denied&error_description=no&state=expected")).status == 200
        with pytest.raises(RookeryError, match="access_denied no"):
            await within_limit(callback.wait_for_response())
    async with a_callback() as callback:
        answer = await ask(callback, "/callback?code=c&state=%3Cscript%3E")
        assert b"<script>" not in answer.body


async def test_a_configured_place_is_used_and_one_that_is_taken_is_told_of() -> None:
    async with a_callback() as callback:
        taken = CallbackServer(RedirectAddress(port=callback.address.port))
        with pytest.raises(RookeryError, match="is in use"):
            await taken.open()
        await taken.close()
    place = RedirectAddress.parse("http://localhost:8123/mcp/oauth/callback")
    assert (place.host, place.port, place.path) == ("localhost", 8123, "/mcp/oauth/callback")
    for url in (
        "https://localhost/x",
        "http://evil.example/x",
        "http://10.0.0.1/",
        "http://127.0.0.1/?a=b",
        "file:///x",
    ):
        with pytest.raises(RookeryError, match="redirect address"):
            RedirectAddress.parse(url)


async def test_nobody_is_listened_to_for_ever_or_without_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.upstreams.oauth.callback._READ_SECONDS", 0.2)
    async with a_callback() as callback:
        for beginning in (b"GET /callback", b"GET /callback?" + b"x" * 100_000):
            reader, writer = await asyncio.open_connection("127.0.0.1", callback.address.port)
            writer.write(beginning)
            with pytest.raises((ConnectionError, AssertionError)):
                assert await within_limit(reader.read()) != b""
            writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", callback.address.port)
