"""One server of the pool, between its states."""

import asyncio
import json
import os
import random
import signal
import sys

import pytest

from tests.support.clock import let_pass
from tests.support.gateway.gateway import UNPINNED, start_gateway, write
from tests.support.mcp.caller import ERAS, failure, told, words
from tests.support.mcp.client import within_limit
from tests.support.mcp.scripted_server import Message, ServerScript, all_of, text, tool
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = pytest.mark.anyio


async def test_a_list_that_waits_for_a_server_which_is_taken_away_is_answered() -> None:
    play = ServerScript(held={"initialize"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        listing = asyncio.create_task(caller.tools())
        await (await gateway.scripted.comes("one")).hears("initialize")
        write({})
        assert await listing == ["hub_list_servers"]
        assert await gateway.hub.records(None) == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_to_a_server_that_is_taken_away_fails_typed(era: str) -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        caller = await gateway.caller("/mcp", era)
        running, other = caller.begin("one__hold"), caller.begin("two__hold")
        one, two = await gateway.scripted.comes("one"), await gateway.scripted.comes("two")
        await one.called("hold")
        request = await two.called("hold")
        write(gateway.scripted.servers("two"))
        found = await running
        assert failure(found) == "upstream-failed" and "closed" in words(found)
        await one.has_ended()
        two.answer(request, text("untouched"))
        assert words(await other) == "untouched"


async def test_a_call_that_waits_for_a_server_which_is_disconnected_fails_typed() -> None:
    play = ServerScript(held={"initialize"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        running = caller.begin("one__echo")
        one = await gateway.scripted.comes("one")
        await one.hears("initialize")
        status, _ = await gateway.rest("POST", "/api/mcp/one/disconnect")
        assert status == 200
        assert "error" in await running
        await one.has_ended()
        assert await gateway.status("one") == "stopped"


async def test_queued_calls_do_not_restart_a_server_that_was_disconnected() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one", calls=1, queue=3)) as gateway:
        caller = await gateway.caller()
        first = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        await one.called("hold")
        server = await gateway.server("one")
        # One is too many: once it has been refused, the others are there.
        begun = [caller.begin("one__echo") for _ in range(4)]
        refused, waiting = await asyncio.wait(begun, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [failure(one.result()) for one in refused] == ["server-busy"]
        assert server.limiter.waiting == 3
        await gateway.rest("POST", "/api/mcp/one/disconnect")
        assert failure(await first) == "upstream-failed"
        assert [failure(found) for found in await all_of(waiting)] == ["server-unavailable"] * 3
        assert await gateway.status("one") == "stopped"
        assert gateway.scripted.of("one") == [one]


SECRET = "sk-0123456789abcdef"


@requirement("hub.status.failed")
async def test_c17_what_a_server_was_given_is_in_no_error_no_event_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    program = "import os, sys; sys.stderr.write('bad token ' + os.environ['KEY']); sys.stderr.flush(); sys.exit(3)"
    bad = {"command": [sys.executable, "-c", program], "environment": {"KEY": SECRET}}
    play = ServerScript(resources=[{"uri": "a:b", "name": "b"}], held={"resources/list"})
    async with start_gateway(
        lambda scripted: {"bad": bad, "one": scripted.server("one", play, environment={"KEY": SECRET})}
    ) as gateway:
        caller = await gateway.caller()
        listing = asyncio.create_task(caller.tools())
        one = await gateway.scripted.comes("one")
        one.refuse(await one.hears("resources/list"), -1, f"not with {SECRET}")
        await listing
        running = caller.begin("one__hold")
        await one.called("hold")
        one.print(f"now I die, with {SECRET}\n", fd=2)
        one.say({"id": "q", "method": "what/else"})
        await one.hears(None)
        os.kill(one.pid, signal.SIGKILL)
        told_of = [await running, await caller.call("bad__echo"), await caller.call("one__echo")]
        told_of += [await gateway.rest("POST", f"/api/mcp/{name}/connect") for name in ("bad", "one")]
        told_of += [await gateway.rest("GET", path) for path in ("/api/mcp", "/api/tools?server=bad")]
        seen = json.dumps([told_of, [event.data for event in gateway.events.all]])
        assert "bad token [secret]" in seen and SECRET not in seen
        assert "not with [secret]" in caplog.text and SECRET not in caplog.text


@requirement("hub.call.abort")
async def test_a_session_that_ends_cancels_its_calls_at_the_server() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller, other = await gateway.old_caller(), await gateway.old_caller()
        running = caller.begin("one__hold")
        one = await gateway.scripted.comes("one")
        request = await one.called("hold")
        staying = other.begin("one__hold")
        second = await one.called("hold", 2)
        await caller.close()
        assert (await one.hears("notifications/cancelled"))["params"]["requestId"] == request["id"]
        assert "error" in await running
        one.answer(second, text("mine"))
        assert words(await staying) == "mine"
        assert len(one.all("notifications/cancelled")) == 1


@requirement("hub.pool.parallel")
async def test_lists_that_hang_do_not_add_up_and_do_not_hide_the_tools() -> None:
    hanging = {"prompts/list", "resources/list", "resources/templates/list"}
    play = ServerScript(prompts=[{"name": "p"}], resources=[{"uri": "x://y", "name": "y"}], held=hanging)
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play, timeout=5_000)}) as gateway:
        caller = await gateway.caller()
        listing = asyncio.create_task(caller.tools())
        one = await gateway.scripted.comes("one")
        for method in ("tools/list", *hanging):
            await one.hears(method)
        assert one.all("notifications/cancelled") == []
        one.say({"id": "p", "method": "ping"})  # answered after the list of tools was taken
        await one.hears(None)
        let_pass(5)
        assert "one__echo" in await listing
        assert await gateway.status("one") == "connected"
        assert await caller.listed_of_servers("prompts") == []


async def test_a_server_that_declares_logs_and_never_answers_about_them_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.upstreams.connect._LOG_SECONDS", 3_600.0)
    play = ServerScript(held={"logging/setLevel"})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        assert told(await within_limit(caller.call("one__echo")))["server"] == "one"


async def test_a_server_that_offers_nothing_that_it_declared_is_of_use_all_the_same() -> None:
    play = ServerScript(more={"prompts": {}, "resources": {}, "tasks": {}, "x-future": {}})
    play.replies = {"prompts/list": lambda params: {"prompts": 7}, "resources/list": lambda params: None}
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}) as gateway:
        caller = await gateway.caller()
        assert "one__echo" in await caller.tools()
        assert await caller.listed_of_servers("resources") == []
        assert told(await caller.call("one__echo"))["server"] == "one"


@requirement("hub.catalog.cached")
async def test_a_list_is_kept_as_long_as_its_server_lets_it_and_no_longer() -> None:
    offered: list[Message] = [tool("first")]
    life = {"ttlMs": 60_000}

    def listed(params: Message) -> Message:
        return {"tools": list(offered), **life}

    play = ServerScript(replies={"tools/list": listed}, more={"tools": {}})
    async with start_gateway(lambda scripted: {"one": scripted.server("one", play)}, settings=UNPINNED) as gateway:
        caller = await gateway.caller()
        for _ in range(3):
            assert "one__first" in await caller.tools()
        (one,) = gateway.scripted.of("one")
        assert len(one.all("tools/list")) == 1
        life["ttlMs"] = 0
        await gateway.rest("POST", "/api/mcp/one/disconnect")
        await gateway.rest("POST", "/api/mcp/one/connect")
        offered[:] = [tool("second")]
        listed_now = await caller.tools()
        assert "one__second" in listed_now and "one__first" not in listed_now


@soak
@requirement("hub.call.abort")
async def test_d18_calls_cancelled_at_whatever_moment_leave_nothing_behind() -> None:
    chance = random.Random(18)
    async with start_gateway(lambda scripted: scripted.servers("one", calls=4, queue=500, idle=0)) as gateway:
        callers = [await gateway.caller() for _ in range(4)] + [await gateway.old_caller() for _ in range(4)]

        async def one_call() -> None:
            running = chance.choice(callers).begin("one__echo", {"n": 1})
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        for _ in range(repetitions(5, 25)):
            await all_of(one_call() for _ in range(40))
        await all_of(caller.call("one__echo") for caller in callers)
        server = await gateway.server("one")
        assert server.limiter.running == server.limiter.waiting == 0
        assert len(gateway.scripted.of("one")) == 1


@soak
@requirement("hub.pool.lazy", "hub.pool.dispose")
async def test_d18_starts_and_stops_at_whatever_moment_leave_no_process() -> None:
    chance = random.Random(7)
    async with start_gateway(lambda scripted: scripted.servers("one", "two")) as gateway:
        caller = await gateway.caller()

        async def disturb() -> None:
            for _ in range(repetitions(6, 60)):
                name = chance.choice(["one", "two"])
                await gateway.rest("POST", f"/api/mcp/{name}/{chance.choice(['connect', 'disconnect'])}")

        async def use() -> None:
            for _ in range(repetitions(6, 60)):
                await caller.tools()
                await caller.call(f"{chance.choice(['one', 'two'])}__echo")

        await all_of([disturb(), disturb(), use(), use()])
        for name in ("one", "two"):
            await gateway.rest("POST", f"/api/mcp/{name}/connect")
            assert told(await caller.call(f"{name}__echo"))["server"] == name
        for name in ("one", "two"):
            living = [one for one in gateway.scripted.of(name) if not one.ended]
            await all_of(one.has_ended() for one in living[:-1])
            os.kill(living[-1].pid, signal.SIGCONT)


@requirement("hub.status.failed")
async def test_a_server_that_dies_again_and_again_is_left_alone() -> None:
    async with start_gateway(lambda scripted: scripted.servers("one")) as gateway:
        caller = await gateway.caller()
        await caller.tools()
        for count in range(1, 4):
            os.kill((await gateway.scripted.comes("one", count)).pid, signal.SIGKILL)
            error = await gateway.becomes("one", "failed", "backoff")
            assert error is not None and "SIGKILL" in error
            assert "error" in await caller.call("one__echo")
            if count < 3:
                await gateway.rest("POST", "/api/mcp/one/connect")
        assert await gateway.status("one") == "backoff"
        message = (await caller.call("one__echo"))["error"]["message"]
        assert "one is backoff" in message
        assert len(gateway.scripted.of("one")) == 3
