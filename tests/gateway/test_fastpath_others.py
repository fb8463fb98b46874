"""Calls that differ from earlier ones, and changed conditions, are noticed before anything is sent."""

from typing import Any

import pytest

from rookery.gateway.hooks import ToolCall
from tests.support.gateway.fastpath import FastCallCounts, open_holding_caller, open_repeat_caller
from tests.support.gateway.gateway import OWNERS, checkout, start_gateway, view_of
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
async def test_calls_that_say_more_are_served_by_a_task(
    fast_calls: FastCallCounts, era: str, more: dict[str, Any]
) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway, era)
        for _ in range(4):
            assert "result" in await repeat.call(**more)
        assert fast_calls.count() == (0, 0)
        assert "result" in await repeat.call()
        assert fast_calls.count() == (1, 0)


@BOTH
async def test_a_hook_sees_the_next_call(fast_calls: FastCallCounts, era: str) -> None:
    seen: list[str] = []

    async def hook(call: ToolCall) -> None:
        seen.append(call.public)

    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway, era)
        await repeat.call()
        gateway.service.hooks.before.append(hook)
        for _ in range(3):
            await repeat.call()
        assert (fast_calls.count(), seen) == ((1, 0), ["one__echo"] * 3)
        gateway.service.hooks.before.remove(hook)
        for _ in range(4):
            await repeat.call()
        assert fast_calls.count()[0] > 1 and len(seen) == 3


@BOTH
async def test_a_tool_that_is_switched_off_or_gone_cannot_be_called_any_more(
    fast_calls: FastCallCounts, era: str
) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway, era)
        await repeat.call()
        # Each change is heard of before the next, so that no notice is taken for another one's.
        await repeat.caller.listen()
        await gateway.hub.switch(None, None, "one", tool="echo", level="app", enabled=False)
        await repeat.caller.hears("notifications/tools/list_changed")
        assert "there is no tool" in (await repeat.call())["error"]["message"]
        await gateway.hub.switch(None, None, "one", tool="echo", level="app", enabled=True)
        await repeat.caller.hears("notifications/tools/list_changed", 2)
        assert "result" in await repeat.call()
        server = gateway.scripted.of("one")[0]
        await server.change(tool("other"))
        await repeat.caller.hears("notifications/tools/list_changed", 3)
        assert "there is no tool" in (await repeat.call())["error"]["message"]


async def test_headers_that_are_to_repeat_arguments_are_checked_in_each_call(fast_calls: FastCallCounts) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}}
    play = ServerScript(tools=[tool("echo", inputSchema=schema)])
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        repeat = await open_repeat_caller(gateway, MODERN)
        for _ in range(4):
            assert "result" in await repeat.call()
        assert "Mcp-Param-X" in (await repeat.call({"x": "1"}))["error"]["message"]
        assert fast_calls.count() == (0, 0)


async def test_whoever_finds_the_server_full_waits_for_a_place(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", calls=1)) as gateway:
        repeat, server = await open_holding_caller(gateway)
        other, _ = await open_holding_caller(gateway)
        fast_calls.clear()
        first = await repeat.held(server)
        await other.begin()
        count = len(server.calls("hold"))
        server.answer(first, text("1"))
        assert words(await repeat.answer()) == "1"
        server.answer(await server.called("hold", count + 1), text("2"))
        assert words(await other.answer()) == "2"
        assert fast_calls.count() == (1, 0)


async def test_a_server_for_one_caller_at_a_time_is_called_by_tasks(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", exclusive=True)) as gateway:
        repeat = await open_repeat_caller(gateway)
        await repeat.call()
        assert fast_calls.count() == (0, 0)


@BOTH
async def test_a_server_that_is_disconnected_or_started_again(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway, era)
        server = await gateway.server("one")
        await server.disconnect()
        assert "error" in await repeat.call()
        await server.connect()
        for _ in range(4):
            assert told(await repeat.call())["pid"] == gateway.scripted.of("one")[1].pid
        assert fast_calls.count()[0] >= 1 and not fast_calls.tasks


async def test_a_session_that_ended_is_not_there_and_an_id_in_use_is_refused(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        request = await repeat.held(server, id="same")
        said = await repeat.caller.call("one__echo", {}, id_="same")
        assert "in use" in said["error"]["message"]
        server.answer(request, text("done"))
        assert words(await repeat.answer()) == "done"
        await repeat.caller.close()
        assert "no such session" in (await repeat.call())["error"]["message"]
        repeat.caller.session = None


async def test_a_token_that_was_taken_back_opens_nothing(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), with_tokens=True) as gateway:
        repeat = await open_repeat_caller(gateway, MODERN, token=OWNERS)
        assert "result" in await repeat.call()
        assert fast_calls.count() == (1, 0)
        gateway.parts.tokens.remove(OWNERS)
        await repeat.begin()
        assert (await repeat.client.answer()).status == 401
        assert fast_calls.count() == (1, 0)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', b"\xff", b"{" * 600])
async def test_what_is_no_call_is_refused_as_ever(fast_calls: FastCallCounts, body: bytes) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway)
        await repeat.call()
        await repeat.client.send(repeat.framed(body))
        refused = await repeat.client.answer()
        other = await gateway.site.client()
        assert (await other.ask(repeat.framed(body))).body == refused.body
        assert fast_calls.count() == (1, 0)


async def test_a_workspace_that_was_closed_and_is_open_again_is_found_anew(fast_calls: FastCallCounts) -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        repeat = await open_repeat_caller(gateway, MODERN, view_of(folder))
        await repeat.call()
        assert fast_calls.count() == (1, 0)
        assert gateway.parts.endpoint_router.retire(folder.resolve(), "closed") is False
        for _ in range(4):
            assert "result" in await repeat.call()
        assert fast_calls.count()[0] > 1 and len(gateway.parts.endpoint_router._endpoints) == 1


async def test_a_revision_that_nobody_knows_is_refused_with_a_known_session_too(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway)
        repeat.caller.revision = "2099-01-01"
        for _ in range(4):
            assert "error" in await repeat.call()
        repeat.caller.revision = HANDSHAKE
        assert fast_calls.count() == (0, 0)
