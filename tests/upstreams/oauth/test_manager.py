"""Sign-in to a server of the gateway, from the refusal to the tokens, with a real authorization server."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rookery.system.fs import paths as places
from tests.support.gateway.gateway import OWNERS, Gateway, start_gateway, write
from tests.support.mcp.caller import HANDSHAKE, MODERN, failure, told, words
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer, within_limit
from tests.support.mcp.oauth import Issuer, browse, follow, start_oauth_servers
from tests.support.mcp.remote_server import Remote
from tests.support.mcp.scripted_server import text
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def kept() -> list[Path]:
    return [path for path in (places.state_folder() / "sign-in").rglob("*") if path.is_file()]


async def login(gateway: Gateway, name: str = "far") -> tuple[int, Any]:
    """Begin, say yes in the browser, and wait for the end."""
    status, asked = await gateway.rest("POST", f"/api/mcp/{name}/login")
    assert status == 202, asked
    assert (await follow(gateway.http, await browse(gateway.http, asked["url"])))[0] == 200
    return await gateway.rest("GET", f"/api/mcp/{name}/login")


@requirement("hub.signin.flow", "hub.signin.tokens")
async def test_s2_s9_a_server_that_needs_auth_works_from_sign_in_until_sign_out() -> None:
    async with start_oauth_servers(Remote(MODERN)) as oauth, start_gateway({"far": {"url": oauth.url}}) as gateway:
        own = {"Authorization": "Bearer the-callers-own", "Cookie": "a=the-callers-own"}
        caller = await gateway.caller(headers=own)
        assert "far__echo" not in await caller.tools()
        assert "sign in: rookery mcp login far" in str(await gateway.becomes("far", "needs_auth"))
        assert "sign in: rookery mcp login far" in str(await caller.call("far__echo"))
        status, record = await login(gateway)
        assert (status, record["status"], record["issuer"]) == (200, "connected", oauth.issuer.url)
        assert told(await caller.call("far__echo", {"a": 1}))["arguments"] == {"a": 1}
        # One file for the owner only, bound to issuer and address; asked with PKCE, for this resource.
        (file,) = kept()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        grant = json.loads(file.read_text())["grant"]
        assert (grant["server"], grant["issuer"]) == (oauth.url, oauth.issuer.url)
        (asked,) = oauth.issuer.asked
        assert (asked["code_challenge_method"], asked["resource"]) == ("S256", oauth.url)
        # What callers and logs see has no token in it.
        token = grant["tokens"]["access_token"]
        assert token not in json.dumps([event.data for event in gateway.events.all], default=str)
        seen = {asked.headers.get("authorization") for asked in oauth.at_server.asked}
        assert seen == {None, f"Bearer {token}"} and "the-callers-own" not in str(oauth.at_server.asked)
        # A token that is refused is renewed once, however many calls find out, and nobody sees anything of it.
        oauth.issuer.tokens.clear()
        found = await asyncio.gather(*(caller.call("far__echo", {"n": n}) for n in range(5)))
        assert [told(one)["arguments"]["n"] for one in found] == [0, 1, 2, 3, 4]
        assert [form["grant_type"] for form in oauth.issuer.exchanged] == ["authorization_code", "refresh_token"]
        assert oauth.issuer.exchanged[1]["resource"] == oauth.url
        status, out = await gateway.rest("POST", "/api/mcp/far/logout")
        assert (status, out["removed"], out["revoked"], kept()) == (200, True, True, [])
        assert len(oauth.issuer.revoked) == 2
        await gateway.becomes("far", "needs_auth")
        before = len(oauth.at_server.asked)
        assert "rookery mcp login far" in str(await caller.call("far__echo"))
        sent = [asked.headers.get("authorization") for asked in oauth.at_server.asked[before:]]
        assert set(sent) <= {None}


@requirement("hub.signin.flow")
async def test_s10_only_a_call_that_needs_more_scopes_fails_until_the_user_grants_them() -> None:
    remote, scopes = Remote(HANDSHAKE), {"": "basic", "hold": "basic write"}

    async def answer(asked: HttpRequest, out: HttpResponder) -> None:
        await out.json(asked.result(text("done")))

    remote.on_call = answer
    async with (
        start_oauth_servers(remote, scopes=scopes) as oauth,
        start_gateway({"far": {"url": oauth.url}}) as gateway,
    ):
        caller = await gateway.caller()
        await login(gateway)
        found = await caller.call("far__hold")
        assert failure(found) == "needs-auth"
        assert "sign in again and grant the requested access: rookery mcp login far" in words(found)
        assert await gateway.status("far") == "connected"
        assert words(await caller.call("far__echo")) == "done"
        await login(gateway)
        assert [asked["scope"] for asked in oauth.issuer.asked] == ["basic", "basic write"]
        assert len(oauth.issuer.registered) == 1
        assert words(await caller.call("far__hold")) == "done"
        # What is over for good is asked for again, by everybody at once and for nothing.
        oauth.issuer.refuses_renewal = 400
        oauth.issuer.tokens.clear()
        found = await caller.call("far__echo")
        assert failure(found) == "needs-auth" and "rookery mcp login far" in words(found)
        await gateway.becomes("far", "needs_auth")
        assert len(oauth.issuer.exchanged) == 3
        assert "rookery mcp login far" in str(await caller.call("far__echo"))
        assert len(oauth.issuer.exchanged) == 3


@requirement("hub.signin.flow")
async def test_a_server_that_asks_who_is_there_for_one_tool_goes_on_with_the_others() -> None:
    remote, held, go = Remote(HANDSHAKE), asyncio.Event(), asyncio.Event()

    async def answer(asked: HttpRequest, out: HttpResponder) -> None:
        if asked.message["params"]["name"] == "echo":
            await out.answer(401, b"who are you?")
        else:
            held.set()
            await go.wait()
            await out.json(asked.result(text("done")))

    remote.on_call = answer
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        caller, other = await gateway.caller(), await gateway.caller()
        holding = asyncio.create_task(other.call("far__hold"))
        await within_limit(held.wait())
        refused = await caller.call("far__echo")
        assert failure(refused) == "needs-auth" and "sign in: rookery mcp login far" in words(refused)
        assert await gateway.status("far") == "connected"
        go.set()
        assert words(await within_limit(holding)) == "done"


@requirement("hub.signin.flow", "hub.status.values")
async def test_a_server_that_registers_no_client_says_so_before_anybody_signs_in() -> None:
    issuer = Issuer(said={"registration_endpoint": None})
    async with (
        start_oauth_servers(Remote(HANDSHAKE), issuer) as oauth,
        start_gateway({"far": {"url": oauth.url}}) as gateway,
    ):
        await (await gateway.caller()).tools()
        debugged = (await gateway.rest("POST", "/api/mcp/far/debug"))[1]
        assert "no client can be registered" in str(debugged["steps"])
        error = await gateway.becomes("far", "needs_client_registration")
        assert error is not None and '"oauth": {"clientId"' in error
        status, found = await gateway.rest("POST", "/api/mcp/far/login")
        assert (status, found["error"]["code"]) == (409, "needs-client-registration")
        mine = {"url": oauth.url, "oauth": {"clientId": "mine", "clientSecret": "{env:FAR_SECRET}"}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAR_SECRET", "not-in-any-file")
            write({"far": mine})
            await gateway.becomes("far", "pending", "needs_auth")
            assert (await login(gateway))[1]["status"] == "connected"
        assert issuer.exchanged[0]["client_secret"] == "not-in-any-file"
        assert all("not-in-any-file" not in file.read_text() for file in kept())


@requirement("hub.signin.flow")
async def test_who_is_not_to_be_signed_in_to_is_not_and_one_sign_in_ends_another() -> None:
    async with start_oauth_servers(Remote(HANDSHAKE)) as oauth:
        servers = {
            "far": {"url": oauth.url},
            "own": {"url": oauth.url, "headers": {"Authorization": "Bearer mine"}},
            "off": {"url": oauth.url, "oauth": False},
        }
        async with (
            ScriptedHttpServer(Remote()) as plain,
            start_gateway(servers | {"plain": {"url": plain.url}}) as gateway,
        ):
            for name in ("own", "off", "plain"):
                status, found = await gateway.rest("POST", f"/api/mcp/{name}/login")
                assert (status, found["error"]["code"]) == (400, "invalid-input"), found
            assert "Authorization header" in str((await gateway.rest("POST", "/api/mcp/off/debug"))[1]["remedy"])
            assert (await gateway.rest("GET", "/api/mcp/far/login"))[0] == 400
            for seconds in (0, -1, 1e9):
                assert (await gateway.rest("POST", "/api/mcp/far/login", {"seconds": seconds}))[0] == 400
            _, first = await gateway.rest("POST", "/api/mcp/far/login")
            waiting = asyncio.create_task(gateway.rest("GET", "/api/mcp/far/login"))
            assert first["redirect"].startswith("http://127.0.0.1:")
            _, second = await gateway.rest("POST", "/api/mcp/far/login")
            status, found = await within_limit(waiting)
            assert (status, found["error"]["code"]) == (502, "sign-in-failed") and "another sign-in" in str(found)
            # The port may be the same, as the first sign-in has freed it; the state of the request is a new one.
            assert second["url"] != first["url"]
            # Of those that begin at the same time one stays, and none is forgotten.
            definition = (await gateway.hub.server_set(None, None)).server("far", None).definition
            made = await asyncio.gather(*(gateway.hub.signins.login(definition) for _ in range(3)))
            assert [one.running for one in made].count(True) == 1
            await gateway.rest("DELETE", "/api/mcp/far/login")
            assert not any(one.running for one in made)
            for one in (first, second):
                with pytest.raises(aiohttp.ClientConnectorError):
                    await gateway.http.get(one["redirect"])


@requirement("hub.signin.tokens")
async def test_s9_a_sign_in_outlives_the_daemon_and_is_not_for_a_server_that_moved() -> None:
    async with start_oauth_servers(Remote(HANDSHAKE)) as oauth, start_oauth_servers(Remote(HANDSHAKE)) as other:
        async with start_gateway({"far": {"url": oauth.url}}) as gateway:
            await login(gateway)
        async with start_gateway({"far": {"url": oauth.url}}) as gateway:
            caller = await gateway.caller()
            assert told(await caller.call("far__echo", {"a": 1}))["arguments"] == {"a": 1}
            write({"far": {"url": other.url}})
            await gateway.hub.config_watcher.read_again()
            await gateway.rest("POST", "/api/mcp/far/connect")
            assert await gateway.status("far") == "needs_auth"
        assert {asked.headers.get("authorization") for asked in other.at_server.asked} == {None}


async def test_s1_rookery_is_no_oauth_proxy_and_issues_nothing_to_anybody() -> None:
    names = ("oauth-protected-resource", "oauth-authorization-server", "openid-configuration")
    paths = [f"/.well-known/{name}" for name in names]
    async with start_gateway(with_tokens=True) as gateway:
        for path in (*paths, "/register", "/authorize", "/token", "/api/mcp/far/login"):
            for method in ("GET", "POST"):
                async with gateway.http.request(method, gateway.url(path), json={}) as answer:
                    assert answer.status == 401, path
                    assert "resource_metadata" not in answer.headers.get("WWW-Authenticate", "")
        owner = {"Authorization": f"Bearer {OWNERS}"}
        for path in paths:
            async with gateway.http.get(gateway.url(path), headers=owner) as answer:
                assert answer.status == 404, path
