"""Calls that resemble earlier ones need no task, and clients cannot distinguish them."""

import asyncio
import json
from typing import Any

import pytest

from rookery.gateway.fastpath import CALLS
from tests.support.gateway.fastpath import FastCallCounts, RepeatCaller, open_holding_caller, open_repeat_caller
from tests.support.gateway.gateway import checkout, start_gateway, view_of
from tests.support.http.listener import within_limit
from tests.support.mcp.caller import ERAS, told, words
from tests.support.mcp.scripted_server import ServerScript, text

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)


# ---- without a task


@BOTH
@pytest.mark.parametrize("server_era", ERAS)
async def test_calls_that_are_alike_are_answered_without_a_task_as_all_others_are(
    fast_calls: FastCallCounts, era: str, server_era: str
) -> None:
    given: dict[str, Any] = {
        "z": 1,
        "a": [12345678901234567890, 1.50, None],
        "ü": "\\n \u2028 😀",
        "deep": {"x": {"y": []}},
    }
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))}) as gateway:
        repeat = await open_repeat_caller(gateway, era)
        usual = await repeat.caller.call("one__echo", given, id_=7)
        assert fast_calls.count() == (0, 0)
        count = CALLS.value("one", "answered")
        assert await repeat.call(given, id=7) == usual
        assert await repeat.call(given, id="seven") == {**usual, "id": "seven"}
        assert fast_calls.count() == (2, 0)
        assert CALLS.value("one", "answered") == count + 2
        server = gateway.scripted.of("one")[0]
        ordinary, brief, _ = [json.loads(line)["params"] for line in server.lines if '"z"' in line]
        assert list(brief["arguments"]) == list(given) and brief["_meta"].pop("progressToken") > 0
        ordinary["_meta"].pop("progressToken")
        assert brief == ordinary
        assert (await gateway.server("one")).limiter.running == 0


async def test_numbers_and_member_order_are_preserved_and_line_breaks_are_accepted(
    fast_calls: FastCallCounts,
) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat = await open_repeat_caller(gateway)
        body = b"""{"params" : {"arguments":
            {"n" : 1.500,\r\n "big":123456789012345678901234567890},"name":"one__echo"},
            "id":5,\t"method":"tools/call", "jsonrpc":"2.0"}"""
        await repeat.client.send(repeat.framed(body))
        assert (await repeat.answer())["id"] == 5
        assert fast_calls.count() == (1, 0)
        line = gateway.scripted.of("one")[0].lines[-1]
        assert "1.500" in line and '"big":123456789012345678901234567890' in line


@BOTH
async def test_many_clients_at_once_each_get_their_own_answers(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeats = [await open_repeat_caller(gateway, era) for _ in range(8)]
        fast_calls.clear()

        async def calls(repeat: RepeatCaller, who: int) -> None:
            for number in range(10):
                said = await repeat.call({"who": who, "number": number})
                assert told(said)["arguments"] == {"who": who, "number": number}

        await within_limit(asyncio.gather(*(calls(repeat, who) for who, repeat in enumerate(repeats))))
        assert fast_calls.count() == (80, 0)


async def test_what_follows_on_the_same_connection_waits_for_its_turn(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        first = await repeat.held(server)
        await repeat.begin(id="second")
        await repeat.begin(id="third")
        server.answer(first, text("1"))
        assert words(await repeat.answer()) == "1"
        for number, id_ in ((4, "second"), (5, "third")):
            server.answer(await server.called("hold", number), text(id_))
            assert (await repeat.answer())["id"] == id_
        assert fast_calls.count()[0] >= 1 and not fast_calls.tasks


@BOTH
async def test_the_traffic_of_a_workspace_has_them_as_all_others(fast_calls: FastCallCounts, era: str) -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder) as gateway:
        repeat = await open_repeat_caller(gateway, era, view_of(folder))
        await repeat.call({"x": 1})
        assert fast_calls.count() == (1, 0)
        usages = gateway.parts.endpoint_router.usages
        assert usages.clients(folder.resolve()) == 1
        *_, before, _, came, went = usages.traffic(folder.resolve()).lines()
        assert (came.direction, came.method, came.tool) == ("in", "tools/call", "one__echo")
        assert (went.direction, went.tool, went.error) == ("out", "one__echo", None) and went.ms is not None
        assert came.bytes == before.bytes + len('"x": 1') and came.id == before.id + 1  # type: ignore[operator]
