"""The view of one server: what it offers is there as without Rookery, and its failure is no empty list."""

from typing import Any

import pytest

from rookery.wire.protocol import revisions
from tests.support.gateway.gateway import checkout, start_gateway, view_of
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, words
from tests.support.mcp.scripted_server import ServerScript, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("servers.view.failed")
@pytest.mark.parametrize("era", ERAS)
async def test_the_lists_of_a_server_that_failed_are_its_failure(era: str) -> None:
    folder = checkout()
    bad = {"command": ["sh", "-c", "echo no licence >&2; exit 3"]}
    async with start_gateway(lambda scripted: {"bad": bad, **scripted.servers("good")}, folder) as gateway:
        caller = await gateway.caller(view_of(folder, "bad"), era)
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            error = (await caller.ask(method))["error"]
            assert "MCP server bad is failed" in error["message"] and "exited with code 3" in error["message"]
            assert error["data"] == {"code": "upstream-failed"}
        # In a view of several servers it takes nothing away from the others.
        assert "good__echo" in await (await gateway.caller(view_of(folder), era)).tools()


async def test_a_server_that_offers_nothing_lists_nothing() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript([]))}, folder) as gateway:
        assert await (await gateway.caller(view_of(folder, "one"))).listed("tools") == []


@pytest.mark.parametrize("era", ERAS)
async def test_extensions_and_experimental_capabilities_are_declared_as_the_server_does(era: str) -> None:
    folder = checkout()
    more: dict[str, Any] = {"extensions": {"example.com/x": {"a": 1}}, "experimental": {"y": {}}, "tasks": {"list": {}}}
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", ServerScript(more=more, era=era))}, folder
    ) as gateway:
        caller = await gateway.caller(view_of(folder, "one"), era)
        await caller.tools()
        capabilities = (await caller.open())["capabilities"]
        assert capabilities["extensions"] == more["extensions"]
        assert capabilities["experimental"] == more["experimental"]
        # Tasks are not: their methods are not relayed.
        assert "tasks" not in capabilities


@pytest.mark.parametrize("view", ["one", None])
async def test_a_call_as_a_task_is_refused_because_its_result_would_be_lost(view: str | None) -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        caller = await gateway.old_caller(view_of(folder, view))
        await caller.tools()
        name = "echo" if view else "one__echo"
        error = (await caller.ask("tools/call", {"name": name, "arguments": {}, "task": {"ttl": 1000}}))["error"]
        assert error["code"] == -32602 and "without `task`" in error["message"]
        assert gateway.scripted.of("one")[0].calls("echo") == []


@pytest.mark.parametrize("era", ERAS)
async def test_members_that_only_newer_results_have_reach_no_older_client(era: str) -> None:
    meta = {revisions.META_SERVER: {"name": "one"}, "x": 1}
    result = text("done") | {"resultType": "complete", "ttlMs": 5, "cacheScope": "public", "z": 1.50, "_meta": meta}
    play = ServerScript([tool("a")], era=MODERN, results={"a": result})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller("/mcp", era)
        for _ in range(4):  # also on the fast path
            found = await caller.call("one__a")
            assert words(found) == "done" and found["result"]["z"] == 1.5
            if era == HANDSHAKE:
                assert found["result"].keys() == {"content", "z", "_meta"}
                assert found["result"]["_meta"] == {"x": 1}
            else:
                assert found["result"]["resultType"] == "complete"
                assert found["result"]["_meta"][revisions.META_SERVER] == {"name": "one"}
