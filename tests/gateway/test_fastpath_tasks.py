"""Fast-path calls that get a task because their server sends more than a result."""

import asyncio

import pytest

from tests.support.clock import let_pass
from tests.support.gateway.fastpath import FastCallCounts, check_still_fast, open_holding_caller
from tests.support.gateway.gateway import start_gateway
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, words
from tests.support.mcp.scripted_server import Message, ServerScript, text

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)


# ---- what the server says before its answer


@BOTH
@pytest.mark.parametrize("server_era", ERAS)
async def test_log_messages_come_before_the_answer_and_in_order(
    fast_calls: FastCallCounts, era: str, server_era: str
) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))}) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        request = await repeat.held(server)
        log = {"method": "notifications/message", "params": {"level": "info", "data": 1}}
        server.say(log, {**log, "params": {"level": "error", "data": 2}}, {"id": request["id"], "result": text("done")})
        assert words(await repeat.answer()) == "done"
        # A modern client hears of those that it asked for, and none were asked for here.
        assert [one["params"]["data"] for one in repeat.heard] == ([1, 2] if era == HANDSHAKE else [])
        assert fast_calls.count() == (1, 1)
        await check_still_fast(gateway, repeat, server, fast_calls)


async def test_log_messages_of_a_server_with_calls_of_two_clients_reach_neither(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        other, _ = await open_holding_caller(gateway)
        fast_calls.clear()
        first, second = await repeat.held(server), await other.held(server)
        server.tell("notifications/message", level="info", data="whose?")
        server.answer(first, text("1"))
        server.answer(second, text("2"))
        assert [words(await repeat.answer()), words(await other.answer())] == ["1", "2"]
        assert (repeat.heard, other.heard, fast_calls.count()) == ([], [], (2, 0))


async def test_a_question_is_sent_on_the_calls_stream_and_its_answer_reaches_the_server(
    fast_calls: FastCallCounts,
) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        fast_calls.clear()
        request = await repeat.held(server)
        server.say({"id": 77, "method": "roots/list", "params": {}})
        async with asyncio.timeout(20):
            asked = b""
            while b"roots/list" not in asked:
                asked += await repeat.client.reader.read(65_536)
        number = asked.partition(b'"id":"')[2].partition(b'"')[0].decode()
        roots = {"roots": [{"uri": "file:///mine"}]}
        assert await repeat.caller.post({"jsonrpc": "2.0", "id": number, "result": roots}) == 202
        assert (await server.hears(None))["result"] == roots
        server.answer(request, text("done"))
        async with asyncio.timeout(20):
            assert b"done" in await repeat.client.reader.readuntil(b"0\r\n\r\n")
        assert fast_calls.count() == (1, 1)
        await check_still_fast(gateway, repeat, server, fast_calls)


@BOTH
async def test_a_question_to_a_client_that_cannot_be_asked_is_answered_for_it(
    fast_calls: FastCallCounts, era: str
) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era, able={})
        request = await repeat.held(server)
        server.say({"id": 77, "method": "roots/list", "params": {}})
        assert (await server.hears(None))["result"] == {"roots": []}
        server.answer(request, text("done"))
        assert words(await repeat.answer()) == "done"
        await check_still_fast(gateway, repeat, server, fast_calls)


async def test_a_modern_server_that_asks_back_is_answered_and_called_again(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        repeat, server = await open_holding_caller(gateway, able={})
        fast_calls.clear()
        request = await repeat.held(server, {"x": 1})
        asks: Message = {"r": {"method": "roots/list", "params": {}}}
        server.answer(request, {"resultType": "input_required", "inputRequests": asks, "requestState": "s"})
        second = await server.called("hold", len(server.calls("hold")) + 1)
        assert second["params"]["arguments"] == {"x": 1} and second["params"]["requestState"] == "s"
        assert second["params"]["inputResponses"] == {"r": {"roots": []}}
        server.answer(second, text("done"))
        assert words(await repeat.answer()) == "done"
        assert fast_calls.count() == (1, 1)
        await check_still_fast(gateway, repeat, server, fast_calls)


async def test_progress_that_nobody_wants_gives_more_time_and_needs_no_task(fast_calls: FastCallCounts) -> None:
    limits = {"timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limits)) as gateway:
        repeat, server = await open_holding_caller(gateway)
        fast_calls.clear()
        request = await repeat.held(server)
        for number in range(4):
            let_pass(2)
            server.tell("notifications/progress", progressToken=request["id"], progress=number)
            await repeat.caller.call("one__echo")  # whose answer comes after the progress
        server.answer(request, text("at last"))
        assert words(await repeat.answer()) == "at last"
        assert fast_calls.count() == (1, 0)
