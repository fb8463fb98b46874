"""Fast-path calls that get a task because they do not end with a result."""

import asyncio
from typing import Any

import pytest

from rookery.gateway.fastpath import CALLS
from rookery.system.tasks import TaskSet
from tests.support.clock import let_pass
from tests.support.gateway.fastpath import FastCallCounts, check_still_fast, open_holding_caller
from tests.support.gateway.gateway import checkout, start_gateway
from tests.support.http.listener import within_limit
from tests.support.mcp.caller import ERAS, failure, words
from tests.support.mcp.scripted_server import text

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)


# ---- what is no result


@BOTH
async def test_an_error_is_answered_as_such(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        count = CALLS.value("one", "error")
        server.refuse(await repeat.held(server), -32099, "no", data={"x": [1]})
        assert (await repeat.answer())["error"] == {"code": -32099, "message": "no", "data": {"x": [1]}}
        assert (fast_calls.count(), CALLS.value("one", "error")) == ((1, 1), count + 1)
        await check_still_fast(gateway, repeat, server, fast_calls)


@BOTH
async def test_a_result_that_is_no_object_is_answered_as_ever(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        server.answer(await repeat.held(server), [1])
        said = await repeat.answer()
        running = repeat.caller.begin("one__hold", {})
        server.answer(await server.called("hold", len(server.calls("hold")) + 1), [1])
        usual: dict[str, Any] = await running
        assert {**said, "id": 0} == {**usual, "id": 0}
        await check_still_fast(gateway, repeat, server, fast_calls)


@BOTH
async def test_a_call_that_takes_too_long_fails_and_its_server_is_told(fast_calls: FastCallCounts, era: str) -> None:
    limits = {"timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limits)) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        request = await repeat.held(server)
        let_pass(5)
        assert failure(await repeat.answer()) == "timeout"
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert fast_calls.count() == (1, 1)
        await check_still_fast(gateway, repeat, server, fast_calls)


@BOTH
async def test_a_server_that_ends_fails_the_call(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        await repeat.held(server)
        server.order(exit=3)
        assert failure(await repeat.answer()) == "upstream-failed"
        assert fast_calls.count() == (1, 1)
        assert (await gateway.server("one")).limiter.running == 0


@BOTH
async def test_a_server_that_is_disconnected_fails_the_call(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        await repeat.held(server)
        await (await gateway.server("one")).disconnect()
        assert failure(await repeat.answer()) == "upstream-failed"
        assert fast_calls.count()[1] == 1


# ---- the client goes, or wants it no more


@BOTH
async def test_the_server_is_told_when_the_client_has_gone(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        count = CALLS.value("one", "cancelled")
        request = await repeat.held(server)
        repeat.client.reset()
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        await gateway.site.connections.reach(len(gateway.site.connections))
        assert (fast_calls.count(), CALLS.value("one", "cancelled")) == ((1, 1), count + 1)
        assert (await gateway.server("one")).limiter.running == 0


async def test_a_call_is_cancelled_by_a_word_of_its_client(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        request = await repeat.held(server, id="mine")
        await repeat.caller.cancel("mine")
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert (await repeat.answer())["error"]["message"] == "cancelled"
        await check_still_fast(gateway, repeat, server, fast_calls)


async def test_a_call_ends_with_its_session(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway)
        request = await repeat.held(server)
        await repeat.caller.close()
        repeat.caller.session = None
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert (await repeat.answer())["error"]["message"] == "cancelled"


@BOTH
async def test_a_call_is_told_when_the_gateway_closes(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        await repeat.held(server)
        gateway.parts.endpoint_router.close()
        assert (await repeat.answer())["error"]["message"] == "shutting down"
        assert fast_calls.count() == (1, 1)
        repeat.caller.session = None


@BOTH
async def test_a_workspace_that_is_closed_waits_for_the_call(fast_calls: FastCallCounts, era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), checkout()) as gateway:
        repeat, server = await open_holding_caller(gateway, era)
        fast_calls.clear()
        request = await repeat.held(server)
        (endpoint,) = {
            one for one, _ in gateway.parts.endpoint_router._endpoints.values() if one.service.running_calls()
        }
        tasks = TaskSet("test")
        waiting = tasks.start(asyncio.wait(endpoint.service.running_calls()), "drain")
        await asyncio.sleep(0)
        assert not waiting.done()
        server.answer(request, text("done"))
        assert words(await repeat.answer()) == "done"
        await within_limit(waiting)
        assert fast_calls.count() == (1, 0) and not endpoint.service.running_calls()
