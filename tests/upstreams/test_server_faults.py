"""Servers that die, hang, send wrong data or flood: each fails alone, with a reason, and delays no other."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.upstreams.config.definition import Definition
from rookery.upstreams.connect import Connector
from tests.support.clock import let_pass
from tests.support.daemon.process import alive, wait_dead
from tests.support.gateway.gateway import UNSCANNED, Gateway, start_gateway, write
from tests.support.mcp.caller import ERAS, failure, told, words
from tests.support.mcp.client import PROGRAMS, within_limit
from tests.support.mcp.scripted_server import Message, ServerScript, all_of, text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

ODD = str(PROGRAMS / "odd_server.py")


def odd(*words_: str, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, "-S", ODD, "--discover", "error", *words_], **more}


async def error_of(gateway: Gateway, name: str) -> str:
    """Why a server failed, once somebody has wanted to use it."""
    await (await gateway.caller()).tools()
    error = await gateway.becomes(name, "failed", "backoff")
    assert error is not None
    return error


# ---- connecting


@requirement("hub.pool.parallel", "hub.status.failed", "hub.filter.disconnected")
async def test_servers_that_hang_exit_or_print_garbage_do_not_hide_or_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = Connector.channels

    def or_fail(self: Connector, definition: Definition, *more: Any) -> Any:
        if definition.name == "strange":
            raise ZeroDivisionError("which nobody foresaw")
        return channels(self, definition, *more)

    monkeypatch.setattr(Connector, "channels", or_fail)
    garbage = "import sys\nfor line in sys.stdin: print('<html>no</html>', flush=True)"
    broken = {
        "hangs": odd("--mute"),
        "exits": odd("--exit", "3", "no licence found"),
        "garbage": {"command": [sys.executable, "-S", "-c", garbage]},
        "missing": {"command": "/no/such/program"},
        "strange": {"command": "true"},
    }
    async with start_gateway(lambda scripted: scripted.servers(*"abcdef") | broken, patient=False) as gateway:
        caller = await gateway.old_caller()
        await caller.listen()
        changes = 0
        while {name.split("__")[0] for name in await caller.tools()} != {"hub_list_servers", *"abcdef"}:
            # On a busy machine one of them may be much slower than the others.
            changes += 1
            await caller.hears("notifications/tools/list_changed", changes)
        for name in ("exits", "missing", "strange"):
            await gateway.becomes(name, "failed")
        statuses = {one.name: one for one in await gateway.hub.records(None)}
        assert {statuses[name].status for name in "abcdef"} == {"connected"}
        assert statuses["hangs"].status == statuses["garbage"].status == "pending"
        assert statuses["exits"].status == "failed" and "no licence found" in " ".join(statuses["exits"].stderr)
        assert statuses["exits"].error is not None and "exited with code 3" in statuses["exits"].error
        assert statuses["missing"].status == "failed" and "/no/such/program" in str(statuses["missing"].error)
        assert statuses["strange"].error == "ZeroDivisionError: which nobody foresaw"


@requirement("wire.client.framing")
async def test_a_definition_says_how_a_server_frames_its_messages() -> None:
    framed = ("--framing", "content-length")
    servers = {
        "right": odd(*framed, framing="content-length"),
        "wrong": odd("--banner", "Content-Length: 2\r\n\r\n{}"),
    }
    async with start_gateway(servers) as gateway:
        caller = await gateway.caller()
        assert [name for name in await caller.tools() if "__" in name] == ["right__a", "right__b", "right__c"]
        # Both ways: a call that it knows nothing of is refused by itself.
        assert (await caller.call("right__a", {"x": "ü"}))["error"]["data"] == {"name": "a"}
        error = await gateway.becomes("wrong", "failed")
        assert error is not None and 'Content-Length frames; set framing = "content-length"' in error


@requirement("hub.pool.parallel", "hub.catalog.changed")
async def test_a_server_that_is_much_slower_than_the_others_is_announced_when_it_is_there() -> None:
    slow = ServerScript(held={"initialize"})
    async with start_gateway(patient=False) as gateway:
        write({"fast": gateway.scripted.server("fast"), "slow": gateway.scripted.server("slow", slow)})
        caller = await gateway.old_caller()
        await caller.listen()
        assert "slow__echo" not in await caller.tools()
        server = await gateway.scripted.comes("slow")
        changes = len(caller.all("notifications/tools/list_changed"))
        server.answer(await server.hears("initialize"), slow.about("slow"))
        await caller.hears("notifications/tools/list_changed", changes + 1)
        assert "slow__echo" in await caller.tools()


@requirement("hub.pool.broken")
async def test_d03_a_server_that_exits_at_once_is_not_started_over_and_over() -> None:
    notes = Path.home() / "starts"
    script = f"echo x >> {notes}; echo why >&2; exit 1"
    async with start_gateway({"bad": {"command": ["sh", "-c", script]}}) as gateway:
        callers = [await gateway.caller() for _ in range(10)]
        for _ in range(10):
            await all_of(caller.tools() for caller in callers)
            await all_of(caller.call("bad__x") for caller in callers)
        # One attempt: some servers do not survive a question before the handshake, so that it may take two starts.
        assert len(notes.read_text().split()) <= 2
        assert await gateway.status("bad") == "failed"
        _, found = await gateway.rest("POST", "/api/mcp/bad/connect")
        assert 2 < len(notes.read_text().split()) <= 4
        assert found["status"] == "backoff" and "exited with code 1" in found["error"] and found["stderr"][-1] == "why"
        await all_of(caller.tools() for caller in callers)
        assert len(notes.read_text().split()) <= 4


@requirement("hub.pool.broken")
async def test_a_server_that_was_mended_is_there_as_soon_as_it_is_connected() -> None:
    async with start_gateway() as gateway:
        flag = Path.home() / "mended"
        real = " ".join(gateway.scripted.server("one")["command"])
        write({"one": {"command": ["sh", "-c", f"test -e {flag} && exec {real}"]}})
        caller = await gateway.caller()
        assert await error_of(gateway, "one")
        assert await caller.tools() == ["hub_list_servers"]
        flag.touch()
        assert await caller.tools() == ["hub_list_servers"]
        _, found = await gateway.rest("POST", "/api/mcp/one/connect")
        assert found["status"] == "connected" and found["error"] is None
        assert "one__echo" in await caller.tools()


@requirement("hub.status.failed")
async def test_d02_a_server_that_never_answers_the_handshake_times_out_and_is_stopped() -> None:
    play = ServerScript(held={"initialize", "server/discover"})
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", play, timeouts={"startup": 0.3})}
    ) as gateway:
        error = await error_of(gateway, "one")
        assert "start-up timeout of 0.3 s" in error
        await all_of(one.has_ended() for one in gateway.scripted.all)


# ---- listing


@requirement("hub.status.list-failed", "hub.status.failed")
@pytest.mark.parametrize("era", ERAS)
async def test_a_list_that_fails_closes_the_connection_and_says_why(era: str) -> None:
    play = ServerScript(held={"tools/list"}, era=era)
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        listing = asyncio.create_task(caller.tools())
        one = await gateway.scripted.comes("one")
        one.refuse(await one.hears("tools/list"), -32603, "the database is locked")
        assert await listing == ["hub_list_servers"]
        error = await gateway.becomes("one", "failed")
        assert error is not None and error.startswith("Failed to get tools") and "the database is locked" in error
        await one.has_ended()


@requirement("hub.config.timeout", "hub.status.list-failed")
async def test_a_list_that_takes_too_long_times_out() -> None:
    play = ServerScript(held={"tools/list"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play, timeout=200)}) as gateway:
        error = await error_of(gateway, "one")
        assert error.startswith("Failed to get tools") and "timeout of 0.2 s" in error
        assert await gateway.status("one") == "failed"
        await gateway.scripted.of("one")[0].has_ended()


@requirement("hub.status.list-failed")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("same", "the server returned the cursor '1' twice"),
        ("circle", "twice"),
        ("endless", "more than 1000 pages"),
        ("long", "twice"),
    ],
)
async def test_c14_a_list_that_never_ends_is_an_error(how: str, why: str) -> None:
    def page(params: Message) -> Message:
        cursor: str = params.get("cursor", "0")
        number = int(cursor[:9])
        following = {"same": 1, "circle": (number + 1) % 3, "endless": number + 1, "long": "1" * 1_000_000}[how]
        return {"tools": [tool(f"t{number}")], "nextCursor": str(following)}

    play = ServerScript(replies={"tools/list": page})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play, timeout=60_000)}) as gateway:
        error = await error_of(gateway, "one")
        assert why in error and len(error) < 1_000


async def test_c14_pages_that_come_too_slowly_time_out_all_together() -> None:
    play = ServerScript(held={"tools/list"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play, timeout=5_000)}) as gateway:
        listing = asyncio.create_task(error_of(gateway, "one"))
        one = await gateway.scripted.comes("one")
        pages = 0
        while pages < 3:
            request = await one.hears("tools/list", pages + 1)
            let_pass(2)  # each page within the limit, all of them not
            pages += 1
            one.answer(request, {"tools": [], "nextCursor": str(pages)})
        assert "timeout of 5 s" in await listing


async def test_c14_more_tools_than_anybody_could_use_are_an_error() -> None:
    many = [tool(f"t{number}") for number in range(10_001)]
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(tools=many))}) as gateway:
        error = await error_of(gateway, "one")
        assert error == "Failed to get tools: it lists 10001 tools; the limit is 10000"


async def test_c14_a_tool_that_is_listed_twice_is_there_once_as_it_was_first(caplog: pytest.LogCaptureFixture) -> None:
    twice = ServerScript(tools=[tool("a", description="first"), tool("b"), tool("a", description="second")])
    async with start_gateway(lambda scripted: {"one": scripted.server("one", twice)}) as gateway:
        listed = await (await gateway.caller()).listed("tools")
        assert [one.get("description") for one in listed if one["name"] == "one__a"] == ["first"]
        assert "tools contains 'a' twice" in caplog.text


@requirement("hub.status.failed")
@pytest.mark.parametrize(
    "listed", ['{"tools":{}}', '{"tools":[1]}', '{"tools":[{}]}', "[]", '{"tools":[{"name":7}]}', '{"nextCursor":3}']
)
async def test_a_list_of_nonsense_offers_nothing_and_breaks_nothing(listed: str) -> None:
    play = ServerScript(held={"tools/list"})
    async with start_gateway(
        lambda scripted: {"one": scripted.server("one", play), "two": scripted.server("two")}
    ) as gateway:
        caller = await gateway.caller()
        listing = asyncio.create_task(caller.tools())
        one = await gateway.scripted.comes("one")
        request = await one.hears("tools/list")
        one.print('{"jsonrpc":"2.0","id":' + json.dumps(request["id"]) + ',"result":' + listed + "}\n")
        assert set(await listing) == {"hub_list_servers", "two__echo", "two__hold"}
        assert told(await caller.call("two__echo"))["server"] == "two"


# ---- death


@requirement("hub.call.hang")
@pytest.mark.parametrize("era", ERAS)
async def test_d01_a_server_killed_under_a_call_fails_it_at_once_and_others_go_on(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        caller = await gateway.caller("/mcp", era)
        running, other = caller.begin("one__hold"), caller.begin("two__hold")
        one, two = await gateway.scripted.comes("one"), await gateway.scripted.comes("two")
        await one.called("hold")
        waiting = await two.called("hold")
        os.kill(one.pid, signal.SIGKILL)
        found = await within_limit(running)  # and not when the time of the call is over
        assert failure(found) == "upstream-failed"
        assert 'MCP server "one"' in words(found) and "killed by SIGKILL" in words(found)
        two.answer(waiting, text("still here"))
        assert words(await other) == "still here"
        assert len(gateway.scripted.of("two")) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_d01_a_server_that_crashes_is_restarted_and_its_tools_stay_listed(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller("/mcp", era)
        await caller.listen()
        await caller.tools()
        await caller.hears("notifications/tools/list_changed")
        first = told(await caller.call("one__echo"))["pid"]
        gateway.scripted.plays["one"] = ServerScript(held={"initialize"})
        os.kill(first, signal.SIGKILL)
        second = await gateway.scripted.comes("one", 2)
        request = await second.hears("initialize")
        # It is being restarted: its tools are listed, and a call waits.
        assert await gateway.status("one") == "pending"
        assert "one__echo" in await caller.tools()
        running = caller.begin("one__echo")
        second.answer(request, ServerScript().about("one"))
        assert told(await running)["pid"] == second.pid
        assert len(caller.all("notifications/tools/list_changed")) == 1
        failed = [event["error"] for event in gateway.events.of("mcp.status") if event["status"] == "failed"]
        assert len(failed) == 1 and "killed by SIGKILL" in failed[0]
        assert any("was started again" in line for line in (await gateway.server("one")).diagnosis())
        # One that crashes again soon after that is left alone, and hidden.
        del gateway.scripted.plays["one"]
        await gateway.crash("one")
        assert "one__echo" not in await caller.tools()


@requirement("hub.call.hang", "hub.filter.disconnected", "hub.catalog.changed")
async def test_d01_a_server_killed_while_idle_is_hidden_and_can_be_started_again() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        await caller.tools()
        await caller.listen()
        os.kill((await gateway.scripted.comes("one")).pid, signal.SIGKILL)
        await caller.hears("notifications/tools/list_changed")
        assert await gateway.becomes("one", "failed")
        assert await caller.tools() == ["hub_list_servers"]
        # It had not lived for long, so that it is left alone for a moment; whoever does not want to wait, connects.
        error = (await caller.call("one__echo"))["error"]
        assert "one is failed" in error["message"]
        await gateway.rest("POST", "/api/mcp/one/connect")
        assert told(await caller.call("one__echo"))["pid"] == (await gateway.scripted.comes("one", 2)).pid


@requirement("hub.call.hang")
async def test_d02_a_call_to_a_suspended_server_times_out_and_is_cancelled_on_resume() -> None:
    limit = {"timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limit) | scripted.servers("two")) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        os.kill(one.pid, signal.SIGSTOP)
        let_pass(5)
        try:
            found = await running
            assert failure(found) == "timeout" and "execution timeout of 5 s" in words(found)
            assert told(await caller.call("two__echo"))["server"] == "two"
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert told(await caller.call("one__echo"))["pid"] == one.pid


@requirement("hub.call.hang", "hub.status.failed")
async def test_d02_a_stuck_server_is_detected_after_a_timeout_and_can_be_restarted() -> None:
    limit = {"timeouts": {"execution": 5, "catalog": 3}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limit)) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        await one.called("hold")
        os.kill(one.pid, signal.SIGSTOP)
        let_pass(5)
        assert failure(await running) == "timeout"
        assert "it is stuck" in str(await gateway.becomes("one", "failed"))
        await asyncio.to_thread(wait_dead, one.pid)
        await gateway.rest("POST", "/api/mcp/one/connect")
        assert told(await caller.call("one__echo"))["pid"] == (await gateway.scripted.comes("one", 2)).pid


@requirement("hub.call.hang")
async def test_d02_a_server_that_only_takes_long_is_left_alone() -> None:
    limit = {"timeouts": {"execution": 5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limit)) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        await one.called("hold")
        let_pass(5)
        assert failure(await running) == "timeout"
        await one.hears("ping")
        assert told(await caller.call("one__echo"))["pid"] == one.pid
        assert await gateway.status("one") == "connected"


@requirement("hub.call.hang")
async def test_d21_a_server_that_does_not_read_holds_up_nobody_else() -> None:
    limit = {"timeouts": {"execution": 0.5}}
    async with start_gateway(lambda scripted: scripted.servers("one", **limit) | scripted.servers("two")) as gateway:
        caller = await gateway.caller()
        await caller.tools()
        one = await gateway.scripted.comes("one")
        os.kill(one.pid, signal.SIGSTOP)
        try:
            running = [caller.begin("one__echo", {"much": "x" * 900_000}) for _ in range(5)]
            assert told(await caller.call("two__echo"))["server"] == "two"
            assert {failure(found) for found in await all_of(running)} == {"timeout"}
        finally:
            os.kill(one.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["plain", "holds"])
async def test_d05_processes_that_a_server_made_end_with_it(how: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        await (await gateway.caller()).tools()
        one = await gateway.scripted.comes("one")
        one.order(make=how)
        one.order(make=how)
        made = await one.has_made(2)
        _, found = await gateway.rest("POST", "/api/mcp/one/disconnect")
        assert found["status"] == "stopped"
        assert not [pid for pid in (one.pid, *made) if alive(pid)]


@requirement("hub.call.hang")
async def test_d06_the_death_of_a_server_is_noticed_while_another_process_holds_its_output() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        await one.called("hold")
        one.order(make="holds")
        (left,) = await one.has_made(1)
        os.kill(one.pid, signal.SIGKILL)
        assert failure(await running) == "upstream-failed"
        await asyncio.to_thread(wait_dead, left)


# ---- what it says


@requirement("hub.child.stderr")
async def test_c22_what_is_written_to_stderr_is_drained_kept_in_part_shown_and_no_failure() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        await caller.tools()
        one = await gateway.scripted.comes("one")
        one.print("error: FATAL! " * 70_000 + "\n", times=200, fd=2)
        one.print("the last line\n", fd=2)
        assert told(await caller.call("one__echo"))["server"] == "one"
        _, found = await gateway.rest("GET", "/api/mcp/one")
        assert found["status"] == "connected" and found["error"] is None
        assert found["stderr"][-1] == "the last line"
        assert len(json.dumps(found)) < 1_000_000


async def test_c19_an_endless_result_fails_with_a_typed_error_and_the_next_call_works() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        head = '{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"'
        one.print(head % request["id"])
        one.print("x" * 1_000_000, times=200)
        found = await running
        assert failure(found) == "upstream-failed" and "longer than 67108864 bytes" in words(found)
        assert told(await caller.call("two__echo"))["server"] == "two"
        await one.has_ended()
        await gateway.rest("POST", "/api/mcp/one/connect")
        assert told(await caller.call("one__echo"))["server"] == "one"


async def test_c19_control_characters_pass_unchanged_for_programs() -> None:
    odd_text = "\x1b[31mred\x1b[0m \u202e\u2066 \U000e0041\U000e0042 \x00\x07"
    play = ServerScript(tools=[tool("odd", description=odd_text)], results={"odd": text(odd_text)})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}, settings=UNSCANNED) as gateway:
        caller = await gateway.caller()
        assert (await caller.listed("tools"))[-1]["description"] == odd_text
        assert words(await caller.call("one__odd")) == odd_text


@requirement("wire.client.survives")
async def test_c20_answers_that_nobody_waits_for_are_nobodys_and_counted() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        for number in (request["id"] + 1, str(request["id"]), -1, "x", None, True, 1.5, [1]):
            one.say({"id": number, "result": text("not yours")})
        one.say({"result": text("without an id")}, {"id": request["id"]}, {"method": 7}, {})
        one.answer(request, text("yours"))
        one.answer(request, text("twice"))
        assert words(await running) == "yours"
        assert told(await caller.call("one__echo", {"n": 1}))["arguments"] == {"n": 1}
        _, found = await gateway.rest("GET", "/api/mcp/one")
        assert "it sent 5 unexpected messages: late, duplicate or unsolicited" in found["diagnosis"]


async def test_c20_a_question_outside_of_any_call_is_answered_by_nobody_but_for_the_roots() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.old_caller()
        await caller.tools()
        await caller.listen()
        one = await gateway.scripted.comes("one")
        questions = ("roots/list", "sampling/createMessage", "elicitation/create", "tools/call", "x")
        for number, method in enumerate(questions):
            one.say({"id": f"q{number}", "method": method, "params": {}})
        await one.hears(None, len(questions))
        answers = {answer["id"]: answer for answer in one.all(None)}
        # It works for no workspace, and servers take a root for leave to use it.
        assert answers["q0"]["result"] == {"roots": []}
        assert all("error" in answers[f"q{number}"] for number in range(1, len(questions)))
        assert caller.asked == []


@requirement("wire.client.survives")
async def test_c21_noise_between_messages_is_skipped_and_named() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text("clean")})
        one.print("Welcome!\r\n\n\r\n[1,2\n{}\nnull\n\udcff\udcfe\n")
        one.print("\ufeff" + answer[:20])
        one.print(answer[20:] + "\r\n")
        assert words(await running) == "clean"
        _, found = await gateway.rest("GET", "/api/mcp/one")
        assert found["status"] == "connected"
        named = ["'Welcome!", "'[1,2'", "'{}'", "'null'"]
        assert all(any(f"it printed {line}" in told for told in found["diagnosis"]) for line in named), found
        # What is known of it stays known when it is gone.
        await gateway.rest("POST", "/api/mcp/one/disconnect")
        assert (await gateway.rest("GET", "/api/mcp/one"))[1]["diagnosis"] == found["diagnosis"]
