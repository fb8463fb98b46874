"""Servers of both eras ask the clients of each as they would directly, and the era probe harms no server."""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.wire.protocol import revisions
from tests.support.gateway.gateway import Gateway, checkout, start_gateway, view_of
from tests.support.gateway.round_trips import QUESTIONS
from tests.support.mcp.caller import HANDSHAKE, MODERN, Caller, Message, open_caller, told, words
from tests.support.mcp.client import PROGRAMS, text
from tests.support.mcp.scripted_server import ServerScript
from tests.support.pypi import fetched
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

HELLO = ["initialize", "notifications/initialized"]
ASKING = ["elicit_now", "sample_now", "roots_now", "elicit_either"]
LOCAL = {"command": [sys.executable, str(PROGRAMS / "sdk_asking.py"), "stdio"]}
# The last SDK that crashes after a request before the handshake, with a release of its time of what it needs.
OLD_SDK = ["mcp==1.8.1", "pydantic<2.12"]


@contextmanager
def asking_at_a_port() -> Generator[str]:
    """Run a server on the SDK over Streamable HTTP, and yield its address."""
    program = [sys.executable, str(PROGRAMS / "sdk_asking.py"), "http"]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


def answer_everything(caller: Caller) -> Caller:
    """Let a client answer every question, during a call too."""

    def answering(method: str) -> Any:
        async def answer(params: Message) -> Message:
            return QUESTIONS[method][1]

        return answer

    caller.answers |= {method: answering(method) for method in QUESTIONS}
    return caller


async def finish(caller: Caller, tool: str) -> tuple[bool, str, list[str]]:
    """Call a tool, and answer its questions in the way of the client's era. Return the outcome and what was asked."""
    params: Message = {"name": tool, "arguments": {}}
    asked: list[str] = []
    found = await caller.ask("tools/call", params)
    while (result := found.get("result", {})).get("resultType") == "input_required":
        questions = result["inputRequests"]
        asked += [one["method"] for one in questions.values()]
        responses = {key: QUESTIONS[one["method"]][1] for key, one in questions.items()}
        more = {"inputResponses": responses} | {key: result[key] for key in ("requestState",) if key in result}
        found = await caller.ask("tools/call", params | more)
    asked += [one["method"] for one in caller.asked]
    caller.asked.clear()
    failed = "error" in found or result.get("isError", False)
    return failed, str(found["error"]) if "error" in found else words(found), asked


async def outcomes(caller: Caller, prefix: str = "") -> dict[str, tuple[bool, str, list[str]]]:
    answer_everything(caller)
    return {tool: await finish(caller, prefix + tool) for tool in ASKING}


@requirement("servers.era.questions")
@pytest.mark.parametrize("kind", ["local", "remote"])
async def test_clients_of_every_revision_are_asked_as_they_would_be_directly(kind: str) -> None:
    """A local server is the same program as the remote one, which clients also call directly."""
    with asking_at_a_port() as url:
        async with start_gateway({"it": LOCAL if kind == "local" else {"url": url}}) as gateway:
            for revision in revisions.ALL:
                async with open_caller(gateway.http, url, revision) as caller:
                    if not caller.modern:
                        await caller.listen()  # some questions come only there
                    direct = await outcomes(caller)
                caller = await gateway.caller("/mcp", revision)
                assert await outcomes(caller, "it__") == direct, revision
                assert not direct["elicit_either"][0] and direct["elicit_either"][2] == ["elicitation/create"]
                # Only the handshake era has questions during a call.
                asks = [asked for _, _, asked in direct.values()]
                able = [["elicitation/create"], ["sampling/createMessage"], ["roots/list"], ["elicitation/create"]]
                assert asks == (able if revision in revisions.HANDSHAKE else [[], [], [], ["elicitation/create"]])


@requirement("servers.era.questions")
async def test_a_local_server_of_both_eras_is_one_process_once_that_is_known() -> None:
    async with start_gateway({"it": LOCAL}) as gateway:
        nobody = await gateway.old_caller(able={})
        asked = answer_everything(await gateway.old_caller())
        first = words(await nobody.call("it__process"))
        assert await finish(asked, "it__sample_now") == (False, "m said no", ["sampling/createMessage"])
        second = words(await asked.call("it__process"))
        assert first != second == words(await asked.call("it__process"))
    async with start_gateway({"it": LOCAL}) as gateway:
        nobody = await gateway.old_caller(able={})
        asked = answer_everything(await gateway.old_caller())
        first = words(await nobody.call("it__process"))
        assert await finish(asked, "it__sample_now") == (False, "m said no", ["sampling/createMessage"])
        assert words(await asked.call("it__process")) == first
        # A modern client that can be asked needs the other era, and one that cannot does not.
        modern = await gateway.caller("/mcp", MODERN)
        assert await finish(modern, "it__elicit_either") == (False, "Hello, Ada", ["elicitation/create"])
        assert words(await modern.call("it__process")) != first
        assert words(await (await gateway.caller("/mcp", MODERN, able={})).call("it__process")) == first
        assert (await gateway.rest("GET", "/api/mcp/it"))[1]["era"] == HANDSHAKE
        # What ends the server ends both.
        server = await gateway.server("it")
        await server.disconnect()
        assert server.client is None and (await gateway.status("it")) == "stopped"
        await server.connect()
        assert await finish(asked, "it__sample_now") == (False, "m said no", ["sampling/createMessage"])


@requirement("servers.era.questions")
async def test_a_server_asks_for_roots_in_a_workspace_although_its_client_has_none() -> None:
    folder = checkout()
    with asking_at_a_port() as url:
        async with start_gateway({"it": {"url": url, "scope": "workspace", "roots": True}}, folder) as gateway:
            caller = await gateway.old_caller(view_of(folder), able={})
            assert words(await caller.call("it__roots_now")) == folder.resolve().as_uri()


@requirement("servers.era.questions")
async def test_a_modern_server_that_refuses_the_handshake_is_still_called() -> None:
    async with start_gateway(lambda scripted: {"one": scripted.server("one", ServerScript(era=MODERN))}) as gateway:
        caller = await gateway.old_caller()
        for number in range(3):
            assert told(await caller.call("one__echo", {"n": number}))["arguments"] == {"n": number}
        # It was asked once, and is not asked with each call; nothing is left of that.
        assert [len(one.all("initialize")) for one in gateway.scripted.of("one")] == [0, 1]
        await gateway.scripted.of("one")[1].has_ended()
        assert await gateway.status("one") == "connected"


async def methods_of(gateway: Gateway) -> list[str]:
    server = await gateway.server("it")
    await server.connect()
    assert server.client is not None
    return text(await server.client.call_tool("told", {}))


@requirement("servers.era.questions")
@pytest.mark.parametrize("how", ["exit", "fatal"])
async def test_a_server_that_does_not_survive_the_probe_is_started_without_it(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at the probe, or at the request after it."""
    monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 1.0)
    program = [sys.executable, str(PROGRAMS / "odd_server.py"), "--discover", how]
    for _ in range(2):
        async with start_gateway({"it": {"command": program}}) as gateway:
            assert (await methods_of(gateway))[:2] == HELLO
        # The era is known now, also to the next daemon: no server is probed again.
        monkeypatch.setattr("rookery.wire.client.connect._probe", None)


@requirement("servers.era.questions")
async def test_a_server_that_the_probe_blocks_is_started_without_it_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 0.5)
    program = [sys.executable, str(PROGRAMS / "odd_server.py"), "--discover", "deaf"]
    async with start_gateway({"it": {"command": program, "timeouts": {"startup": 3}}}) as gateway:
        server = await gateway.server("it")
        with pytest.raises(RookeryError, match="start-up timeout"):
            await server.connect()
        await server.connect()
        assert (await methods_of(gateway))[:2] == HELLO


@requirement("servers.era.questions")
async def test_servers_on_an_old_sdk_work_and_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 3.0)
    library = await asyncio.to_thread(fetched, "mcp-1.8", OLD_SDK)
    program = [sys.executable, str(PROGRAMS / "sdk_old_asking.py")]
    local = {"command": program, "environment": {"PYTHONPATH": str(library)}}
    async with start_gateway({"it": local}) as gateway:
        for revision in (HANDSHAKE, MODERN):
            caller = answer_everything(await gateway.caller("/mcp", revision))
            assert await finish(caller, "it__sample_now") == (False, "m said no", ["sampling/createMessage"])
            assert await finish(caller, "it__roots_now") == (False, "file:///mine", ["roots/list"])
    monkeypatch.setattr("rookery.wire.client.connect._probe", None)
    async with start_gateway({"it": local}) as gateway:
        caller = await gateway.old_caller()
        assert Path(f"/proc/{words(await caller.call('it__process'))}").exists()
