"""Calls to remote servers take the fast path too, and fare there as they do elsewhere."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.gateway.fastpath import FastCallCounts, RepeatCaller, count_fast_calls, open_repeat_caller
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, failure, told, words
from tests.support.mcp.client import HttpRequest, HttpResponder, ScriptedHttpServer
from tests.support.mcp.remote_server import Remote
from tests.support.mcp.scripted_server import text, tool
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

LARGE = "x" * 2_000_000


class Repeating:
    """A client whose calls are on the fast path to a remote server."""

    def __init__(
        self, remote: Remote, server: ScriptedHttpServer, gateway: Gateway, repeat: RepeatCaller, lane: FastCallCounts
    ) -> None:
        self.remote = remote
        self.server = server
        self.gateway = gateway
        self.repeat = repeat
        self.lane = lane

    async def check_fast(self) -> None:
        """Check that nothing is left of earlier calls, and that the next one needs no task."""
        self.remote.on_call = None
        assert told(await self.repeat.call({"n": 7}))["arguments"] == {"n": 7}
        self.lane.clear()
        assert told(await self.repeat.call({"n": 8}))["arguments"] == {"n": 8}
        assert self.lane.count() == (1, 0)
        far = await self.gateway.server("far")
        assert far.client is not None and far.limiter.running == 0 and not far.client.in_flight.requests


@asynccontextmanager
async def repeating(
    era: str = HANDSHAKE, theirs: str = HANDSHAKE, able: Any = None, **more: Any
) -> AsyncGenerator[Repeating]:
    remote = Remote(theirs)
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url, **more}}) as gateway:
        with count_fast_calls() as lane:
            repeat = await open_repeat_caller(
                gateway, era, tool="far__echo", **({} if able is None else {"able": able})
            )
            lane.clear()
            yield Repeating(remote, server, gateway, repeat, lane)


@requirement("density.http.path")
@pytest.mark.parametrize("theirs", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_calls_to_a_remote_server_need_no_task(era: str, theirs: str) -> None:
    async with repeating(era, theirs) as it:
        for number in range(3):
            assert told(await it.repeat.call({"n": number}))["arguments"] == {"n": number}
        assert it.lane.count() == (3, 0)
        usual, *_, last = it.server.of("tools/call")
        assert usual.headers.keys() == last.headers.keys()
        names = ("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "accept", "content-type", "host")
        assert {name: usual.headers.get(name) for name in names} == {name: last.headers.get(name) for name in names}
        assert last.headers.get("mcp-name") == ("echo" if theirs == MODERN else None)
        await it.check_fast()


@requirement("density.http.path")
@pytest.mark.parametrize("theirs", ERAS)
async def test_a_stream_is_read_without_a_task_too(theirs: str) -> None:
    async with repeating(theirs=theirs) as it:

        async def stream(asked: HttpRequest, out: HttpResponder) -> None:
            await out.stream()
            await out.chunk(b": nothing yet\n\n")
            await out.event(asked.result(text("streamed")))
            await out.end()

        it.remote.on_call = stream
        for _ in range(3):
            assert words(await it.repeat.call()) == "streamed"
        assert it.lane.count() == (3, 0)
        await it.check_fast()


async def test_messages_before_the_result_come_before_it() -> None:
    async with repeating() as it:

        async def logs(asked: HttpRequest, out: HttpResponder) -> None:
            await out.stream()
            for number in range(5):
                params = {"level": "error", "data": number}
                await out.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            await out.event(asked.result(text("logged")))
            await out.end()

        await it.repeat.caller.ask("logging/setLevel", {"level": "debug"})
        for _ in range(2):
            assert "result" in await it.repeat.call()
        it.remote.on_call = logs
        assert words(await it.repeat.call()) == "logged"
        assert [one["params"]["data"] for one in it.repeat.heard] == [0, 1, 2, 3, 4]
        assert it.lane.tasks
        await it.check_fast()


async def test_a_stream_that_breaks_is_resumed() -> None:
    async with repeating() as it:
        answered: list[HttpRequest] = []
        usual = it.remote.__call__

        async def breaks(asked: HttpRequest, out: HttpResponder) -> None:
            answered.append(asked)
            await out.stream()
            await out.raw(b"1c\r\nid: 5\nretry: 1\ndata: \n\n      \r\n")
            out.reset()

        async def resumes(asked: HttpRequest, out: HttpResponder) -> None:
            if asked.method == "GET" and asked.headers.get("last-event-id") == "5":
                await out.stream()
                await out.event(answered[-1].result(text("resumed")))
                await out.end()
            else:
                await usual(asked, out)

        it.server.handler = resumes
        it.remote.on_call = breaks
        assert words(await it.repeat.call()) == "resumed"
        assert it.lane.count() == (1, 0) and len(answered) == 1
        await it.check_fast()


@pytest.mark.parametrize("size", [200_000, 5_000_000])
async def test_large_results_arrive_whole(size: int) -> None:
    async with repeating() as it:

        async def large(asked: HttpRequest, out: HttpResponder) -> None:
            await out.json(asked.result(text("x" * size)))

        it.remote.on_call = large
        assert words(await it.repeat.call()) == "x" * size
        await it.check_fast()


@pytest.mark.parametrize(
    ("fault", "why"),
    [("502", "502"), ("429", "429"), ("reset", ""), ("half", ""), ("nonsense", "not a valid message"), ("other", "")],
)
async def test_d20_a_call_that_fails_on_its_way_fails_typed_and_is_not_made_twice(fault: str, why: str) -> None:
    async with repeating() as it:

        async def failing(asked: HttpRequest, out: HttpResponder) -> None:
            if fault.isdigit():
                await out.answer(int(fault), b"<html>sorry</html>", "text/html", {"Retry-After": "1"})
            elif fault == "reset":
                out.reset()
            elif fault == "half":
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
                await out.raw(head + b'{"jsonrpc":')
                out.reset()
            elif fault == "other":
                await out.json(asked.result(text("mine")) | {"id": 999})
            else:
                await out.answer(200, b"<html>hello</html>")

        it.remote.on_call = failing
        count = len(it.server.of("tools/call"))
        found = await it.repeat.call({"transfer": "all my money"})
        assert failure(found) == "upstream-failed" and why in words(found)
        assert len(it.server.of("tools/call")) == count + 1
        await it.check_fast()


async def test_an_error_of_the_server_is_passed_on() -> None:
    async with repeating() as it:

        async def refuses(asked: HttpRequest, out: HttpResponder) -> None:
            await out.json(asked.error(-32050, "no", {"x": 1}), status=400)

        it.remote.on_call = refuses
        assert (await it.repeat.call())["error"] == {"code": -32050, "message": "no", "data": {"x": 1}}
        await it.check_fast()


async def test_a_lost_session_is_opened_again_and_the_call_repeated() -> None:
    async with repeating() as it:
        it.remote.sessions = {"another"}
        assert told(await it.repeat.call({"n": 1}))["arguments"] == {"n": 1}
        assert it.lane.count() == (1, 1)
        assert len(it.server.of("initialize")) == 2
        await it.check_fast()


@requirement("servers.http.redirect")
async def test_a_redirect_is_followed_within_the_origin_only() -> None:
    async with repeating() as it, ScriptedHttpServer(Remote()) as elsewhere:
        usual, targets = it.remote.__call__, ["/other", elsewhere.url]

        async def moved(asked: HttpRequest, out: HttpResponder) -> None:
            if asked.what == "tools/call" and asked.path == "/mcp":
                await out.answer(307, headers={"Location": targets[0]})
            else:
                await usual(asked, out)

        it.server.handler = moved
        assert told(await it.repeat.call({"n": 1}))["arguments"] == {"n": 1}
        assert it.server.of("tools/call")[-1].path == "/other"
        targets.pop(0)
        assert "another origin" in words(await it.repeat.call())
        assert elsewhere.asked == []
        it.server.handler = usual
        await it.check_fast()


@requirement("hub.call.abort")
@pytest.mark.parametrize("theirs", ERAS)
async def test_a_client_that_leaves_cancels_its_call(theirs: str) -> None:
    async with repeating(theirs=theirs) as it:
        held = asyncio.Event()

        async def hold(asked: HttpRequest, out: HttpResponder) -> None:
            held.set()
            await out.left()
            it.remote.left.set()

        it.remote.on_call = hold
        await it.repeat.begin({"n": 1}, id=77)
        await asyncio.wait_for(held.wait(), 10)
        await it.repeat.caller.cancel(77)
        assert "error" in await it.repeat.answer()
        await asyncio.wait_for(it.remote.left.wait(), 10)
        if theirs == HANDSHAKE:
            cancelled = await it.server.wait_for("notifications/cancelled")
            assert cancelled.message["params"]["requestId"] == it.server.of("tools/call")[-1].message["id"]
        await it.check_fast()


async def test_a_call_that_is_not_answered_in_time_fails_so() -> None:
    async with repeating(timeouts={"execution": 0.5}) as it:

        async def hold(asked: HttpRequest, out: HttpResponder) -> None:
            await out.left()

        it.remote.on_call = hold
        assert failure(await it.repeat.call()) == "timeout"
        it.remote.on_call = None
        await it.check_fast()


async def test_s12_arguments_that_are_repeated_in_headers_take_the_usual_way() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    remote = Remote(MODERN)
    remote.play.tools = [tool("echo") | {"inputSchema": schema}]
    async with ScriptedHttpServer(remote) as server, start_gateway({"far": {"url": server.url}}) as gateway:
        with count_fast_calls() as lane:
            repeat = await open_repeat_caller(gateway, HANDSHAKE, tool="far__echo")
            for region in ("eu", "us", "eu"):
                assert told(await repeat.call({"region": region}))["arguments"] == {"region": region}
                assert server.of("tools/call")[-1].headers["mcp-param-region"] == region
            assert lane.count() == (0, 0)


async def test_c17_s2_concurrent_calls_keep_their_results_and_send_nothing_of_the_clients() -> None:
    async with repeating(headers={"Authorization": "Bearer configured"}) as it:
        repeats = [await open_repeat_caller(it.gateway, era, tool="far__echo") for era in ERAS for _ in range(4)]
        for turn in range(3):
            for number, repeat in enumerate(repeats):
                await repeat.begin({"n": [turn, number]})
            found = [told(await repeat.answer())["arguments"]["n"] for repeat in repeats]
            assert found == [[turn, number] for number in range(len(repeats))]
        assert len(it.lane.begun) > len(repeats) and it.lane.tasks == []
        for asked in it.server.of("tools/call"):
            assert asked.headers["authorization"] == "Bearer configured" and "cookie" not in asked.headers
            assert json.loads(asked.body)["params"].keys() <= {"name", "arguments", "_meta"}
        await it.check_fast()
