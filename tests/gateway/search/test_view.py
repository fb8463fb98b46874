"""A view in search mode: the results, and that all rules apply to a tool that is called through it."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from rookery.daemon.settings.schema import GatewaySettings, Settings
from rookery.gateway.hooks import ToolCall
from rookery.gateway.search.view import CALL, FIND
from tests.support.gateway.gateway import UNPINNED, checkout, start_gateway, view_of
from tests.support.mcp.caller import ERAS, Caller, failure, told, words
from tests.support.mcp.scripted_server import Message, ScriptedServers, ServerScript, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SEARCH = "/mcp?mode=search"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "x-unknown": [1.0]}


def shop(scripted: ScriptedServers) -> Message:
    files = ServerScript(
        tools=[
            tool("read_file", description="Read a file.", inputSchema=SCHEMA),
            tool("delete_file", description="Delete a file."),
            tool("hold_file", description="Keep a file open."),
        ],
        instructions="a long story",
    )
    return {
        "files": scripted.server("files", files),
        "mail": scripted.server("mail", ServerScript([tool("send_mail")])),
    }


async def find(caller: Caller, query: str, **more: Any) -> list[Message]:
    answer = (await caller.call(FIND, {"query": query, **more}))["result"]
    assert not answer.get("isError"), answer
    return answer["structuredContent"]["tools"]


@requirement("hub.find.tool")
@pytest.mark.parametrize("era", ERAS)
async def test_a_view_in_search_mode_shows_only_find_and_call_and_they_reach_every_tool(era: str) -> None:
    async with start_gateway(shop) as gateway:
        caller = await gateway.caller(SEARCH, era)
        assert [one["name"] for one in await caller.listed("tools")] == [FIND, CALL]
        # To list these two is no reason to start anything.
        assert gateway.scripted.of("files") == []
        found = await find(caller, "read a file")
        assert found[0] == {
            "name": "files__read_file",
            "server": "files",
            "description": "Read a file.",
            "inputSchema": SCHEMA,
        }
        assert len(await find(caller, "file", limit=2)) == 2 and await find(caller, "zebra") == []
        assert {one["name"] for one in await find(caller, "session workspace", limit=20)} > {"create_session"}
        assert FIND not in {one["name"] for one in await find(caller, "find tools", limit=20)}

        given = {"path": "a", "n": 12345678901234567890}
        assert told(await caller.call(CALL, {"name": "files__read_file", "arguments": given}))["arguments"] == given
        heard = (await gateway.scripted.comes("files")).calls("read_file")
        assert [one["params"]["arguments"] for one in heard] == [given]
        assert told(await caller.call(CALL, {"name": "mail__send_mail"}))["tool"] == "send_mail"
        # Who knows a name need not ask; and what a model writes as text is an object all the same.
        assert told(await caller.call("mail__send_mail"))["tool"] == "send_mail"
        as_text = await caller.call(CALL, {"name": "files__read_file", "arguments": '{"path": "b"}'})
        assert told(as_text)["arguments"] == {"path": "b"}
        assert "servers" in (await caller.call(CALL, {"name": "hub_list_servers"}))["result"]["structuredContent"]


@requirement("hub.find.tool")
async def test_a_normal_view_can_search_and_a_search_view_omits_server_instructions() -> None:
    async with start_gateway(shop) as gateway:
        listed, searched = await gateway.old_caller(), await gateway.caller(SEARCH)
        assert FIND in {one["name"] for one in await listed.listed("tools")}
        assert CALL not in {one["name"] for one in await listed.listed("tools")}
        assert [one["name"] for one in await find(listed, "send mail")][:1] == ["mail__send_mail"]
        bare = await gateway.caller("/mcp?prefix=never&toolsets=hub")
        assert [one["name"] for one in await find(bare, "send mail")] == ["send_mail"]
        hello = await searched.open()
        assert FIND in hello["instructions"] and "story" not in hello["instructions"]
        assert "story" in (await listed.open())["instructions"]


@requirement("hub.find.tool")
@pytest.mark.parametrize("era", ERAS)
async def test_filters_switches_policy_and_hooks_apply_to_a_tool_called_through_search(era: str) -> None:
    rules: Message = {"permission": {"files__delete_file": "deny"}, "tools": {"mail/*": False}}
    async with start_gateway(shop, **rules) as gateway:
        caller = await gateway.caller(SEARCH, era)
        names = {one["name"] for one in await find(caller, "delete a file or send a mail", limit=20)}
        assert "files__read_file" in names and not names & {"files__delete_file", "mail__send_mail"}
        assert failure(await caller.call(CALL, {"name": "files__delete_file"})) == "tool-denied"
        assert failure(await caller.call(CALL, {"name": "mail__send_mail"})) == "invalid-input"

        seen: list[ToolCall] = []

        async def before(call: ToolCall) -> Raw:
            seen.append(call)
            return Raw(b'{"path": "hooked"}')

        gateway.service.hooks.before.append(before)
        answer = await caller.call(CALL, {"name": "files__read_file", "arguments": {"path": "a"}})
        assert told(answer)["arguments"] == {"path": "hooked"}
        assert [(one.public, bytes(one.arguments)) for one in seen] == [("files__read_file", b'{"path": "a"}')]

        await gateway.rest("POST", "/api/mcp/files/disable", {"tool": "read_*"})
        assert failure(await caller.call(CALL, {"name": "files__read_file"})) == "invalid-input"
        assert "files__read_file" not in {one["name"] for one in await find(caller, "read a file", limit=20)}


@requirement("hub.find.tool", "hub.call.abort")
@pytest.mark.parametrize("era", ERAS)
async def test_progress_and_cancellation_pass_through_a_call_of_a_call(era: str) -> None:
    async with start_gateway(shop) as gateway:
        caller = await gateway.caller(SEARCH, era)
        held = caller.begin(CALL, {"name": "files__hold_file"}, progressToken="p")
        files = await gateway.scripted.comes("files")
        request = await files.called("hold_file")
        files.tell("notifications/progress", progressToken=request["params"]["_meta"]["progressToken"], progress=3)
        assert (await caller.hears("notifications/progress"))["params"] == {"progressToken": "p", "progress": 3}
        files.answer(request, text("done"))
        assert words(await held) == "done"

        held = caller.begin(CALL, {"name": "files__hold_file"})
        request = await files.called("hold_file", 2)
        if caller.modern:
            held.cancel()
        else:
            await caller.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
            held.cancel()
        assert (await files.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        await asyncio.gather(held, return_exceptions=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "name is missing"),
        ({"name": 7}, "name must be a string"),
        ({"name": "files__read_file", "arguments": [1]}, "must be an object"),
        ({"name": "files__read_file", "arguments": "no json"}, "must be an object"),
        ({"name": "files__read_file", "path": "a"}, "'path' belongs inside `arguments`"),
        ({"name": "files__nothing"}, FIND),
        ({"name": CALL}, "directly"),
        ({"name": FIND, "arguments": {"query": "x"}}, "directly"),
    ],
)
async def test_a_call_that_does_not_fit_tells_the_model_what_to_do(given: Message, says: str) -> None:
    async with start_gateway(shop) as gateway:
        caller = await gateway.caller(SEARCH)
        answer = await caller.call(CALL, given)
        assert failure(answer) == "invalid-input" and says in words(answer)
        for wrong in ({}, {"query": ""}, {"query": "x", "limit": 0}, {"query": "x", "limit": 99}, {"words": "x"}):
            assert failure(await caller.call(FIND, wrong)) == "invalid-input"


async def test_the_setting_says_what_clients_see_that_ask_for_nothing() -> None:
    app = checkout()
    settings = Settings(gateway=GatewaySettings(mode="search"))
    async with start_gateway(shop, app, settings=settings) as gateway:
        seen = {"/mcp": True, view_of(app): True, "/mcp?mode=list": False, view_of(app, "files"): False}
        for path, searched in seen.items():
            names = [one["name"] for one in await (await gateway.caller(path)).listed("tools")]
            assert (names == [FIND, CALL]) == searched, path
        status, found = await gateway.rest("GET", "/api/mcp")
        assert status == 200 and set(found) == {"files", "mail"}
        async with gateway.http.post(gateway.url("/mcp?mode=guess"), data=b"{}") as answer:
            assert answer.status == 400 and "list, search" in await answer.text()


async def test_an_unsearchable_server_is_reported_and_a_new_tool_is_found() -> None:
    def servers(scripted: ScriptedServers) -> Message:
        return shop(scripted) | {"gone": {"command": ["no-such-program-here"]}}

    async with start_gateway(servers, settings=UNPINNED) as gateway:
        caller = await gateway.caller(SEARCH)
        answer = (await caller.call(FIND, {"query": "zebra"}))["result"]["structuredContent"]
        assert answer["tools"] == [] and answer["among"] > 4
        assert any(one.startswith("gone is failed") for one in answer["absent"]), answer
        await (await gateway.scripted.comes("mail")).change(tool("stroke_zebra"))
        async with asyncio.timeout(30):
            while not await find(caller, "zebra"):
                pass
        assert [one["name"] for one in await find(caller, "zebra")] == ["mail__stroke_zebra"]
