"""Servers that are started once for a check."""

from typing import Any

import pytest

from tests.support.gateway.gateway import Gateway, checkout, start_gateway, write
from tests.support.mcp.caller import MODERN
from tests.support.mcp.scripted_server import Message, ScriptedServers, ServerScript, tool

pytestmark = pytest.mark.anyio

BAD = tool("fetch page", inputSchema={"type": "object", "not": {"$ref": "http://127.0.0.1:9/x"}})


def shelf(scripted: ScriptedServers) -> Message:
    good = tool("read_file", description="Read a file.")
    return {
        "good": scripted.server("good", ServerScript([good, tool("send_mail", description="Send a mail.")])),
        "bad": scripted.server("bad", ServerScript([BAD, BAD], era=MODERN)),
        "dead": {"command": ["/nowhere/at-all"]},
        "off": scripted.server("off", enabled=False),
    }


async def check(gateway: Gateway, *names: str, query: str = "") -> Any:
    status, found = await gateway.rest("POST", f"/api/check{query}", {"servers": list(names)})
    assert status == 200, found
    return found


def said(found: Any, level: str) -> set[tuple[str | None, str]]:
    return {(one["server"], one["rule"]) for one in found["findings"] if one["level"] == level}


async def test_every_server_is_started_once_judged_and_ended_beside_those_that_run() -> None:
    async with start_gateway(shelf) as gateway:
        caller = await gateway.caller()
        await caller.call("good__read_file")
        running = await gateway.scripted.comes("good")
        found = await check(gateway)
        by_name = {one["name"]: one for one in found["servers"]}
        states = {name: (one["status"], one["era"], one["tools"]) for name, one in by_name.items()}
        assert states == {
            "good": ("reachable", "2025-11-25", 2),
            "bad": ("reachable", MODERN, 1),
            "dead": ("failed", None, 0),
            "off": ("disabled", None, 0),
        }
        assert by_name["good"]["ms"] > 0 and by_name["good"]["tokens"] > 10
        assert "/nowhere/at-all was not found" in by_name["dead"]["error"]
        assert found["ok"] is False
        assert said(found, "error") == {("dead", "unreachable"), ("bad", "ref-elsewhere")}
        assert {("bad", "no-description"), ("bad", "name-characters"), ("bad", "listing")} <= said(found, "warning")
        assert said(found, "note") == {("off", "disabled")}
        assert found["list_tokens"] == by_name["good"]["tokens"] + by_name["bad"]["tokens"]
        assert 0 < found["search_tokens"] < 1000

        # Another one beside the one that runs, which is left alone; the judged ones have ended.
        assert len(gateway.scripted.of("good")) == 2 and gateway.scripted.of("off") == []
        for one in (gateway.scripted.of("good")[1], gateway.scripted.of("bad")[-1]):
            await one.has_ended()
        assert running in gateway.scripted.alive("good")
        # Whoever is named twice is one server, and clashes with nobody.
        twice = await check(gateway, "good", "good")
        assert len(twice["servers"]) == 1 and "name-clash" not in {one["rule"] for one in twice["findings"]}


async def test_c25_a_toxic_flow_of_one_view_is_reported_and_a_filter_takes_it_away() -> None:
    def servers(scripted: ScriptedServers) -> Message:
        web = ServerScript([tool("fetch_website", description="Fetch a website.")])
        return {"good": shelf(scripted)["good"], "web": scripted.server("web", web)}

    async with start_gateway(servers) as gateway:
        found = await check(gateway)
        assert found["ok"] is True and said(found, "warning") == {(None, "toxic-flow")}
        assert "web__fetch_website" in str(found["findings"])
        assert said(await check(gateway, "web"), "warning") == set()
        assert (await gateway.rest("POST", "/api/mcp/good/disable", {"tool": "send_*"}))[0] == 200
        assert said(await check(gateway), "warning") == set()


async def test_a_server_of_a_repository_that_waits_for_approval_is_said_so_and_not_started() -> None:
    app = checkout()
    async with start_gateway({}, app) as gateway:
        write({"theirs": gateway.scripted.server("theirs")}, app / ".rookery" / "mcp.json")
        found = await check(gateway, query=f"?workspace={app}")
        assert [(one["name"], one["status"]) for one in found["servers"]] == [("theirs", "needs_approval")]
        assert said(found, "warning") == {("theirs", "needs-approval")} and found["ok"] is True
        assert gateway.scripted.all == []
        status, wrong = await gateway.rest("POST", "/api/check", {"servers": ["nobody"]})
        assert (status, wrong["error"]["code"]) == (404, "server-not-found")
