"""Messages of a server during a call reach the client that called, and no other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import let_pass
from tests.support.gateway.gateway import UNPINNED, checkout, start_gateway, view_of
from tests.support.gateway.round_trips import held
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller, failure, told, words
from tests.support.mcp.scripted_server import Message, ScriptedServer, ServerScript, text
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


# ---- progress


@requirement("hub.call.route")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_progress_reaches_the_caller_under_its_own_token_and_before_the_answer(era: str, server_era: str) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))}) as gateway:
        caller, other = await gateway.caller("/mcp", era), await gateway.caller("/mcp", era)
        running, one, request = await held(gateway, caller, progressToken="mine")
        waiting, _, second = await held(gateway, other, count=2, progressToken="mine")
        token = request["params"]["_meta"]["progressToken"]
        assert token != second["params"]["_meta"]["progressToken"]
        for number in range(50):
            one.tell("notifications/progress", progressToken=token, progress=number, total=50, message="ü", x=[1])
        one.answer(request, text("done"))
        assert words(await running) == "done"
        progress = [message["params"] for message in caller.all("notifications/progress")]
        assert [params["progress"] for params in progress] == list(range(50))
        assert progress[0] == {"progressToken": "mine", "progress": 0, "total": 50, "message": "ü", "x": [1]}
        assert other.all("notifications/progress") == []
        one.answer(second, text("too"))
        assert words(await waiting) == "too"


@requirement("hub.call.hang")
async def test_progress_resets_the_timeout_even_if_the_caller_did_not_request_it() -> None:
    limits = {"timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limits)) as gateway:
        caller = await gateway.caller()
        running, one, request = await held(gateway, caller)
        token = request["params"]["_meta"]["progressToken"]
        for number in range(4):
            let_pass(2)
            one.tell("notifications/progress", progressToken=token, progress=number)
            await caller.call("one__echo")  # whose answer comes after the progress
        one.answer(request, text("at last"))
        assert words(await running) == "at last"
        assert caller.heard == []
        running, one, _ = await held(gateway, caller, count=2)
        let_pass(5)
        assert failure(await running) == "timeout"


# ---- logs


@requirement("hub.catalog.primitives")
async def test_logs_reach_only_the_caller_they_belong_to_and_only_from_its_level() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        wants, quiet = await gateway.old_caller(), await gateway.old_caller()
        await wants.ask("logging/setLevel", {"level": "warning"})
        await quiet.ask("logging/setLevel", {"level": "emergency"})
        running, one, request = await held(gateway, wants)
        assert (await one.hears("logging/setLevel"))["params"] == {"level": "debug"}
        for level in ("debug", "info", "warning", "error", "strange"):
            one.tell("notifications/message", level=level, data={"z": 1, "a": 12345678901234567890}, logger="x")
        one.answer(request, text("done"))
        await running
        heard = wants.all("notifications/message")
        assert [message["params"]["level"] for message in heard] == ["warning", "error"]
        assert heard[0]["params"]["data"] == {"z": 1, "a": 12345678901234567890}
        running, one, request = await held(gateway, quiet, count=2)
        one.tell("notifications/message", level="error", data="x")
        one.answer(request, text("done"))
        await running
        assert quiet.all("notifications/message") == []


async def test_a_log_that_could_be_of_two_clients_calls_reaches_neither() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        callers = [await gateway.old_caller() for _ in range(2)]
        first, one, a = await held(gateway, callers[0])
        second, _, b = await held(gateway, callers[1], count=2)
        one.tell("notifications/message", level="emergency", data="whose?")
        one.answer(a, text("a"))
        one.answer(b, text("b"))
        await first
        await second
        assert callers[0].heard == callers[1].heard == []


@requirement("hub.catalog.primitives")
async def test_a_modern_caller_gets_logs_only_where_its_request_asks_for_them() -> None:
    level = "io.modelcontextprotocol/logLevel"
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        for count, meta in ((1, {}), (2, {level: "info"})):
            running, one, request = await held(gateway, caller, count=count, **meta)
            assert level not in request["params"].get("_meta", {})
            one.tell("notifications/message", level="info", data=count)
            one.answer(request, text("done"))
            await running
        assert [message["params"]["data"] for message in caller.all("notifications/message")] == [2]


# ---- what else there is to be had


def library(**more: Any) -> ServerScript:
    return ServerScript(
        resources=[{"uri": "note://one", "name": "n", "x": 12345678901234567890}, {"uri": "note://two", "name": "m"}],
        templates=[{"uriTemplate": "note://{name}/text", "name": "t"}],
        prompts=[{"name": "greet", "arguments": [{"name": "who"}]}],
        held={"resources/read", "prompts/get", "completion/complete"},
        **more,
    )


async def asked(
    caller: Caller, server: ScriptedServer, method: str, params: Message, result: Message
) -> tuple[Any, Any]:
    """What the server was asked, and what the caller got."""
    count = len(server.all(method)) + 1
    asking = asyncio.create_task(caller.ask(method, params))
    request = await server.hears(method, count)
    server.answer(request, result)
    return request["params"], await asking


@requirement("hub.catalog.primitives", "hub.name.unique")
@pytest.mark.parametrize("era", ERAS)
async def test_resources_prompts_and_completion_work_under_public_names(era: str) -> None:
    async with start_gateway(
        lambda scripted: {name: scripted.server(name, library()) for name in ("one", "two")}
    ) as gateway:
        caller = await gateway.caller("/mcp", era)
        resources = await caller.listed_of_servers("resources")
        uris = [resource["uri"] for resource in resources]
        assert uris == ["one+note://one", "one+note://two", "two+note://one", "two+note://two"]
        assert resources[0]["x"] == 12345678901234567890
        templates = [one["uriTemplate"] for one in await caller.listed("resourceTemplates")]
        assert templates[-2:] == ["one+note://{name}/text", "two+note://{name}/text"]
        assert [one["name"] for one in await caller.listed_of_servers("prompts")] == ["one__greet", "two__greet"]
        (two,) = gateway.scripted.of("two")
        for own in ("note://one", "note://ada/text", "note://never/listed"):
            content = {"uri": own, "text": "x", "y": 12345678901234567890}
            params, found = await asked(
                caller, two, "resources/read", {"uri": f"two+{own}"}, {"contents": [content], "z": 1}
            )
            assert params["uri"] == own
            assert found["result"]["contents"] == [{**content, "uri": f"two+{own}"}]
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}
        params, found = await asked(
            caller, two, "prompts/get", {"name": "two__greet", "arguments": {"who": "Ada"}}, result
        )
        assert params["name"] == "greet" and params["arguments"] == {"who": "Ada"}
        assert found["result"]["messages"] == result["messages"]
        argument = {"name": "who", "value": "A"}
        for public, own in (
            ({"type": "ref/prompt", "name": "two__greet"}, {"type": "ref/prompt", "name": "greet"}),
            (
                {"type": "ref/resource", "uri": "two+note://{name}/text"},
                {"type": "ref/resource", "uri": "note://{name}/text"},
            ),
        ):
            params, found = await asked(
                caller,
                two,
                "completion/complete",
                {"ref": public, "argument": argument},
                {"completion": {"values": ["Ada"]}},
            )
            assert params["ref"] == own and params["argument"] == argument
            assert found["result"]["completion"] == {"values": ["Ada"]}
        (one,) = gateway.scripted.of("one")
        assert not [message for message in one.heard if message.get("method") in one.play.held]


@requirement("hub.catalog.primitives")
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_not_there_is_an_error_of_its_kind(era: str) -> None:
    play = library()
    play.held.discard("resources/read")
    play.replies["resources/read"] = lambda params: LookupError("there is none")
    async with start_gateway(
        lambda scripted: {name: scripted.server(name, play) for name in ("one", "two")}
    ) as gateway:
        caller = await gateway.caller("/mcp", era)
        assert (await caller.ask("prompts/get", {"name": "one__no"}))["error"]["code"] == -32602
        ref = {"type": "ref/prompt", "name": "no"}
        params = {"ref": ref, "argument": {"name": "x", "value": ""}}
        assert (await caller.ask("completion/complete", params))["error"]["code"] == -32602
        assert (await caller.ask("completion/complete", {"argument": {}}))["error"]["code"] == -32602
        assert (await caller.ask("tools/list", {"cursor": "x"}))["error"]["code"] == -32602
        missing = await caller.ask("resources/read", {"uri": "three+note://one"})
        assert missing["error"]["code"] == (-32602 if era == MODERN else -32002)


@requirement("hub.call.hang")
async def test_a_read_of_a_server_that_dies_is_an_error_with_its_code() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", library())}) as gateway:
        caller = await gateway.caller()
        await caller.listed("resources")
        asking = asyncio.create_task(caller.ask("resources/read", {"uri": "one+note://one"}))
        (one,) = gateway.scripted.of("one")
        await one.hears("resources/read")
        one.order(exit=3)
        error = (await asking)["error"]
        assert error["data"]["code"] == "upstream-failed" and "exited with code 3" in error["message"]


# ---- changes


@requirement("hub.catalog.changed")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_changed_list_is_told_to_the_clients_that_see_it_and_to_no_others(era: str, server_era: str) -> None:
    left, right = checkout("left"), checkout("right")
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))},
        left,
        right,
        settings=UNPINNED,
    ) as gateway:
        paths = [view_of(left), view_of(left, "one"), view_of(right), "/mcp"]
        callers = [await gateway.caller(path, era) for path in paths]
        for caller in callers:
            await caller.listen()
        for caller in callers:
            await caller.tools()  # starts its server, which is a change too
            await caller.hears("notifications/tools/list_changed")
        one = next(one for one in gateway.scripted.all if one.cwd == left.resolve())
        kept = [entry for entry in one.play.tools if entry["name"] == "hold"]
        one.play = ServerScript(tools=[*kept, {"name": "fresh", "inputSchema": {}}], era=server_era)
        if server_era == MODERN:
            subscribed = await one.hears("subscriptions/listen")
            meta = {"io.modelcontextprotocol/subscriptionId": subscribed["id"]}
            one.tell("notifications/tools/list_changed", _meta=meta)
        else:
            one.tell("notifications/tools/list_changed")
        for caller in callers[:2]:
            await caller.hears("notifications/tools/list_changed", 2)
        assert set(await callers[0].tools()) == {"one__hold", "one__fresh"}
        assert await callers[1].tools() == ["hold", "fresh"]
        assert "error" in await callers[0].call("one__echo")
        for caller in callers[2:]:
            assert "one__echo" in await caller.tools()
            assert len(caller.all("notifications/tools/list_changed")) == 1


@requirement("hub.catalog.primitives")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_watched_resource_is_told_of_under_its_public_uri(era: str, server_era: str) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", library(era=server_era))}) as gateway:
        caller, other = await gateway.caller("/mcp", era), await gateway.caller("/mcp", era)
        await caller.listed("resources")
        await caller.listen("one+note://one")
        await other.listen("one+note://two")
        (one,) = gateway.scripted.of("one")
        meta: Message = {}
        if server_era == MODERN:
            while True:
                subscribed = one.all("subscriptions/listen")[-1]
                if set(subscribed["params"]["notifications"].get("resourceSubscriptions", [])) >= {
                    "note://one",
                    "note://two",
                }:
                    break
                await one.hears("subscriptions/listen", len(one.all("subscriptions/listen")) + 1)
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": subscribed["id"]}}
        else:
            await one.hears("resources/subscribe", 2)
        one.tell("notifications/resources/updated", uri="note://one", **meta)
        heard = await caller.hears("notifications/resources/updated")
        assert heard["params"]["uri"] == "one+note://one"
        one.tell("notifications/resources/updated", uri="note://two", **meta)
        heard = await other.hears("notifications/resources/updated")
        assert heard["params"]["uri"] == "one+note://two"
        assert len(caller.all("notifications/resources/updated")) == 1
        if era == HANDSHAKE and server_era == HANDSHAKE:
            await caller.ask("resources/unsubscribe", {"uri": "one+note://one"})
            assert (await one.hears("resources/unsubscribe"))["params"]["uri"] == "note://one"
            await other.close()
            assert (await one.hears("resources/unsubscribe", 2))["params"]["uri"] == "note://two"


@requirement("hub.catalog.changed")
async def test_a_server_that_says_so_whenever_it_is_listed_is_not_listed_for_ever() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        await caller.tools()
        await caller.listen()
        one = await gateway.scripted.comes("one")
        play = one._play

        def and_again(message: Message) -> None:
            play(message)
            if message.get("method") == "tools/list":
                one.tell("notifications/tools/list_changed")

        one._play = and_again
        one.tell("notifications/tools/list_changed")
        await one.hears("tools/list", 3)
        before = len(one.all("tools/list"))
        await asyncio.sleep(1)  # what is tested is how much happens in this time
        assert len(one.all("tools/list")) - before < 6
        assert told(await caller.call("one__echo"))["server"] == "one"


@requirement("hub.catalog.changed")
async def test_a_list_that_changes_while_it_is_fetched_for_the_first_time_is_fetched_again() -> None:
    play = ServerScript(held={"tools/list"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}, settings=UNPINNED) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        listing = asyncio.create_task(caller.tools())
        one = await gateway.scripted.comes("one")
        request = await one.hears("tools/list")
        one.tell("notifications/tools/list_changed")
        one.answer(request, {"tools": [{"name": "old", "inputSchema": {}}]})
        assert "one__old" in await listing
        changes = len(caller.all("notifications/tools/list_changed"))
        one.answer(await one.hears("tools/list", 2), {"tools": [{"name": "new", "inputSchema": {}}]})
        await caller.hears("notifications/tools/list_changed", changes + 1)
        assert "one__new" in await caller.tools()


async def test_the_instructions_of_servers_are_told_each_under_its_name() -> None:
    folder = checkout()

    def servers(scripted: Any) -> Message:
        return {name: scripted.server(name, ServerScript(instructions=f"use {name} well")) for name in ("one", "two")}

    async with start_gateway(servers, folder) as gateway:
        await (await gateway.caller(view_of(folder))).tools()
        hello = await (await gateway.old_caller(view_of(folder))).ask("ping")
        assert hello["result"] == {}
        caller = Caller(gateway.http, gateway.url(view_of(folder)), HANDSHAKE)
        about = await caller.open()
        assert about["instructions"] == "# one\nuse one well\n\n# two\nuse two well"
        assert about["serverInfo"]["name"] == "rookery"
        await caller.close()
        bare = Caller(gateway.http, gateway.url(view_of(folder, "two")), HANDSHAKE)
        about = await bare.open()
        assert about["instructions"] == "use two well" and about["serverInfo"]["name"] == "two"
        await bare.close()
    assert Path.home().is_dir()
