"""Calls that are not like those before them, and what has changed since, are noticed before anything is sent."""

from typing import Any

import pytest

from rookery.gateway.hooks import ToolCall
from tests.support.gateway.fastpath import Noted, a_habit, holding
from tests.support.gateway.gateway import OWNERS, a_gateway, checkout, view_of
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, told, words
from tests.support.mcp.scripted_server import ServerScript, text, tool

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)


@BOTH
@pytest.mark.parametrize(
    "more",
    [
        {"_meta": {"progressToken": "mine"}},
        {"inputResponses": {}},
        {"unknown": {"x": 1}},
    ],
)
async def test_calls_that_say_more_are_served_by_a_task(lane: Noted, era: str, more: dict[str, Any]) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway, era)
        for _ in range(4):
            assert "result" in await habit.call(**more)
        assert lane.count() == (0, 0)
        assert "result" in await habit.call()
        assert lane.count() == (1, 0)


@BOTH
async def test_a_hook_sees_the_next_call(lane: Noted, era: str) -> None:
    seen: list[str] = []

    async def hook(call: ToolCall) -> None:
        seen.append(call.public)

    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway, era)
        await habit.call()
        gateway.service.hooks.before.append(hook)
        for _ in range(3):
            await habit.call()
        assert (lane.count(), seen) == ((1, 0), ["one__echo"] * 3)
        gateway.service.hooks.before.remove(hook)
        for _ in range(4):
            await habit.call()
        assert lane.count()[0] > 1 and len(seen) == 3


@BOTH
async def test_a_tool_that_is_switched_off_or_gone_cannot_be_called_any_more(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway, era)
        await habit.call()
        # Each change is heard of before the next, so that no notice is taken for another one's.
        await habit.caller.listen()
        await gateway.hub.switch(None, None, "one", tool="echo", level="app", enabled=False)
        await habit.caller.hears("notifications/tools/list_changed")
        assert "there is no tool" in (await habit.call())["error"]["message"]
        await gateway.hub.switch(None, None, "one", tool="echo", level="app", enabled=True)
        await habit.caller.hears("notifications/tools/list_changed", 2)
        assert "result" in await habit.call()
        server = gateway.scripted.of("one")[0]
        await server.change(tool("other"))
        await habit.caller.hears("notifications/tools/list_changed", 3)
        assert "there is no tool" in (await habit.call())["error"]["message"]


async def test_headers_that_are_to_repeat_arguments_are_checked_in_each_call(lane: Noted) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}}
    play = ServerScript(tools=[tool("echo", inputSchema=schema)])
    async with a_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        habit = await a_habit(gateway, MODERN)
        for _ in range(4):
            assert "result" in await habit.call()
        assert "Mcp-Param-X" in (await habit.call({"x": "1"}))["error"]["message"]
        assert lane.count() == (0, 0)


async def test_whoever_finds_the_server_full_waits_for_a_place(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one", calls=1)) as gateway:
        habit, server = await holding(gateway)
        other, _ = await holding(gateway)
        lane.clear()
        first = await habit.held(server)
        await other.begin()
        count = len(server.calls("hold"))
        server.answer(first, text("1"))
        assert words(await habit.answer()) == "1"
        server.answer(await server.called("hold", count + 1), text("2"))
        assert words(await other.answer()) == "2"
        assert lane.count() == (1, 0)


async def test_a_server_for_one_caller_at_a_time_is_called_by_tasks(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one", exclusive=True)) as gateway:
        habit = await a_habit(gateway)
        await habit.call()
        assert lane.count() == (0, 0)


@BOTH
async def test_a_server_that_is_disconnected_or_started_again(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway, era)
        server = await gateway.server("one")
        await server.disconnect()
        assert "error" in await habit.call()
        await server.connect()
        for _ in range(4):
            assert told(await habit.call())["pid"] == gateway.scripted.of("one")[1].pid
        assert lane.count()[0] >= 1 and not lane.tasks


async def test_a_session_that_ended_is_not_there_and_an_id_in_use_is_refused(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway)
        request = await habit.held(server, id="same")
        said = await habit.caller.call("one__echo", {}, id_="same")
        assert "in use" in said["error"]["message"]
        server.answer(request, text("done"))
        assert words(await habit.answer()) == "done"
        await habit.caller.close()
        assert "no such session" in (await habit.call())["error"]["message"]
        habit.caller.session = None


async def test_a_token_that_was_taken_back_opens_nothing(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one"), with_tokens=True) as gateway:
        habit = await a_habit(gateway, MODERN, token=OWNERS)
        assert "result" in await habit.call()
        assert lane.count() == (1, 0)
        gateway.parts.tokens.remove(OWNERS)
        await habit.begin()
        assert (await habit.client.answer()).status == 401
        assert lane.count() == (1, 0)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', b"\xff", b"{" * 600])
async def test_what_is_no_call_is_refused_as_ever(lane: Noted, body: bytes) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway)
        await habit.call()
        await habit.client.send(habit.framed(body))
        refused = await habit.client.answer()
        other = await gateway.site.client()
        assert (await other.ask(habit.framed(body))).body == refused.body
        assert lane.count() == (1, 0)


async def test_a_workspace_that_was_closed_and_is_open_again_is_found_anew(lane: Noted) -> None:
    folder = checkout()
    async with a_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        habit = await a_habit(gateway, MODERN, view_of(folder))
        await habit.call()
        assert lane.count() == (1, 0)
        assert gateway.parts.endpoint_router.retire(folder.resolve(), "closed") is False
        for _ in range(4):
            assert "result" in await habit.call()
        assert lane.count()[0] > 1 and len(gateway.parts.endpoint_router._endpoints) == 1


async def test_a_revision_that_nobody_knows_is_refused_with_a_known_session_too(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit = await a_habit(gateway)
        habit.caller.revision = "2099-01-01"
        for _ in range(4):
            assert "error" in await habit.call()
        habit.caller.revision = HANDSHAKE
        assert lane.count() == (0, 0)
