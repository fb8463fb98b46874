"""The prompts of sessions, and boulder's state as a resource, as clients of both eras see them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.plugins.boulder.service import Boulder
from rookery.plugins.boulder.session import BoulderSession
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import ERAS, Caller
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

IDLE, COMPLETION = "test_boulder_idle_detection", "test_boulder_completion"
TOOLS = ("get_session", "send_message", "wait_for_toast", "trigger_plugin_action", "boulder://state/ses_a")
UPDATED = "notifications/resources/updated"


@asynccontextmanager
async def start_daemon() -> AsyncGenerator[Gateway]:
    """A gateway whose plugins run."""
    async with start_gateway() as gateway:
        await gateway.parts.plugins.start()
        try:
            yield gateway
        finally:
            await gateway.parts.plugins.stop()


def boulder_of(gateway: Gateway) -> Boulder:
    return gateway.parts.sessions._boulder


async def get(caller: Caller, name: str, **given: Any) -> Any:
    return await caller.ask("prompts/get", {"name": name, "arguments": given})


async def text(caller: Caller, name: str, **given: Any) -> str:
    found = (await get(caller, name, **given))["result"]
    (message,) = found["messages"]
    assert message["role"] == "user" and message["content"]["type"] == "text" and found["description"]
    return message["content"]["text"]


@requirement("boulder.prompt.idle", "boulder.prompt.completion")
@pytest.mark.parametrize("era", ERAS)
async def test_the_two_prompts_are_listed_with_their_arguments_and_answer_instructions(era: str) -> None:
    async with start_daemon() as gateway:
        caller = await gateway.caller("/mcp", era)
        listed = {one["name"]: one for one in await caller.listed("prompts")}
        session = {"name": "sessionId", "description": "Session to test", "required": True}
        assert listed[COMPLETION]["arguments"] == [session]
        assert [(one["name"], one["required"]) for one in listed[IDLE]["arguments"]] == [
            ("sessionId", True),
            ("idleTime", False),
        ]
        assert listed[IDLE]["description"] == "Test boulder idle detection"
        assert listed[COMPLETION]["description"] == "Test boulder completion detection"
        for name in (IDLE, COMPLETION):
            told = await text(caller, name, sessionId="ses_a")
            assert all(word in told for word in TOOLS) and "BOULDER ENFORCEMENT" in told
            assert "{" not in told.replace('{"sessionId": "ses_a"}', "")
        assert "timeout 35000" in await text(caller, IDLE, sessionId="ses_a")
        assert "timeout 2500" in await text(caller, IDLE, sessionId="ses_a", idleTime="2.5")
        assert "timeout 60000" in await text(caller, IDLE, sessionId="ses_a", idleTime=60)
        for name, given in (
            (IDLE, {}),
            (IDLE, {"sessionId": ""}),
            (IDLE, {"sessionId": "ses_a", "idleTime": "soon"}),
            (IDLE, {"sessionId": "ses_a", "idleTime": "-1"}),
            (COMPLETION, {"sessionId": "ses_a", "idleTime": "3"}),
            (COMPLETION, {"sessionId": ["ses_a"]}),
            ("test_boulder", {}),
        ):
            error = (await get(caller, name, **given))["error"]
            assert error["code"] == -32602 and name in error["message"], (name, given)


@pytest.mark.parametrize("era", ERAS)
async def test_blanks_of_prompts_and_templates_are_completed(era: str) -> None:
    async with start_daemon() as gateway:
        caller = await gateway.caller("/mcp", era)
        keeper = boulder_of(gateway).engine
        for id_ in ("ses_ab", "ses_b"):
            live = keeper.sessions[id_] = BoulderSession(id_, "/somewhere", reported=True)
            live.state = type(live.state)(iteration=1)

        async def completed(ref: dict[str, str], name: str, value: str) -> list[str]:
            asked = {"ref": ref, "argument": {"name": name, "value": value}}
            return (await caller.ask("completion/complete", asked))["result"]["completion"]["values"]

        template = {"type": "ref/resource", "uri": "boulder://state/{sessionId}"}
        assert await completed(template, "sessionId", "ses_a") == ["ses_ab"]
        prompt = {"type": "ref/prompt", "name": IDLE}
        # No agent runs here, and there is no session.
        assert await completed(prompt, "sessionId", "") == []
        assert await completed(prompt, "idleTime", "") == []


@requirement("boulder.state.resource", "session.resource.changes")
@pytest.mark.parametrize("era", ERAS)
async def test_boulders_state_is_a_resource_and_its_changes_are_told(era: str) -> None:
    async with start_daemon() as gateway:
        caller = await gateway.caller("/mcp", era)
        listed = next(one for one in await caller.listed("resources") if one["uri"] == "boulder://state")
        assert (listed["name"], listed["mimeType"]) == ("Boulder State", "application/json")
        assert "boulder://state/{sessionId}" in [one["uriTemplate"] for one in await caller.listed("resourceTemplates")]
        (content,) = (await caller.ask("resources/read", {"uri": "boulder://state"}))["result"]["contents"]
        state = json.loads(content["text"])
        assert (state["iteration"], state["status"], state["sessions"]) == (0, "OFF", {})
        answer = await caller.call("get_plugin_state", {"pluginName": "boulder"})
        assert json.loads(answer["result"]["content"][0]["text"]) == state
        unknown = await caller.ask("resources/read", {"uri": "boulder://state/ses_none"})
        assert "there is no session 'ses_none'" in unknown["error"]["message"]
        boulder = boulder_of(gateway)
        assert not boulder._listeners
        await caller.listen("boulder://state", "boulder://state/ses_a")
        boulder._notify(BoulderSession("ses_a", "/somewhere"))
        await caller.hears(UPDATED, 2)
        boulder._notify(BoulderSession("ses_b", "/somewhere"))
        await caller.hears(UPDATED, 3)
        told = [one["params"]["uri"] for one in caller.all(UPDATED)]
        assert sorted(told) == ["boulder://state", "boulder://state", "boulder://state/ses_a"]


@requirement("boulder.state.resource", "session.scope.token")
async def test_a_workspace_is_told_of_no_changes_elsewhere() -> None:
    async with start_daemon() as gateway:
        boulder, told = boulder_of(gateway), list[str]()
        toolset = gateway.parts.sessions.toolset(Path("/here"))
        toolset.changes.listen(lambda kind, uri: told.append(str(uri)))
        watcher = object()
        toolset.watch(watcher, frozenset({"boulder://state", "boulder://state/ses_a"}))
        boulder._notify(BoulderSession("ses_a", "/there"))
        assert told == []
        boulder._notify(BoulderSession("ses_a", "/here"))
        assert sorted(told) == ["boulder://state", "boulder://state/ses_a"]
        toolset.watch(watcher, frozenset())
        assert not boulder._listeners
