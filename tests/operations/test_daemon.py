"""The operations on the daemon, over REST and MCP."""

import pytest

from tests.support.gateway.gateway import OWNERS, start_gateway
from tests.support.mcp.caller import ERAS, told

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ERAS)
async def test_the_owner_reads_the_daemons_status_and_reloads_it_over_mcp(era: str) -> None:
    async with start_gateway() as gateway:
        caller = await gateway.caller("/mcp?toolsets=admin", era)
        status = told(await caller.call("daemon_status"))
        assert (200, status) == await gateway.rest("GET", "/api/daemon")
        # A client of the handshake era has a session, which is in the status.
        assert [client["path"] for client in status["clients"]] == (["/mcp"] if era != ERAS[-1] else [])
        reloaded = told(await caller.call("daemon_reload"))
        assert reloaded == {"applied": [], "needs_restart": []}
        assert (200, reloaded) == await gateway.rest("POST", "/api/daemon/reload")


async def test_only_health_needs_no_token() -> None:
    async with start_gateway(with_tokens=True) as gateway:
        expected = {"health": 200, "status": 401, "daemon": 401, "events": 401, "logs": 401}
        for name, status in expected.items():
            async with gateway.http.get(gateway.url(f"/api/{name}")) as answer:
                assert answer.status == status, name
        async with gateway.http.get(gateway.url("/metrics")) as answer:
            assert answer.status == 401
        async with gateway.http.get(gateway.url("/metrics"), headers={"Authorization": f"Bearer {OWNERS}"}) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "# TYPE rookery_events_published_total counter" in await answer.text()


@pytest.mark.parametrize("query", ["level=loud", "last=x", "last=-1", "last=1e3", "last=null", "last=1000000000"])
async def test_a_log_query_that_is_not_valid_is_refused_with_what_is(query: str) -> None:
    async with start_gateway() as gateway:
        status, body = await gateway.rest("GET", f"/api/logs?{query}")
        name, _, value = query.partition("=")
        assert (status, body["error"]["code"]) == (400, "invalid-input")
        assert body["error"]["message"].startswith(f"{name}={value!r} is not valid")
        assert name != "level" or body["error"]["remedy"] == "use one of debug, info, warning, error"
