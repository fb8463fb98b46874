"""A question of a handshake server during a call of a modern client ends a round, and the next continues it."""

import asyncio
import json
import math
from typing import Any

import pytest
from mcp_types import methods
from msgspec import Raw
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from rookery.daemon.settings.schema import GatewaySettings, Settings
from rookery.gateway.hooks import ToolCall
from rookery.system.ids import project_id
from tests.support.gateway.fastpath import FastCallCounts, check_still_fast, open_holding_caller
from tests.support.gateway.gateway import OWNERS, checkout, start_gateway, view_of
from tests.support.gateway.round_trips import ADA, NAME, QUESTIONS, answers, ask, asked, go_on, held, next_round
from tests.support.mcp.caller import MODERN, Caller, Message, failure, words
from tests.support.mcp.scripted_server import ServerScript, text
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("hub.call.server-requests")
@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_question_of_a_handshake_server_becomes_a_round_of_its_modern_client(method: str) -> None:
    question, answer = QUESTIONS[method]
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller, progressToken="first")
        token = request["params"]["_meta"]["progressToken"]
        one.tell("notifications/progress", progressToken=token, progress=1)
        ask(one, method=method)
        first = await running
        assert list(asked(first).values()) == [{"method": method, "params": question}]
        methods.validate_server_result("tools/call", MODERN, first["result"])
        # Nobody hears this, and nothing comes of it.
        one.tell("notifications/progress", progressToken=token, progress=2)
        coming = go_on(caller, first, progressToken="second")
        heard = await one.hears(None)
        assert (heard["id"], heard["result"]) == ("q", answer)
        one.tell("notifications/progress", progressToken=token, progress=3)
        one.answer(request, text("done"))
        found = await coming
        assert words(found) == "done" and found["result"]["resultType"] == "complete"
        progress = [(one["params"]["progressToken"], one["params"]["progress"]) for one in caller.heard]
        assert progress[0] == ("first", 1) and progress[-1] == ("second", 3)
        assert len(one.calls("hold")) == 1 and len(gateway.service.parked_calls) == 0


@requirement("hub.call.server-requests")
async def test_simultaneous_questions_share_a_round_and_unanswered_ones_are_repeated() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        for method in QUESTIONS:
            ask(one, method, method)
        first = await running
        assert {one["method"] for one in asked(first).values()} == set(QUESTIONS)
        some = {key: value for key, value in answers(first).items() if "elicitation" not in asked(first)[key]["method"]}
        second = await go_on(caller, first, some | {"unknown": {"x": 1}})
        assert [one["method"] for one in asked(second).values()] == ["elicitation/create"]
        assert asked(second).keys() < asked(first).keys()
        coming = go_on(caller, second)
        await one.hears(None, 3)
        assert {heard["id"]: heard["result"] for heard in one.all(None)} == {
            method: answer for method, (_, answer) in QUESTIONS.items()
        }
        # One more, which knows the answers to those before.
        ask(one, "last")
        third = await coming
        assert not asked(third).keys() & asked(first).keys()
        last = go_on(caller, third, answers(first) | answers(third))
        assert (await one.hears(None, 4))["id"] == "last"
        one.answer(request, text("done"))
        assert words(await last) == "done"


@requirement("hub.call.parked")
async def test_no_time_runs_for_a_call_that_is_parked_and_it_counts_as_one_in_flight() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        ask(one)
        first = await running
        server = await gateway.server("one")
        assert server.client is not None and server.limiter.running == 1
        assert [call.due for call in server.client.in_flight.requests.values()] == [math.inf]
        # It is not known which of the two this is about.
        other, _, second = await held(gateway, caller, count=2)
        ask(one, "whose")
        refused = await one.hears(None)
        assert refused["id"] == "whose" and "several clients" in refused["error"]["message"]
        one.answer(second, text("other"))
        assert words(await other) == "other"
        coming = go_on(caller, first)
        assert (await one.hears(None, 2))["result"] == ADA
        one.answer(request, text("done"))
        assert words(await coming) == "done"


@requirement("hub.call.parked")
async def test_s4_a_state_is_for_one_token_one_call_and_one_use() -> None:
    folder = checkout()
    async with start_gateway(lambda scripted: scripted.servers("one"), folder, with_tokens=True) as gateway:
        workspace = await gateway.workspaces.find(project_id(folder), "@main")
        token = await gateway.workspaces.token(workspace.workspace)
        owner = await gateway.caller(view_of(folder), headers={"Authorization": f"Bearer {OWNERS}"})
        stranger = await gateway.caller(view_of(folder), headers={"Authorization": f"Bearer {token}"})
        elsewhere = await gateway.caller(headers={"Authorization": f"Bearer {OWNERS}"})
        running, one, request = await held(gateway, owner)
        ask(one)
        first = await running
        params = next_round(first)
        state: str = params["requestState"]
        wrong: list[tuple[Caller, Message]] = [
            (stranger, params),
            (elsewhere, params),
            (owner, params | {"arguments": {"x": 1}}),
            (owner, params | {"requestState": state[:-4] + "AAAA"}),
            (owner, params | {"requestState": "x" + state}),
            (owner, params | {"requestState": state + "x"}),
            (owner, params | {"requestState": 1}),
            (owner, params | {"inputResponses": {"x": 1}}),
            (owner, params | {"inputResponses": None}),
        ]
        for caller, given in wrong:
            refused = await caller.ask("tools/call", given)
            assert refused["error"]["code"] == -32602, given
        assert one.all(None) == []
        coming = go_on(owner, first)
        assert (await one.hears(None))["result"] == ADA
        used = await owner.ask("tools/call", params)
        assert "already used" in used["error"]["message"]
        one.answer(request, text("done"))
        assert words(await coming) == "done"
        over = await owner.ask("tools/call", params)
        assert "has ended" in over["error"]["message"]
        assert len(one.calls("hold")) == 1


@requirement("hub.call.parked")
async def test_too_many_parked_calls_are_refused_and_their_servers_told() -> None:
    settings = Settings(gateway=GatewaySettings(parked_calls_each=1))
    async with start_gateway(lambda scripted: scripted.servers("one", "two"), settings=settings) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        ask(one)
        first = await running
        running, two, second = await held(gateway, caller, "two")
        ask(two)
        full = await running
        assert failure(full) == "too-many-questions" and "1 calls of yours" in words(full)
        assert (await two.hears("notifications/cancelled"))["params"]["requestId"] == second["id"]
        coming = go_on(caller, first)
        await one.hears(None)
        one.answer(request, text("done"))
        assert words(await coming) == "done"


@requirement("hub.call.parked")
async def test_a_parked_call_that_expires_is_cancelled_at_its_server() -> None:
    settings = Settings(gateway=GatewaySettings(parked_seconds=0.2))
    async with start_gateway(lambda scripted: scripted.servers("one"), settings=settings) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        ask(one)
        first = await running
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        late = await go_on(caller, first)
        assert late["error"]["code"] == -32602 and "call again without it" in late["error"]["message"]
        server = await gateway.server("one")
        assert server.limiter.running == 0 and len(gateway.service.parked_calls) == 0


async def test_a_call_that_is_parked_for_a_connection_ends_with_that() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        async with connect(gateway.url("/ws").replace("http", "ws"), subprotocols=[Subprotocol("mcp")]) as line:
            await line.send(json.dumps(caller.message("tools/call", {"name": "one__hold"})))
            one = await gateway.scripted.comes("one")
            request = await one.called("hold")
            ask(one)
            assert asked(json.loads(await line.recv()))
            assert one.all("notifications/cancelled") == []
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]


async def test_hooks_see_one_call_however_many_rounds_it_takes() -> None:
    seen: list[Any] = []

    async def before(call: ToolCall) -> None:
        seen.append(bytes(call.arguments))

    async def after(call: ToolCall, result: Raw) -> None:
        seen.append(json.loads(bytes(result))["content"][0]["text"])

    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        gateway.service.hooks.before.append(before)
        gateway.service.hooks.after.append(after)
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        ask(one)
        coming = go_on(caller, await running)
        await one.hears(None)
        one.answer(request, text("done"))
        assert words(await coming) == "done" and seen == [b"{}", "done"]


async def test_a_client_that_goes_in_a_later_round_cancels_the_call() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        ask(one)
        coming = go_on(caller, await running)
        await one.hears(None)
        coming.cancel()
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert len(gateway.service.parked_calls) == 0


async def test_c20_late_answers_and_withdrawn_or_unknown_questions_are_harmless() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        one.say({"id": "what", "method": "no/such", "params": {}})
        assert (await one.hears(None))["error"]["code"] == -32601
        ask(one)
        ask(one)  # twice with one id
        first = await running
        assert len(asked(first)) == 1
        # It does not want to know any more, answers what nobody asked, and then its call.
        one.tell("notifications/cancelled", requestId="q")
        one.say({"id": 4711, "result": {}})
        one.answer(request, text("done"))
        one.answer(request, text("twice"))
        await caller.call("one__echo")  # when this is answered, all that was taken in
        assert words(await go_on(caller, first)) == "done"
        assert len(one.all(None)) == 1


async def test_c20_a_form_is_not_shown_by_a_client_that_only_opens_pages_nor_the_reverse() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        unable: list[tuple[Message, str]] = [({"url": {}}, "form"), ({}, "url"), ({"form": {}}, "url")]
        for number, (able, mode) in enumerate(unable, 1):
            caller = await gateway.caller(able={"elicitation": able})
            running, one, request = await held(gateway, caller, count=number)
            one.say({"id": number, "method": "elicitation/create", "params": NAME | {"mode": mode}})
            assert (await one.hears(None, number))["result"] == {"action": "cancel"}
            one.answer(request, text("done"))
            assert words(await running) == "done"


async def test_an_error_of_a_server_whose_modern_client_lacks_something_says_what() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller(able={"elicitation": {}})
        running, one, request = await held(gateway, caller)
        ask(one, method="sampling/createMessage")
        assert (await one.hears(None))["error"]["code"] == -32601
        one.refuse(request, -32603, "no model")
        error = (await running)["error"]
        assert error["code"] == -32021 and error["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_a_tool_that_is_called_through_another_one_may_ask_too() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller("/mcp?mode=search")
        inner = {"arguments": {"name": "one__hold", "arguments": {"x": 1}}}
        running = caller.begin("hub_call_tool", inner["arguments"])
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        ask(one)
        params = next_round(await running, tool="hub_call_tool") | inner
        coming = asyncio.create_task(caller.ask("tools/call", params))
        assert (await one.hears(None))["result"] == ADA
        one.answer(request, text("done"))
        assert words(await coming) == "done"


async def test_a_prompt_and_a_resource_may_ask_too() -> None:
    play = ServerScript(prompts=[{"name": "p"}], resources=[{"uri": "note://a", "name": "a"}])
    play.held |= {"prompts/get", "resources/read"}
    results: dict[str, Message] = {
        "prompts/get": {"messages": []},
        "resources/read": {"contents": [{"uri": "note://a", "text": "t"}]},
    }
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        for number, (method, result) in enumerate(results.items(), 1):
            named = {"name": "one__p"} if method == "prompts/get" else {"uri": "one+note://a"}
            running = asyncio.create_task(caller.ask(method, named))
            one = await gateway.scripted.comes("one")
            request = await one.hears(method)
            ask(one, number)
            first = await running
            more = {key: value for key, value in next_round(first).items() if key != "name"}
            coming = asyncio.create_task(caller.ask(method, named | more))
            assert (await one.hears(None, number))["result"] == ADA
            one.answer(request, result)
            found = (await coming)["result"]
            assert found["resultType"] == "complete"
            assert json.dumps(found).count("one+note://a") == (1 if method == "resources/read" else 0)


async def test_a_call_that_was_begun_without_a_task_is_asked_in_rounds_too(fast_calls: FastCallCounts) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        repeat, server = await open_holding_caller(gateway, MODERN)
        fast_calls.clear()
        request = await repeat.held(server)
        ask(server)
        first = await repeat.answer()
        assert fast_calls.count() == (1, 1)
        coming = asyncio.create_task(repeat.call(**next_round(first)))
        assert (await server.hears(None))["result"] == ADA
        server.answer(request, text("done"))
        assert words(await coming) == "done"
        await check_still_fast(gateway, repeat, server, fast_calls)
