"""The timeouts of our client, and what is left when a server or the client ends."""

import asyncio
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.client.client import Timeouts
from rookery.wire.protocol.messages import WireError
from tests.support.daemon.process import wait_dead
from tests.support.mcp.client import LIMIT, CallRecorder, ConnectedClient, connect, odd, read, text, within_limit
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

SHORT = 0.3


async def call(met: ConnectedClient, name: str, **arguments: Any) -> Any:
    return text(await within_limit(met.client.call_tool(name, arguments)))


# ---- the end of a server


@requirement("wire.client.survives")
async def test_a_server_that_ends_at_once_is_told_with_its_code_and_last_words() -> None:
    with pytest.raises(RookeryError) as caught:
        async with connect(odd("--exit", "3", "TOKEN is not set")):
            pass
    assert "exited with code 3" in caught.value.message
    assert "TOKEN is not set" in caught.value.message


@requirement("wire.client.survives")
async def test_a_server_that_ends_during_calls_ends_them_all_with_its_last_words() -> None:
    async with connect(odd(), known="handshake") as met:
        hanging = asyncio.create_task(met.client.call_tool("hang", {}))
        await met.heard.wait_for("notifications/begun")
        with pytest.raises(RookeryError) as caught:
            await call(met, "die", code=4)
        with pytest.raises(RookeryError, match="exited with code 4"):
            await within_limit(hanging)
        with pytest.raises(RookeryError, match="exited with code 4"):
            await call(met, "echo")
        assert (caught.value.code, "something is very wrong" in caught.value.message) == ("upstream-failed", True)


async def test_an_answer_that_is_a_servers_last_word_arrives() -> None:
    for _ in range(3):
        async with connect(odd(), known="handshake") as met:
            assert await call(met, "answer-and-die") == "last words"


@requirement("wire.client.survives")
async def test_a_server_that_closes_its_output_and_lives_on_is_told_so() -> None:
    async with connect(odd(), known="handshake") as met:
        with pytest.raises(RookeryError, match="closed its output"):
            await call(met, "deaf")


async def test_a_program_that_does_not_exist_is_named() -> None:
    channel = odd()
    object.__setattr__(channel.program, "argv", ["/no/such/program"])
    with pytest.raises(RookeryError, match="/no/such/program was not found"):
        async with connect(channel):
            pass


async def test_what_a_server_started_is_gone_after_close() -> None:
    async with connect(odd(), known="handshake") as met:
        pids = await call(met, "grandchildren")
    assert len(pids) == 2
    for pid in pids:
        wait_dead(pid)


async def test_closing_ends_the_calls_that_run_and_later_ones_are_refused() -> None:
    async with connect(odd(), known="handshake") as met:
        hanging = asyncio.create_task(met.client.call_tool("hang", {}))
        await met.heard.wait_for("notifications/begun")
        await within_limit(met.client.close())
        with pytest.raises(RookeryError, match="closed"):
            await within_limit(hanging)
        with pytest.raises(RookeryError, match="closed"):
            await call(met, "echo")


# ---- time-outs and lists


@requirement("wire.client.timeouts")
async def test_a_server_that_never_answers_is_given_up_by_the_start_up_time_out() -> None:
    limits = Timeouts(startup=SHORT, catalog=LIMIT, execution=LIMIT)
    with pytest.raises(RookeryError, match=r"start-up timeout of 0\.3 s") as caught:
        async with connect(odd("--mute", "--banner", "hello"), timeouts=limits):
            pass
    assert caught.value.code == "timeout"


@requirement("wire.client.timeouts")
async def test_a_list_that_never_comes_is_given_up_by_the_catalog_time_out() -> None:
    limits = Timeouts(startup=LIMIT, catalog=SHORT, execution=LIMIT)
    async with connect(odd("--list", "silent"), timeouts=limits, known="handshake") as met:
        with pytest.raises(RookeryError, match=r"tools/list: .*catalog timeout of 0\.3 s"):
            await within_limit(met.client.list_all("tools/list", "tools"))
        assert await call(met, "echo", a=1) == {"a": 1}


@requirement("wire.client.timeouts", "wire.cancel.progress")
async def test_a_call_that_never_ends_is_given_up_by_the_execution_time_out_and_cancelled() -> None:
    limits = Timeouts(startup=LIMIT, catalog=LIMIT, execution=SHORT)
    async with connect(odd(), timeouts=limits, known="handshake") as met:
        with pytest.raises(RookeryError, match=r"tools/call: .*execution timeout of 0\.3 s"):
            await within_limit(met.client.call_tool("hang", {}))
        assert (await met.heard.wait_for("notifications/heard-cancel"))["reason"] == "execution timeout"


@requirement("wire.client.timeouts", "wire.cancel.progress")
async def test_each_progress_gives_a_call_its_whole_time_again() -> None:
    async with connect(odd(), known="handshake") as met:
        ends: list[float] = []
        progressed = asyncio.Event()

        def told() -> None:
            (running,) = met.client.in_flight.requests.values()
            ends.append(running.due)
            progressed.set()

        calling = asyncio.create_task(met.client.call_tool("progress", {}, CallRecorder(progressed=told)))
        await met.heard.wait_for("notifications/begun")
        (running,) = met.client.in_flight.requests.values()
        for _ in range(3):
            # As if its time had almost run out.
            running.set_limit(LIMIT / 2)
            progressed.clear()
            asked = asyncio.get_running_loop().time()
            await met.client.notify("notifications/step", {})
            await within_limit(progressed.wait())
            assert ends[-1] >= asked + LIMIT
        await met.client.notify("notifications/finish", {})
        assert text(await within_limit(calling)) == "finished"


@requirement("wire.client.survives")
@pytest.mark.parametrize(
    ("kind", "error"), [("loop", "the server returned the cursor '1' twice"), ("endless", "more than 1000 pages")]
)
async def test_a_list_without_an_end_is_an_error(kind: str, error: str) -> None:
    async with connect(odd("--list", kind), known="handshake") as met:
        with pytest.raises(RookeryError, match=error):
            await within_limit(met.client.list_all("tools/list", "tools"))
        assert await call(met, "echo", a=1) == {"a": 1}


async def test_a_list_in_pages_comes_whole_and_in_order() -> None:
    async with connect(odd("--list", "pages"), known="handshake") as met:
        tools = await within_limit(met.client.list_all("tools/list", "tools"))
        assert [read(tool)["name"] for tool in tools] == ["a", "b", "c"]


async def test_an_error_answer_comes_as_it_was_said() -> None:
    async with connect(odd(), known="handshake") as met:
        with pytest.raises(WireError, match="unknown tool nope") as caught:
            await call(met, "nope")
        assert (caught.value.code, caught.value.data) == (-32602, {"name": "nope"})
