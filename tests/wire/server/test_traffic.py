"""The record of an endpoint's messages, and the count of its clients."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from websockets.asyncio.client import connect

from rookery.wire.protocol.messages import Notification, Request
from rookery.wire.server.endpoint import Endpoint
from rookery.wire.server.traffic import MESSAGES_KEPT, PRESENCE_SECONDS, Traffic, TrafficLine
from tests.conformance.busy import Busy
from tests.support.clock import SetClock
from tests.support.http.listener import LIMIT, RunningListener, start_listener
from tests.support.mcp.caller import ERAS, HANDSHAKE, MODERN, Caller

pytestmark = pytest.mark.anyio

NAMED = {"name": msgspec.Raw(b'"read"')}


class Place:
    def __init__(
        self, endpoint: Endpoint, traffic: Traffic, site: RunningListener, http: aiohttp.ClientSession
    ) -> None:
        self.endpoint, self.traffic, self.site, self.http = endpoint, traffic, site, http
        self.news = asyncio.Event()
        traffic.on_changed = self.news.set

    def caller(self, revision: str) -> Caller:
        return Caller(self.http, f"http://127.0.0.1:{self.site.port}/mcp", revision)

    def told(self) -> list[TrafficLine]:
        return self.traffic.lines()

    @property
    def clients(self) -> int:
        service = self.endpoint.service
        return service.count_connected + len(self.traffic.list_present() | service.listeners())


@asynccontextmanager
async def a_place() -> AsyncGenerator[Place]:
    traffic = Traffic()
    endpoint = Endpoint(Busy(), traffic=traffic)
    async with start_listener(endpoint) as site, aiohttp.ClientSession() as http:
        yield Place(endpoint, traffic, site, http)
        endpoint.close()


@pytest.mark.parametrize("era", ERAS)
async def test_each_message_is_noted_with_its_answer_and_without_what_is_in_it(era: str) -> None:
    async with a_place() as place:
        caller = place.caller(era)
        await caller.open()
        await caller.call("touch", {"secret": "in the arguments"}, id_="seven")
        await caller.call("no_such_tool", id_=8)
        told = place.told()
        assert [one.method for one in told[:2]] == ["initialize" if era == HANDSHAKE else "server/discover", "answer"]
        came, went = [one for one in told if one.id == "seven"]
        assert (came.direction, came.method, came.tool) == ("in", "tools/call", "touch")
        assert (went.direction, went.method, went.tool, went.error) == ("out", "answer", "touch", None)
        assert went.ms is not None and went.ms >= 0 and went.time >= came.time
        assert came.bytes > 30 and went.bytes > 30 and came.ms is None
        failed = [one for one in told if one.id == 8][1]
        assert failed.error is not None and failed.error < 0
        assert "secret" not in json.dumps(msgspec.to_builtins(told))
        await caller.close()


async def test_a_call_in_flight_is_recorded_before_its_result_and_as_cancelled_if_it_was() -> None:
    async with a_place() as place:
        caller = place.caller(HANDSHAKE)
        await caller.open()
        held = caller.begin("hang", id_=5, progressToken="p")
        await caller.hears("notifications/progress")
        assert [one.direction for one in place.told() if one.id == 5] == ["in"]
        await caller.cancel(5)
        assert "error" in await held
        assert [one.error for one in place.told() if one.id == 5 and one.direction == "out"] == [-32800]
        assert [one for one in place.told() if one.method == "notifications/cancelled"]
        await caller.close()


async def test_clients_are_counted_whatever_they_speak() -> None:
    async with a_place() as place:
        assert place.clients == 0
        old = place.caller(HANDSHAKE)
        await old.open()
        assert place.clients == 1
        new = place.caller(MODERN)
        await new.open()
        await new.call("touch")
        assert place.clients == 2
        await new.listen()
        assert place.clients == 2
        async with connect(f"ws://127.0.0.1:{place.site.port}/ws", proxy=None) as socket:
            assert place.clients == 3
            hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "ws", "version": "1"}}
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}))
            assert json.loads(await socket.recv())["id"] == 1
            # It is one client, with its connection and its session.
            assert place.clients == 3
        await old.close()
        async with asyncio.timeout(LIMIT):
            while place.clients != 1:
                place.news.clear()
                await place.news.wait()
        await new.close()


def test_no_more_is_kept_than_the_last_messages_and_nothing_large_of_them() -> None:
    traffic = Traffic()
    for number in range(3 * MESSAGES_KEPT):
        came = traffic.record_request(Request(number, "tools/call", msgspec.Raw(b"{}")), NAMED)
        traffic.record_response(came, b"x" * number, 0)
    told = traffic.lines()
    assert len(told) == MESSAGES_KEPT
    assert (told[-1].id, told[-1].bytes, told[-1].tool) == (3 * MESSAGES_KEPT - 1, 3 * MESSAGES_KEPT - 1, "read")
    huge = "x" * 100_000
    traffic.record_request(Request(huge, huge, msgspec.Raw(b"{}")), {"name": msgspec.Raw(b'"%b"' % huge.encode())})
    traffic.record_request(Request(1, "tools/call", msgspec.Raw(b"{}")), {"name": msgspec.Raw(b"17")})
    traffic.record_message(Notification(huge, msgspec.Raw(b"{}")), None, 0)
    assert len(msgspec.json.encode(traffic.lines()[-3:])) < 3_000


def test_a_client_without_a_session_counts_for_a_minute_and_only_once() -> None:
    clock, news = SetClock(), list[int]()
    traffic = Traffic(lambda: news.append(1), clock)
    for _ in range(3):
        traffic.record_client(("owner", b"one"))
    traffic.record_client(("workspace x", b"one"))
    assert len(traffic.list_present()) == 2 and len(news) == 2
    clock.now = PRESENCE_SECONDS - 1
    traffic.record_client(("owner", b"one"))
    clock.now = PRESENCE_SECONDS + 1
    assert traffic.list_present() == {("owner", b"one")}
    assert len(news) == 2
    for number in range(5_000):
        traffic.record_client(("owner", b"%d" % number))
    assert len(traffic.list_present()) == 1_000


async def test_messages_are_numbered_and_one_can_wait_for_the_next() -> None:
    traffic = Traffic()
    waiting = asyncio.create_task(traffic.log.wait(0, LIMIT))
    await asyncio.sleep(0)
    came = traffic.record_request(Request(1, "tools/call", msgspec.Raw(b"{}")), NAMED)
    await asyncio.wait_for(waiting, LIMIT)
    assert [line.direction for line in traffic.lines()] == ["in"]
    traffic.record_response(came, b"{}", 0)
    assert traffic.log.count == 2
    assert [line.direction for line in traffic.lines(1)] == ["out"] and traffic.lines(2) == []
    # A number that does not exist yet is that of an earlier record.
    await traffic.log.wait(7, LIMIT)
    assert len(traffic.lines(7)) == 2
    # Without a new message, the wait is over after its time.
    await traffic.log.wait(2, 0)


def test_the_record_of_a_server_is_part_of_that_of_its_workspace() -> None:
    whole = Traffic()
    server = Traffic(server="github", shared=whole)
    for traffic in (whole, server):
        came = traffic.record_request(Request(1, "tools/call", msgspec.Raw(b"{}")), NAMED)
        traffic.record_response(came, b"{}", 0)
    server.record_client(("workspace x", b"one"))
    assert [line.server for line in whole.lines()] == [None, None, "github", "github"]
    assert whole.list_present() == {("workspace x", b"one")}
