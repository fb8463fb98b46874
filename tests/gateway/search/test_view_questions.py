"""Questions during calls of tools through search mode, and the official SDK there."""

import asyncio
import json
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from rookery.gateway.search.view import CALL, FIND
from tests.support.gateway.gateway import start_gateway
from tests.support.gateway.round_trips import ADA, NAME, ask, asked, next_round
from tests.support.gateway.sdk_client import words as told_by
from tests.support.mcp.caller import MODERN, Caller, Message, failure, words
from tests.support.mcp.client import LIMIT
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SEARCH = "/mcp?mode=search"
HOLD: Message = {"name": "one__hold", "arguments": {"a": 1}}


async def go_on(caller: Caller, before: Message, given: Message, responses: Message | None = None) -> Message:
    """The next request of a call, which is the same but for the answers."""
    return await caller.ask("tools/call", next_round(before, responses, CALL) | {"arguments": given})


@requirement("hub.find.tool", "hub.call.server-requests")
async def test_a_question_of_a_tool_called_through_search_reaches_clients_of_both_eras() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        modern = await gateway.caller(SEARCH)
        running = modern.begin(CALL, HOLD)
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        ask(one)
        first = await running
        assert list(asked(first).values()) == [{"method": "elicitation/create", "params": NAME}]
        coming = asyncio.create_task(go_on(modern, first, HOLD))
        assert (await one.hears(None))["result"] == ADA
        one.answer(request, text("done"))
        assert words(await coming) == "done" and len(one.calls("hold")) == 1

        async def answer(asking: Message) -> Any:
            return ADA

        old = await gateway.old_caller(SEARCH)
        old.answers["elicitation/create"] = answer
        running = old.begin(CALL, HOLD)
        request = await one.called("hold", 2)
        ask(one, "again")
        assert (await one.hears(None, 2))["result"] == ADA
        one.answer(request, text("done"))
        assert words(await running) == "done"


@requirement("hub.find.tool", "guard.policy.ask")
async def test_who_is_asked_whether_a_tool_may_run_is_told_of_that_tool_and_its_arguments() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), permission={"one__echo": "ask"}) as gateway:
        caller = await gateway.caller(SEARCH)
        given: Message = {"name": "one__echo", "arguments": {"a": 1}}
        first = await caller.call(CALL, given)
        (question,) = asked(first).values()
        assert "one__echo" in question["params"]["message"] and '{"a": 1}' in question["params"]["message"]
        (key,) = asked(first)
        yes = {key: {"action": "accept", "content": {"allow": True}}}
        assert json.loads(words(await go_on(caller, first, given, yes)))["arguments"] == {"a": 1}
        unable = await gateway.caller(SEARCH, able={})
        assert failure(await unable.call(CALL, given)) == "tool-denied"


@requirement("hub.find.tool")
async def test_a_round_of_a_modern_server_passes_through_as_it_came() -> None:
    def servers(scripted: ScriptedServers) -> Message:
        return {"one": scripted.server("one", ServerScript([tool("hold")], era=MODERN))}

    async with start_gateway(servers) as gateway:
        caller = await gateway.caller(SEARCH)
        running = caller.begin(CALL, HOLD)
        one = await gateway.scripted.comes("one")
        asks = {"k": {"method": "elicitation/create", "params": NAME}}
        round_ = {"resultType": "input_required", "inputRequests": asks, "requestState": "theirs"}
        one.answer(await one.called("hold"), round_)
        assert (await running)["result"] | round_ == (await running)["result"]
        again = {"name": CALL, "arguments": HOLD, "inputResponses": {"k": ADA}, "requestState": "theirs"}
        coming = asyncio.create_task(caller.ask("tools/call", again))
        second = (await one.called("hold", 2))["params"]
        assert (second["arguments"], second["requestState"]) == ({"a": 1}, "theirs")
        assert second["inputResponses"] == {"k": ADA}
        one.answer(await one.called("hold", 2), {"resultType": "complete", **text("done")})
        assert words(await coming) == "done"


@requirement("hub.find.tool")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_the_official_sdk_finds_and_calls_and_takes_what_is_structured(mode: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        way = streamable_http_client(gateway.url(SEARCH))
        async with Client(way, mode=mode, read_timeout_seconds=LIMIT) as client:
            assert [one.name for one in (await client.list_tools()).tools] == [FIND, CALL]
            found = await client.call_tool(FIND, {"query": "echo"})
            assert found.structured_content is not None and not found.is_error
            name = found.structured_content["tools"][0]["name"]
            assert name == "one__echo" and json.loads(told_by(found)) == found.structured_content
            called = await client.call_tool(CALL, {"name": name, "arguments": {"x": 1}})
            assert json.loads(told_by(called))["arguments"] == {"x": 1}
            wrong = await client.call_tool(CALL, {"name": "one__nothing"})
            assert wrong.is_error and FIND in told_by(wrong)
