"""How long the lists of a server are kept."""

import asyncio

import pytest

from rookery.wire.protocol import revisions
from tests.support.gateway.gateway import UNPINNED, checkout, start_gateway, view_of
from tests.support.mcp.caller import Caller, told
from tests.support.mcp.scripted_server import Message, ScriptedServer, ServerScript, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def silent() -> ServerScript:
    """A modern server that never tells of changes, and whose lists the test answers."""
    return ServerScript(era=revisions.LATEST, held={"tools/list"}, more={"tools": {}})


async def listed(caller: Caller, one: ScriptedServer, count: int, ttl: int, *names: str) -> list[str]:
    """What a client sees while its server answers for the time `count`."""
    asking = asyncio.ensure_future(caller.tools())
    one.answer(await one.hears("tools/list", count), {"tools": [tool(name) for name in names], "ttlMs": ttl})
    return sorted(await asking)


@requirement("hub.catalog.cached")
async def test_a_list_that_may_not_be_kept_is_asked_for_each_time() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", silent())}, settings=UNPINNED) as gateway:
        caller = await gateway.caller("/mcp?toolsets=none")
        first = asyncio.ensure_future(caller.tools())
        one = await gateway.scripted.comes("one")
        one.answer(await one.hears("tools/list"), {"tools": [tool("a")], "ttlMs": 0, "cacheScope": "private"})
        assert sorted(await first) == ["one__a"]
        assert await listed(caller, one, 2, 0, "a", "b") == ["one__a", "one__b"]
        assert await listed(caller, one, 3, 60_000, "b") == ["one__b"]
        assert sorted(await caller.tools()) == ["one__b"]
        assert len(one.all("tools/list")) == 3


@requirement("hub.catalog.cached")
async def test_a_list_whose_changes_are_told_is_kept_whatever_its_time_to_live() -> None:
    play = ServerScript(era=revisions.LATEST, held={"tools/list"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller("/mcp?toolsets=none")
        first = asyncio.ensure_future(caller.tools())
        one = await gateway.scripted.comes("one")
        one.answer(await one.hears("tools/list"), {"tools": [tool("a")], "ttlMs": 0})
        assert sorted(await first) == sorted(await caller.tools()) == ["one__a"]
        assert len(one.all("tools/list")) == 1


def undeclared(*tools: str) -> ServerScript:
    play = ServerScript([tool(name) for name in tools], resources=[{"uri": "a:b", "name": "b"}])
    about: Message = play.about("one") | {"capabilities": {"resources": {}}}
    play.replies["initialize"] = lambda params: about
    return play


@requirement("servers.list.undeclared")
async def test_tools_that_a_server_does_not_declare_are_listed_and_reported() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: {"one": scripted.server("one", undeclared("a", "b"))}, folder) as gateway:
        caller = await gateway.caller("/mcp?toolsets=none")
        assert sorted(await caller.tools()) == ["one__a", "one__b"]
        assert told(await caller.call("one__a"))["tool"] == "a"
        single = await gateway.old_caller(view_of(folder, "one"))
        await single.tools()
        assert (await single.open())["capabilities"].keys() >= {"tools", "resources"}
        _, report = await gateway.rest("POST", "/api/check", {"servers": ["one"]})
        found = [one["text"] for one in report["findings"] if one["rule"] == "listing"]
        assert found == ["it lists tools, but does not declare the capability `tools`"]


@pytest.mark.parametrize("how", ["refuses", "empty"])
async def test_a_server_without_tools_is_no_fault(how: str) -> None:
    play = undeclared()
    play.held = {"tools/list"} if how == "refuses" else set()
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller("/mcp?toolsets=none")
        listing = asyncio.ensure_future(caller.tools())
        one = await gateway.scripted.comes("one")
        if how == "refuses":
            one.refuse(await one.hears("tools/list"), -32601, "no")
        assert await listing == []
        assert await gateway.status("one") == "connected" and (await gateway.server("one")).diagnosis() == []
