"""Questions of a server during a call go only to the client that called, as far as it supports them."""

import asyncio

import pytest

from tests.support.gateway.gateway import checkout, start_gateway, view_of
from tests.support.gateway.round_trips import QUESTIONS, held
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, told, words
from tests.support.mcp.scripted_server import Message, ServerScript, text
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("hub.call.server-requests")
@pytest.mark.parametrize("method", QUESTIONS)
async def test_c20_a_question_reaches_the_calling_client_alone_and_its_answer_the_server(method: str) -> None:
    asked, answer = QUESTIONS[method]
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller, other = await gateway.old_caller(), await gateway.old_caller()
        await caller.listen()
        await other.listen()

        async def answering(params: Message) -> Message:
            return answer

        caller.answers[method] = other.answers[method] = answering
        running, one, request = await held(gateway, caller)
        one.say({"id": "q", "method": method, "params": asked})
        assert (await one.hears(None))["result"] == answer
        one.answer(request, text("done"))
        assert words(await running) == "done"
        assert [(question["method"], question["params"]) for question in caller.asked] == [(method, asked)]
        assert other.asked == []


@requirement("hub.call.server-requests")
async def test_c20_a_question_that_could_be_two_clients_is_refused_and_reaches_nobody() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        callers = [await gateway.old_caller() for _ in range(2)]
        first, one, a = await held(gateway, callers[0])
        second, _, b = await held(gateway, callers[1], count=2)
        one.say({"id": "q", "method": "elicitation/create", "params": {"message": "password?"}})
        answer = await one.hears(None)
        assert "several clients" in answer["error"]["message"]
        one.answer(a, text("a"))
        one.answer(b, text("b"))
        assert [words(await first), words(await second)] == ["a", "b"]
        assert callers[0].asked == callers[1].asked == []
        _, found = await gateway.rest("GET", "/api/mcp/one")
        assert "elicitation/create 1 times" in found["diagnosis"][-1] and found["error"] is None


@pytest.mark.parametrize("era", ERAS)
async def test_c20_a_client_that_cannot_be_asked_is_answered_for(era: str) -> None:
    folder = checkout("with space é")
    async with start_gateway(lambda scripted: scripted.servers("one", roots=True), folder) as gateway:
        caller = await gateway.caller(view_of(folder), era, able={})
        running, one, request = await held(gateway, caller)
        for number, method in enumerate(QUESTIONS):
            one.say({"id": number, "method": method, "params": QUESTIONS[method][0]})
        await one.hears(None, 3)
        answers = {answer["id"]: answer for answer in one.all(None)}
        assert answers[0]["result"] == {"roots": [{"uri": folder.resolve().as_uri()}]}
        assert answers[1]["error"]["code"] == -32601
        assert answers[2]["result"] == {"action": "cancel"}
        one.answer(request, text("done"))
        assert words(await running) == "done"
        assert caller.asked == []


async def test_c20_a_client_that_refuses_is_passed_on_as_it_refused() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        running, one, request = await held(gateway, caller)
        one.say({"id": 7, "method": "sampling/createMessage", "params": {}})
        answer = await one.hears(None)
        assert answer["error"] == {"code": -1, "message": "this client does not know"}
        one.answer(request, text("done"))
        await running


async def test_c20_a_call_that_ends_takes_its_question_back(caplog: pytest.LogCaptureFixture) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        asked = asyncio.Event()

        async def never(params: Message) -> Message:
            asked.set()
            return await asyncio.Event().wait()  # pyright: ignore[reportReturnType]

        caller.answers["elicitation/create"] = never
        running, one, request = await held(gateway, caller, id_="c")
        one.say({"id": 7, "method": "elicitation/create", "params": {"message": "?"}})
        await asyncio.wait_for(asked.wait(), 10)
        await caller.cancel("c")
        assert "error" in await running
        assert caller.all("notifications/cancelled")[0]["params"]["requestId"] == caller.asked[0]["id"]
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert told(await caller.call("one__echo"))["server"] == "one"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@requirement("hub.call.server-requests")
@pytest.mark.parametrize("era", ERAS)
async def test_a_modern_server_that_needs_input_gets_it_from_the_calling_client(era: str) -> None:
    """A modern client answers by calling again, a handshake client is asked by us on its behalf."""
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        caller = await gateway.caller("/mcp", era)
        question, answer = QUESTIONS["elicitation/create"]

        async def answering(params: Message) -> Message:
            return answer

        caller.answers["elicitation/create"] = answering
        running, one, request = await held(gateway, caller)
        inputs = {"name": {"method": "elicitation/create", "params": question}}
        needed = {"resultType": "input_required", "inputRequests": inputs, "requestState": "sealed by the server"}
        one.answer(request, needed)
        if era == MODERN:
            found = (await running)["result"]
            assert {key: found[key] for key in needed} == needed
            params = {"name": "one__hold", "inputResponses": {"name": answer}, "requestState": found["requestState"]}
            running = asyncio.create_task(caller.ask("tools/call", params))
        again = await one.called("hold", 2)
        assert again["params"]["inputResponses"] == {"name": answer}
        assert again["params"]["requestState"] == "sealed by the server"
        one.answer(again, text("hello Ada") | {"resultType": "complete"})
        assert words(await running) == "hello Ada"
        assert len(caller.asked) == (1 if era == HANDSHAKE else 0)


@requirement("hub.call.server-requests")
async def test_questions_of_one_modern_round_reach_a_handshake_client_together() -> None:
    """As far as that client can answer; the rest is answered for it. Where it refuses one, the call fails so."""
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        caller = await gateway.old_caller(able={"sampling": {}, "elicitation": {}})
        both = asyncio.Event()

        async def when_both_are_asked(params: Message) -> Message:
            if len(caller.asked) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 10)
            return QUESTIONS["sampling/createMessage" if "messages" in params else "elicitation/create"][1]

        for method in ("sampling/createMessage", "elicitation/create"):
            caller.answers[method] = when_both_are_asked
        running, one, request = await held(gateway, caller)
        inputs = {method: {"method": method, "params": params} for method, (params, _) in QUESTIONS.items()}
        needed = {"resultType": "input_required", "inputRequests": inputs, "requestState": "s"}
        one.answer(request, needed)
        again = await one.called("hold", 2)
        answers = {method: answer for method, (_, answer) in QUESTIONS.items()}
        assert again["params"]["inputResponses"] == answers | {"roots/list": {"roots": []}}
        del caller.answers["sampling/createMessage"]
        one.answer(again, needed)
        refused = await running
        assert refused["error"] == {"code": -1, "message": "this client does not know"}
        assert len(one.calls("hold")) == 2


async def test_url_questions_have_an_id_and_an_end_notification_for_handshake_clients() -> None:
    page = {"mode": "url", "message": "sign in", "url": "https://127.0.0.1/"}
    done = "notifications/elicitation/complete"
    able: Message = {"elicitation": {"url": {}}}
    plays = {"old": ServerScript(), "new": ServerScript(era=MODERN)}
    async with start_gateway(
        lambda scripted: {name: scripted.server(name, play) for name, play in plays.items()}
    ) as gateway:
        caller, modern = await gateway.old_caller(able=able), await gateway.caller(able=able)

        async def answering(params: Message) -> Message:
            return {"action": "accept"}

        caller.answers["elicitation/create"] = answering
        running, new, request = await held(gateway, caller, "new")
        inputs = {"page": {"method": "elicitation/create", "params": page}}
        new.answer(request, {"resultType": "input_required", "inputRequests": inputs})
        new.answer(await new.called("hold", 2), text("done"))
        assert words(await running) == "done"
        shown = caller.asked[0]["params"]
        assert shown.pop("elicitationId") and shown == page
        for number, (client, heard) in enumerate([(caller, 1), (modern, 0)], 1):
            running, old, request = await held(gateway, client, "old", number)
            old.tell(done, elicitationId="e")
            old.answer(request, text("done"))
            assert words(await running) == "done" and len(client.all(done)) == heard


async def test_a_server_is_told_what_this_caller_can_do() -> None:
    key = "io.modelcontextprotocol/clientCapabilities"
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        some: list[Message] = [{}, {"sampling": {}}, {"elicitation": {"form": {}}, "x-future": {"y": 1}}]
        for able in some:
            for era in ERAS:
                caller = await gateway.caller("/mcp", era, able=able)
                await caller.call("one__echo")
                one = gateway.scripted.of("one")[0]
                assert one.calls("echo")[-1]["params"]["_meta"][key] == able


async def test_s2_no_client_learns_of_another_from_what_a_server_is_told() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        await (await gateway.caller()).call("one__echo")
        (one,) = gateway.scripted.of("one")
        info = one.calls("echo")[0]["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]
        assert info["name"] == "rookery"
