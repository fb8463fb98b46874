"""Calls that were begun without a task, and get one because they end in another way than with a result."""

import asyncio
from typing import Any

import pytest

from rookery.gateway.fastpath import CALLS
from rookery.system.tasks import TaskSet
from tests.support.clock import let_pass
from tests.support.gateway.fastpath import Noted, again, holding
from tests.support.gateway.gateway import a_gateway, checkout
from tests.support.http.listener import soon
from tests.support.mcp.caller import ERAS, failure, words
from tests.support.mcp.scripted_server import text

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", ERAS)


# ---- what is no result


@BOTH
async def test_an_error_is_answered_as_such(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        count = CALLS.value("one", "error")
        server.refuse(await habit.held(server), -32099, "no", data={"x": [1]})
        assert (await habit.answer())["error"] == {"code": -32099, "message": "no", "data": {"x": [1]}}
        assert (lane.count(), CALLS.value("one", "error")) == ((1, 1), count + 1)
        await again(gateway, habit, server, lane)


@BOTH
async def test_a_result_that_is_no_object_is_answered_as_ever(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        server.answer(await habit.held(server), [1])
        said = await habit.answer()
        running = habit.caller.begin("one__hold", {})
        server.answer(await server.called("hold", len(server.calls("hold")) + 1), [1])
        usual: dict[str, Any] = await running
        assert {**said, "id": 0} == {**usual, "id": 0}
        await again(gateway, habit, server, lane)


@BOTH
async def test_a_call_that_takes_too_long_fails_and_its_server_is_told(lane: Noted, era: str) -> None:
    limits = {"timeouts": {"execution": 5}}
    async with a_gateway(lambda scripted: scripted.servers("one", **limits)) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        request = await habit.held(server)
        let_pass(5)
        assert failure(await habit.answer()) == "timeout"
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert lane.count() == (1, 1)
        await again(gateway, habit, server, lane)


@BOTH
async def test_a_server_that_ends_fails_the_call(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        await habit.held(server)
        server.order(exit=3)
        assert failure(await habit.answer()) == "upstream-failed"
        assert lane.count() == (1, 1)
        assert (await gateway.server("one")).limiter.running == 0


@BOTH
async def test_a_server_that_is_disconnected_fails_the_call(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        await habit.held(server)
        await (await gateway.server("one")).disconnect()
        assert failure(await habit.answer()) == "upstream-failed"
        assert lane.count()[1] == 1


# ---- the client goes, or wants it no more


@BOTH
async def test_the_server_is_told_when_the_client_has_gone(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        count = CALLS.value("one", "cancelled")
        request = await habit.held(server)
        habit.client.reset()
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        await gateway.site.connections.reach(len(gateway.site.connections))
        assert (lane.count(), CALLS.value("one", "cancelled")) == ((1, 1), count + 1)
        assert (await gateway.server("one")).limiter.running == 0


async def test_a_call_is_cancelled_by_a_word_of_its_client(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway)
        request = await habit.held(server, id="mine")
        await habit.caller.cancel("mine")
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert (await habit.answer())["error"]["message"] == "cancelled"
        await again(gateway, habit, server, lane)


async def test_a_call_ends_with_its_session(lane: Noted) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway)
        request = await habit.held(server)
        await habit.caller.close()
        habit.caller.session = None
        assert (await server.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert (await habit.answer())["error"]["message"] == "cancelled"


@BOTH
async def test_a_call_is_told_when_the_gateway_closes(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one")) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        await habit.held(server)
        gateway.parts.endpoint_router.close()
        assert (await habit.answer())["error"]["message"] == "shutting down"
        assert lane.count() == (1, 1)
        habit.caller.session = None


@BOTH
async def test_a_workspace_that_is_closed_waits_for_the_call(lane: Noted, era: str) -> None:
    async with a_gateway(lambda scripted: scripted.servers("one"), checkout()) as gateway:
        habit, server = await holding(gateway, era)
        lane.clear()
        request = await habit.held(server)
        (endpoint,) = {
            one for one, _ in gateway.parts.endpoint_router._endpoints.values() if one.service.running_calls()
        }
        tasks = TaskSet("test")
        waiting = tasks.start(asyncio.wait(endpoint.service.running_calls()), "drain")
        await asyncio.sleep(0)
        assert not waiting.done()
        server.answer(request, text("done"))
        assert words(await habit.answer()) == "done"
        await soon(waiting)
        assert lane.count() == (1, 0) and not endpoint.service.running_calls()
