"""How long the lists of a server are kept."""

import asyncio

import pytest

from rookery.wire.protocol import revisions
from tests.support.gateway.gateway import start_gateway
from tests.support.mcp.caller import Caller
from tests.support.mcp.scripted_server import ScriptedServer, ServerScript, tool
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
    async with start_gateway(lambda scripted: {"one": scripted.server("one", silent())}) as gateway:
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
