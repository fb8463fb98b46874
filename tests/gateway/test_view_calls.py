"""A call on its way to its server and back: unchanged, and to no other server."""

import asyncio
import json

import pytest

from tests.support.gateway.gateway import UNSCANNED, checkout, start_gateway, view_of, write
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, failure, told, words
from tests.support.mcp.scripted_server import ScriptedServer, ServerScript, all_of, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

# Numbers that few parsers keep, an order that sorting loses, escapes that may be written otherwise.
ODD = (
    '{"z":1,"big":123456789012345678901234567890,"tiny":1e-400,"float":1.0,"a":{"b":[1,2.50,true,null]},'
    '"text":"\\u00fc \\ud83d\\ude42 \\u2028 \\u0000","":"","__proto__":{"x":1},"deep":' + "[" * 100 + "]" * 100 + "}"
)


def sent(line: str, key: str) -> str:
    """A member of a message's params or result, as it stood there: what is cut out is the text behind the key."""
    begin = line.index(f'"{key}":') + len(key) + 3
    depth, inside, escaped = 0, False, False
    for place in range(begin, len(line)):
        char = line[place]
        if inside:
            inside, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            if depth == 0:
                return line[begin : place + 1]
    raise AssertionError(line)


@requirement("hub.call.route", "wire.fields.kept", "wire.limits.messages")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_arguments_and_results_pass_as_the_bytes_they_came_in(era: str, server_era: str) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))}) as gateway:
        caller = await gateway.caller("/mcp", era)
        await caller.tools()
        message = json.dumps(caller.message("tools/call", {"name": "one__hold", "arguments": "HERE"}, "x"))
        body = message.replace('"HERE"', ODD).encode()
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": "one__hold", "MCP-Protocol-Version": era}
        asking = asyncio.create_task(caller.raw(body, headers))
        (one,) = gateway.scripted.of("one")
        request = await one.called("hold")
        line = next(line for line in one.lines if '"tools/call"' in line)
        assert sent(line, "arguments") == ODD
        result = '{"isError":false,"unknown":' + ODD + ',"content":[{"type":"future","text":"x","order":1,"a":2}]}'
        one.print('{"result":' + result + ', "jsonrpc":"2.0", "id":' + json.dumps(request["id"]) + "}\n")
        status, answered = await asking
        assert status == 200
        shown = answered.decode()
        assert sent(shown, "unknown") == ODD
        assert '"content":[{"type":"future","text":"x","order":1,"a":2}]' in shown
        if era == HANDSHAKE:
            assert result in shown


@requirement("hub.call.route")
@pytest.mark.parametrize("era", ERAS)
async def test_an_error_comes_back_as_the_server_gave_it(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller("/mcp", era)
        running = caller.begin("one__hold", {})
        one = await gateway.scripted.comes("one")
        one.refuse(await one.called("hold"), -31234, "no — ünmöglich", data={"why": ["because", 12345678901234567890]})
        error = (await running)["error"]
        assert error["code"] == -31234 and error["message"] == "no — ünmöglich"
        assert error["data"] == {"why": ["because", 12345678901234567890]}


@requirement("hub.call.route")
async def test_a_call_without_arguments_stays_without() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        assert told(await caller.call("one__echo"))["arguments"] is None
        assert told(await caller.call("one__echo", {}))["arguments"] == {}


@requirement("hub.call.route", "wire.fields.kept")
async def test_extra_params_and_meta_reach_the_server_except_the_progress_token() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        await caller.ask(
            "tools/call",
            {
                "name": "one__echo",
                "x-extra": [1],
                "_meta": {"traceparent": "00-1-2-03", "progressToken": "mine", "com.example/x": 1},
            },
        )
        (one,) = gateway.scripted.of("one")
        params = (await one.called("echo"))["params"]
        assert params["x-extra"] == [1]
        meta = params["_meta"]
        assert meta.pop("progressToken") != "mine"
        assert meta == {"traceparent": "00-1-2-03", "com.example/x": 1}


@requirement("hub.call.route", "guard.policy.rules")
async def test_a_call_reaches_the_tool_that_was_judged_whatever_else_it_names() -> None:
    offered = ServerScript(tools=[tool("safe"), tool("one__safe")], resources=[{"uri": "x://y", "name": "y"}])
    rules = {"one__one__safe": "deny"}
    async with start_gateway(lambda scripted: {"one": scripted.server("one", offered)}, permission=rules) as gateway:
        caller = await gateway.old_caller()
        assert failure(await caller.call("one__one__safe")) == "tool-denied"
        for other in ({"uri": "one+x://y"}, {"uri": "x"}, {"ref": {"name": "x"}}, {"tool": "one__safe"}):
            found = await caller.ask("tools/call", {"name": "one__safe", "arguments": {}, **other})
            assert told(found)["tool"] == "safe"
        # The last of two that stand in one place is the one that is judged, and the one that is called.
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__one__safe","name":"one__safe"}}'
        _, answered = await caller.raw(body)
        assert b'\\"tool\\": \\"safe\\"' in answered
        body = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"one__safe","name":"one__one__safe"}}'
        _, answered = await caller.raw(body)
        assert b"tool-denied" in answered
        (one,) = gateway.scripted.of("one")
        assert not one.calls("one__safe")


@requirement("hub.name.unique")
async def test_c12_every_public_name_leads_to_its_own_server_and_tool() -> None:
    names = ["read_file", "Read_File", "rеad_file", "b__c", "../x", "🙂", "__proto__", "x" * 200, "a b"]
    names.append("hub_list_servers")
    servers = ["a", "a__b", "A", "hub", "my server", "é", "constructor"]

    def play() -> ServerScript:
        return ServerScript(
            tools=[*(tool(name) for name in names), tool("c"), tool(""), {"inputSchema": {}}, tool("y" * 2000)]
        )

    # One of the names imitates another with a letter of another script.
    async with start_gateway(
        lambda scripted: {name: scripted.server(name, play()) for name in servers}, settings=UNSCANNED
    ) as gateway:
        for query in ("", "?names=opencode", "?prefix=conflict", "?prefix=never", "?prefix=never&names=opencode"):
            caller = await gateway.caller(f"/mcp{query}")
            listed = [name for name in await caller.tools() if name != "hub_list_servers"]
            assert len(set(listed)) == len(listed) == len(servers) * (len(names) + 1), query
            assert all(len(name) <= 64 for name in listed)
            reached = [told(found) for found in await all_of(caller.call(name) for name in listed)]
            assert len({(one["server"], one["tool"]) for one in reached}) == len(listed)
            assert "servers" in (await caller.call("hub_list_servers"))["result"]["structuredContent"], query


@requirement("hub.name.default", "hub.name.parity")
async def test_names_are_chosen_by_the_address() -> None:
    offered = ServerScript(tools=[tool("create.issue"), tool("x-y")])
    folder = checkout()
    async with start_gateway(lambda scripted: {"git hub": scripted.server("git hub", offered)}, folder) as gateway:
        parity = await gateway.caller("/mcp?names=opencode")
        assert set(await parity.tools()) == {"hub_list_servers", "git_hub_create_issue", "git_hub_x-y"}
        bare = await gateway.caller(view_of(folder, "git hub"))
        assert await bare.tools() == ["create.issue", "x-y"]
        assert told(await bare.call("create.issue"))["tool"] == "create.issue"
        assert told(await parity.call("git_hub_create_issue"))["tool"] == "create.issue"
        for wrong in ("?names=other", "?prefix=sometimes"):
            async with gateway.http.post(gateway.url(f"/mcp{wrong}"), data=b"{}") as answer:
                assert answer.status == 400 and "is one of" in await answer.text()


@requirement("hub.call.route")
async def test_the_error_for_an_unknown_tool_names_only_servers_that_may_own_it() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        noisy = {"command": ["sh", "-c", "echo a secret plan >&2; exit 1"]}
        more = {"off": gateway.scripted.server("off", enabled=False), "bad": {"command": "false"}, "worse": noisy}
        write(gateway.scripted.servers("one") | more)
        caller = await gateway.caller()
        await caller.tools()
        error = (await caller.call("bad__tool"))["error"]
        assert error["code"] == -32602
        assert error["message"].startswith("there is no tool bad__tool: bad is failed (")
        assert "exited with code 1" in error["message"]
        assert not any(word in error["message"] for word in ("one", "off", "worse", "secret"))
        assert (await caller.call("off__x"))["error"]["message"] == "there is no tool off__x: off is disabled"
        assert (await caller.call("nobody__x"))["error"]["message"] == "there is no tool nobody__x"
        # Without a prefix anybody may own it: the output of none of them is shown.
        bare = await gateway.caller("/mcp?prefix=conflict")
        message = (await bare.call("x"))["error"]["message"]
        assert message == "there is no tool x: off is disabled; bad is failed; worse is failed"
        assert gateway.scripted.of("off") == []


@requirement("hub.call.route")
async def test_a17_two_clients_with_the_same_id_get_each_their_own_answer() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        callers = [await gateway.old_caller() for _ in range(3)] + [await gateway.caller() for _ in range(3)]
        running = [caller.begin("one__hold", {"who": who}, id_=1) for who, caller in enumerate(callers)]
        one = await gateway.scripted.comes("one")
        await one.called("hold", 6)
        for request in reversed(one.calls("hold")):
            one.answer(request, text(request["params"]["arguments"]))
        found = await all_of(running)
        assert [told(each)["who"] for each in found] == list(range(6))
        assert {each["id"] for each in found} == {1}


@requirement("hub.call.route")
async def test_a17_an_id_that_is_in_use_is_refused_and_disturbs_nothing() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        running = caller.begin("one__hold", id_=7)
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        assert "error" in await caller.call("one__echo", id_=7)
        one.answer(request, text("mine"))
        assert words(await running) == "mine"
        assert one.calls("echo") == []


@requirement("hub.call.abort")
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_that_leaves_is_free_at_once_and_the_server_is_told(era: str, server_era: str) -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=server_era))}) as gateway:
        caller = await gateway.caller("/mcp", era)
        running = caller.begin("one__hold", id_="x")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        if era == MODERN:
            running.cancel()
        else:
            await caller.cancel("x")
            assert "error" in await running
        cancelled = await one.hears("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]
        # A late answer is nobody's, and the server goes on.
        one.answer(request, text("too late"))
        assert told(await caller.call("one__echo", {"n": 1}))["arguments"] == {"n": 1}


@requirement("hub.call.abort")
async def test_a_caller_that_leaves_while_its_server_starts_does_not_keep_it_from_starting() -> None:
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", ServerScript(held={"initialize"}))}
    ) as gateway:
        first, second = await gateway.caller(), await gateway.caller()
        leaving, staying = first.begin("one__echo"), second.begin("one__echo")
        one: ScriptedServer = await gateway.scripted.comes("one")
        hello = await one.hears("initialize")
        leaving.cancel()
        one.play.held.clear()
        one.answer(hello, one.play.about("one"))
        assert told(await staying)["server"] == "one"
        assert len(gateway.scripted.of("one")) == 1
