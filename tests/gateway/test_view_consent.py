"""Tools with the rule `ask`."""

import json
from typing import Any

import pytest
from mcp_types import methods

from tests.support.gateway.gateway import start_gateway, write
from tests.support.gateway.round_trips import ADA, NAME, asked, go_on, next_round
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller, Message, failure, told, words
from tests.support.mcp.scripted_server import ScriptedServers, ServerScript, text
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

RULES = {"*": "ask"}
YES: Message = {"action": "accept", "content": {"allow": True}}
# Everything else is a no.
NO: list[Any] = [
    {"action": "accept", "content": {"allow": False}},
    {"action": "accept"},
    {"action": "accept", "content": {"allow": "true"}},
    {"action": "decline"},
    {"action": "cancel", "content": {"allow": True}},
    {"content": {"allow": True}},
    {},
]


async def called(caller: Caller, answer: Message, tool: str = "one__echo", arguments: Any = None) -> Message:
    """A call whose user gives this answer."""
    if not caller.modern:

        async def answering(params: Message) -> Message:
            return answer

        caller.answers["elicitation/create"] = answering
        return await caller.call(tool, arguments)
    first = await caller.call(tool, arguments)
    caller.asked += [{"method": one["method"], "params": one["params"]} for one in asked(first).values()]
    given = {} if arguments is None else {"arguments": arguments}
    return await caller.ask("tools/call", next_round(first, dict.fromkeys(asked(first), answer), tool) | given)


@requirement("guard.policy.ask")
@pytest.mark.parametrize("era", ERAS)
async def test_the_user_is_asked_before_the_tool_is_called_and_only_a_yes_is_a_yes(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), permission=RULES) as gateway:
        caller = await gateway.caller("/mcp", era, able={"elicitation": {}})
        await caller.tools()
        one = await gateway.scripted.comes("one")
        for answer in NO:
            refused = await called(caller, answer)
            assert failure(refused) == "tool-denied" and "did not allow it" in words(refused)
        assert one.all("tools/call") == []
        arguments = {"path": "/etc/\u202epasswd", "big": "x" * 5000}
        assert told(await called(caller, YES, arguments=arguments))["arguments"] == arguments
        assert len(one.all("tools/call")) == 1
        question = caller.asked[-1]
        methods.parse_server_request("elicitation/create", HANDSHAKE, question["params"])
        shown: str = question["params"]["message"]
        assert question["method"] == "elicitation/create" and 'one__echo of the MCP server "one"' in shown
        assert "/etc/" in shown and "\u202e" not in shown and "characters)" in shown and len(shown) < 3000
        # Each time anew.
        assert failure(await called(caller, {"action": "decline"})) == "tool-denied"


@requirement("guard.policy.ask")
@pytest.mark.parametrize("era", ERAS)
async def test_who_cannot_be_asked_is_told_how_to_allow_the_tool(era: str) -> None:
    unable: list[Message] = [{}, {"sampling": {}}, {"elicitation": {"url": {}}}]
    async with start_gateway(lambda scripted: scripted.servers("one"), permission=RULES) as gateway:
        for able in unable:
            caller = await gateway.caller("/mcp", era, able=able)
            denied = await caller.call("one__echo")
            assert failure(denied) == "tool-denied" and '"one__echo": "allow"' in words(denied)
            assert caller.asked == []
        assert all(one.all("tools/call") == [] for one in gateway.scripted.of("one"))


@requirement("guard.policy.ask")
async def test_a_yes_does_not_outrank_a_rule_that_came_meanwhile() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), permission=RULES) as gateway:
        caller = await gateway.caller()
        first = await caller.call("one__echo")
        write(gateway.scripted.servers("one"), permission={"*": "deny"})
        await gateway.hub.config_watcher.read_again()
        denied = await go_on(caller, first, dict.fromkeys(asked(first), YES), "one__echo")
        assert failure(denied) == "tool-denied" and '"*": "deny"' in words(denied)


@requirement("guard.policy.ask")
async def test_a_client_that_refuses_to_ask_is_a_no() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one"), permission=RULES) as gateway:
        caller = await gateway.old_caller()
        denied = await caller.call("one__echo")
        assert failure(denied) == "tool-denied" and "this client does not know" in words(denied)


@requirement("guard.policy.ask", "hub.call.server-requests")
@pytest.mark.parametrize("server_era", ERAS)
async def test_a_tool_that_was_allowed_may_ask_something_itself(server_era: str) -> None:
    """The user is asked for consent once, whoever asks what after that."""

    def servers(scripted: ScriptedServers) -> Message:
        return {"one": scripted.server("one", ServerScript(era=server_era))}

    async with start_gateway(servers, permission=RULES) as gateway:
        caller = await gateway.caller()
        first = await caller.call("one__hold")
        coming = go_on(caller, first, dict.fromkeys(asked(first), YES))
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        assert "requestState" not in json.dumps(request)
        if server_era == HANDSHAKE:
            one.say({"id": 1, "method": "elicitation/create", "params": NAME})
        else:
            inputs = {"name": {"method": "elicitation/create", "params": NAME}}
            one.answer(request, {"resultType": "input_required", "inputRequests": inputs, "requestState": "its own"})
        second = await coming
        assert [found["params"] for found in asked(second).values()] == [NAME]
        coming = go_on(caller, second)
        if server_era == MODERN:
            request = await one.called("hold", 2)
            assert request["params"]["inputResponses"] == {"name": ADA}
            assert request["params"]["requestState"] == "its own"
        else:
            assert (await one.hears(None))["result"] == ADA
        one.answer(request, text("done") | {"resultType": "complete"})
        assert words(await coming) == "done"


@requirement("guard.policy.ask")
@pytest.mark.parametrize("era", ERAS)
async def test_in_search_mode_the_user_is_asked_about_the_inner_tool(era: str) -> None:
    rules = {"*": "ask", "hub_*": "allow"}
    async with start_gateway(lambda scripted: scripted.servers("one"), permission=rules) as gateway:
        caller = await gateway.caller("/mcp?mode=search", era)
        inner = {"name": "one__echo", "arguments": {"x": 1}}
        assert told(await called(caller, YES, "hub_call_tool", inner))["arguments"] == {"x": 1}
        assert 'tool one__echo of the MCP server "one"' in caller.asked[0]["params"]["message"]
