"""Signing in to an MCP server by tools: the owner gets the address, waits, cancels and signs out."""

import asyncio

import pytest

from rookery.guard.audit.records import AuditFilter
from rookery.operations.servers import signin
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import HANDSHAKE, MODERN, failure, told, words
from tests.support.mcp.oauth import browse, follow, start_oauth_servers
from tests.support.mcp.remote_server import Remote
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

ADMIN = "/mcp?toolsets=admin"


async def list_audited(gateway: Gateway) -> list[tuple[str | None, str]]:
    """Return the server and the verdict of each sign-in in the audit."""
    page = await gateway.parts.audit.find(AuditFilter(events=frozenset({"sign-in"})), 100)
    return [(record.server, record.verdict) for record in page.records]


@requirement("guard.audit.record")
@requirement("hub.signin.flow")
async def test_the_owner_signs_in_and_out_by_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signin, "_REPORT_SECONDS", 0.05)
    async with start_oauth_servers(Remote(MODERN)) as oauth, start_gateway({"far": {"url": oauth.url}}) as gateway:
        admin = await gateway.caller(ADMIN, HANDSHAKE)
        asked = told(await admin.call("server_login", {"name": "far", "seconds": 60}))
        assert asked.items() >= {"name": "far", "type": "asked", "issuer": oauth.issuer.url, "seconds": 60}.items()
        waiting = admin.begin("server_wait_login", {"name": "far"}, progressToken="p")
        # A client does not give up while a person is busy.
        await admin.hears("notifications/progress", 2)
        assert (await follow(gateway.http, await browse(gateway.http, asked["url"])))[0] == 200
        record = told(await waiting)
        assert (record["status"], record["issuer"]) == ("connected", oauth.issuer.url)
        assert admin.all("notifications/progress")[0]["params"]["message"] == "waiting until the user has signed in"
        # Neither the code nor the token reaches the client.
        assert oauth.issuer.tokens and not [token for token in oauth.issuer.tokens if token in str(admin.heard)]
        out = told(await admin.call("server_logout", {"name": "far"}))
        assert out == {"name": "far", "removed": True, "revoked": True}
        assert await list_audited(gateway) == [("far", "granted"), ("far", "removed")]


@requirement("hub.signin.flow")
async def test_a_sign_in_by_tools_is_cancelled_and_limited() -> None:
    async with start_oauth_servers(Remote(MODERN)) as oauth, start_gateway({"far": {"url": oauth.url}}) as gateway:
        admin = await gateway.caller(ADMIN)
        for seconds in (0, -1, 3601):
            refused = await admin.call("server_login", {"name": "far", "seconds": seconds})
            assert failure(refused) == "invalid-input" and "at most 3600" in words(refused)
        assert failure(await admin.call("server_wait_login", {"name": "far"})) == "invalid-input"
        told(await admin.call("server_login", {"name": "far"}))
        waiting = asyncio.ensure_future(admin.call("server_wait_login", {"name": "far"}))
        assert told(await admin.call("server_cancel_login", {"name": "far"})) == {"name": "far"}
        # The wait has begun either before the sign-in was cancelled, or after it was forgotten.
        assert failure(await waiting) in ("sign-in-failed", "invalid-input")
        assert await list_audited(gateway) == [("far", "cancelled")]
        assert "server_login_redirect" not in {tool["name"] for tool in await admin.listed("tools")}
