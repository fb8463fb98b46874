"""The official SDK as the server: all its features work with our client, in both eras, on each transport."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.client.http import HttpTransport, SseTransport
from rookery.wire.client.stdio import StdioTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import RequestId, Response, WireError
from tests.support.mcp.client import PROGRAMS, CallRecorder, ConnectedClient, connect, program, read, within_limit
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("wire.interop.peers")]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The SDK's server over HTTP."""
    argv = [sys.executable, "-P", PROGRAMS / "sdk_server.py", "http"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def local(*words: str, revision: str = "") -> StdioTransport:
    """With a `revision` the server speaks no newer one."""
    env = {"SDK_REVISION": revision} if revision else {}
    return StdioTransport(Spawner(new_id()), program("sdk_server.py", "stdio", *words, env=env))


@asynccontextmanager
async def remote(port: int, way: str) -> AsyncGenerator[ConnectedClient]:
    """`way` is an era over Streamable HTTP, or sse."""
    async with HttpClient() as http:
        channel, older = HttpTransport(http, f"http://127.0.0.1:{port}/mcp"), None
        if way == "sse":
            url = f"http://127.0.0.1:{port}/sse"
            channel, older = HttpTransport(http, url), SseTransport(http, url)
        async with connect(channel, older=older, known="handshake" if way == "handshake" else None) as met:
            yield met


async def call(met: ConnectedClient, name: str, **arguments: Any) -> Any:
    return read(await within_limit(met.client.call_tool(name, arguments)))


async def said(met: ConnectedClient, name: str, **arguments: Any) -> str:
    found = await call(met, name, **arguments)
    assert not found.get("isError"), found
    return found["content"][0]["text"]


async def value(met: ConnectedClient, name: str, **arguments: Any) -> Any:
    """What a tool returned: structured where the revision has that, or else as text."""
    found = await call(met, name, **arguments)
    told = json.loads(found["content"][0]["text"])
    if met.client.revision >= "2025-06-18":
        assert found["structuredContent"] in (told, {"result": told})
    return told


# ---- what is checked everywhere


async def it_says_who_it_is(met: ConnectedClient) -> None:
    assert met.client.info["name"] == "peer"
    assert met.client.info["version"] == "4.5.6"
    assert met.client.instructions == "A peer on the official SDK."
    assert {"tools", "resources", "prompts"} <= met.client.capabilities.keys()


async def lists_come_whole(met: ConnectedClient) -> None:
    tools = [read(one) for one in await within_limit(met.client.list_all("tools/list", "tools"))]
    assert [tool["name"] for tool in tools][:4] == ["echo", "add", "structured", "unicode"]
    assert len({tool["name"] for tool in tools}) == len(tools) == 11
    assert tools[1]["inputSchema"]["required"] == ["a", "b"]
    prompts = [read(one) for one in await within_limit(met.client.list_all("prompts/list", "prompts"))]
    assert [prompt["name"] for prompt in prompts] == ["greet", "plain"]
    resources = [read(one) for one in await within_limit(met.client.list_all("resources/list", "resources"))]
    assert {one["uri"] for one in resources} == {"note://one", "note://bytes"}
    templates = await within_limit(met.client.list_all("resources/templates/list", "resourceTemplates"))
    assert [read(one)["uriTemplate"] for one in templates] == ["note://{name}/text"]


async def calls_give_what_they_should(met: ConnectedClient) -> None:
    assert await said(met, "echo", text="x" * 1_000_000) == "x" * 1_000_000
    assert await value(met, "add", a=2, b=3) == 5
    assert await value(met, "structured") == {"x": 1, "y": 2.5}
    assert await said(met, "unicode") == 'ü 😀 \u2028 \x7f \\ " \n end'
    assert await asyncio.gather(*(value(met, "add", a=n, b=n) for n in range(30))) == [2 * n for n in range(30)]


async def errors_are_told_as_errors(met: ConnectedClient) -> None:
    failed = await call(met, "fail")
    assert failed["isError"] is True
    assert "this went wrong" in failed["content"][0]["text"]
    bad = await call(met, "add", a="many", b=1)
    assert bad["isError"] is True
    try:
        unknown = await call(met, "no-such-tool")
    except WireError as error:
        assert "no-such-tool" in error.message
    else:
        assert unknown["isError"] is True
    with pytest.raises(WireError):
        await within_limit(met.client.call("resources/read", {"uri": "note://nowhere"}))
    with pytest.raises(WireError):
        await within_limit(met.client.call("prompts/get", {"name": "nobody"}))


async def resources_and_prompts_are_read(met: ConnectedClient) -> None:
    found = read(await within_limit(met.client.call("resources/read", {"uri": "note://one"})))
    assert found["contents"][0]["text"] == "a note"
    found = read(await within_limit(met.client.call("resources/read", {"uri": "note://bytes"})))
    assert found["contents"][0]["blob"] == "AAEC"
    found = read(await within_limit(met.client.call("resources/read", {"uri": "note://Ada/text"})))
    assert found["contents"][0]["text"] == "the note of Ada"
    found = read(await within_limit(met.client.call("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})))
    assert found["messages"][0]["content"]["text"] == "Greet Ada."


async def progress_is_told_in_order(met: ConnectedClient) -> None:
    ear = CallRecorder()
    result = await within_limit(met.client.call_tool("progress", {"steps": 20}, ear))
    assert read(result)["content"][0]["text"] == "done"
    assert [int(bytes(params["progress"]).partition(b".")[0]) for params in ear.progress] == list(range(1, 21))
    if met.client.revision >= "2025-03-26":  # before that progress had no words
        assert read(ear.progress[0]["message"]) == "step 1"


async def log_messages_arrive(met: ConnectedClient) -> None:
    assert await said(met, "log") == "logged"
    if not met.client.modern:  # there the server must be asked for them
        assert (await met.heard.wait_for("notifications/message"))["data"] == "something happened"


async def questions_are_answered(met: ConnectedClient) -> None:
    if met.client.revision >= "2025-06-18":  # before that there was no elicitation
        assert await said(met, "elicit") == "Hello, Ada"
    assert await said(met, "sample") == "test said a poem"


async def a_cancellation_reaches_the_tool(met: ConnectedClient) -> None:
    begun = asyncio.Event()
    calling = asyncio.create_task(met.client.call_tool("slow", {}, CallRecorder(progressed=begun.set)))
    await within_limit(begun.wait())
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within_limit(calling)
    assert await value(met, "was_cancelled") is True
    assert await said(met, "echo", text="still here") == "still here"


CHECKS: list[Callable[[ConnectedClient], Awaitable[None]]] = [
    it_says_who_it_is,
    lists_come_whole,
    calls_give_what_they_should,
    errors_are_told_as_errors,
    resources_and_prompts_are_read,
    progress_is_told_in_order,
    log_messages_arrive,
    questions_are_answered,
    a_cancellation_reaches_the_tool,
]


# ---- where it is checked


@requirement("wire.client.stdio", "wire.client.era", "wire.cancel.progress")
@pytest.mark.parametrize("revision", revisions.ALL)
async def test_over_stdio_everything_works_in_every_revision(revision: str) -> None:
    known = "handshake" if revision in revisions.HANDSHAKE else None
    async with connect(local(revision=revision if known else ""), known=known) as met:
        assert (met.era, met.client.revision) == (known or "modern", revision)
        for check in CHECKS:
            await check(met)
        assert met.client.strays == 0


@requirement("wire.client.fallback", "wire.client.era", "wire.cancel.progress")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("way", "revision"), [("modern", "2026-07-28"), ("handshake", "2025-11-25"), ("sse", "2025-11-25")]
)
async def test_over_http_and_sse_everything_works(
    port: int, way: str, revision: str, check: Callable[[ConnectedClient], Awaitable[None]]
) -> None:
    async with remote(port, way) as met:
        assert (met.era, met.client.revision) == (way, revision)
        await check(met)
        assert met.client.strays == 0


@requirement("wire.client.era")
async def test_a_modern_server_that_starts_slower_than_we_ask_is_recognised_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 0.2)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    channel = local(str(gate))
    request = channel.request

    async def opens_the_gate(id_: RequestId, message: bytes, headers: Any) -> Response:
        if b'"initialize"' in message:
            monkeypatch.setattr("rookery.wire.client.connect._PROBE_SECONDS", 20.0)
            await asyncio.to_thread(gate.write_bytes, b"")
        return await request(id_, message, headers)

    monkeypatch.setattr(channel, "request", opens_the_gate)
    async with connect(channel) as met:
        assert met.era == "modern"
        assert await said(met, "echo", text="x") == "x"
