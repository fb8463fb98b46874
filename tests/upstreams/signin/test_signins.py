"""Signing in to a server behind the gateway, from the refusal to the tokens, with a real authorization server."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from rookery.system import places
from tests.support.callers import MODERN, told
from tests.support.gateway import Gateway, a_gateway
from tests.support.requirements import requirement
from tests.support.signin import an_estate, browse, follow
from tests.upstreams.test_faults_remote import Remote

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
async def test_s2_s9_a_server_that_needs_auth_is_used_after_a_sign_in_and_no_more_after_signing_out() -> None:
    async with an_estate(Remote(MODERN)) as estate, a_gateway({"far": {"url": estate.url}}) as gateway:
        caller = await gateway.caller()
        assert "far__echo" not in await caller.tools()
        assert "sign in: rookery mcp login far" in str(await gateway.becomes("far", "needs_auth"))
        assert "sign in: rookery mcp login far" in str(await caller.call("far__echo"))
        status, record = await login(gateway)
        assert (status, record["status"], record["issuer"]) == (200, "connected", estate.issuer.url)
        assert told(await caller.call("far__echo", {"a": 1}))["arguments"] == {"a": 1}
        # One file for the owner only, bound to issuer and address; asked with PKCE, for this resource.
        (file,) = kept()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        grant = json.loads(file.read_text())["grant"]
        assert (grant["server"], grant["issuer"]) == (estate.url, estate.issuer.url)
        (asked,) = estate.issuer.asked
        assert (asked["code_challenge_method"], asked["resource"]) == ("S256", estate.url)
        # What callers and logs see has no token in it.
        token = grant["tokens"]["access_token"]
        assert token not in json.dumps([event.data for event in gateway.events.all], default=str)
        # A token that is refused is renewed once, however many calls find out, and nobody sees anything of it.
        estate.issuer.tokens.clear()
        found = await asyncio.gather(*(caller.call("far__echo", {"n": n}) for n in range(5)))
        assert [told(one)["arguments"]["n"] for one in found] == [0, 1, 2, 3, 4]
        assert [form["grant_type"] for form in estate.issuer.exchanged] == ["authorization_code", "refresh_token"]
        assert estate.issuer.exchanged[1]["resource"] == estate.url
        status, out = await gateway.rest("POST", "/api/mcp/far/logout")
        assert (status, out["removed"], out["revoked"], kept()) == (200, True, True, [])
        assert len(estate.issuer.revoked) == 2
        await gateway.becomes("far", "needs_auth")
        before = len(estate.at_server.asked)
        assert "rookery mcp login far" in str(await caller.call("far__echo"))
        sent = [asked.headers.get("authorization") for asked in estate.at_server.asked[before:]]
        assert set(sent) <= {None}
