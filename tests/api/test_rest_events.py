"""Events over HTTP: in order, without gaps, and without cost for other clients."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import Mock

import psutil
import pytest

from rookery.api import rest
from rookery.api.app import build_app
from rookery.operations.daemon import DaemonOperations
from rookery.operations.operation import bind_operations
from rookery.system.bus import Bus
from rookery.wire.http.pool import HttpLimits
from tests.support.http.listener import (
    LIMIT,
    Client,
    RunningListener,
    raise_file_limit,
    request,
    start_listener,
    within_limit,
)
from tests.support.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("house.api.events")]


@pytest.fixture(
    scope="session",
    params=[("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Reader:
    """One open stream of events."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rest = b""
        self.over = False

    async def block(self) -> dict[str, Any]:
        """The next event, or comment; empty at the end of the stream."""
        async with asyncio.timeout(LIMIT):
            while b"\n\n" not in self.rest:
                size = int(await self.client.reader.readline(), 16)
                self.rest += await self.client.reader.readexactly(size)
                await self.client.reader.readline()
                if not size:
                    self.over = True
                    return {}
        text, _, self.rest = self.rest.partition(b"\n\n")
        found: dict[str, Any] = {}
        for line in text.decode().split("\n"):
            name, _, value = line.partition(": ")
            found[name] = json.loads(value) if name == "data" else int(value) if name == "id" else value
        return found

    async def event(self) -> dict[str, Any]:
        """The next one that is not a comment."""
        while True:
            if "" not in (found := await self.block()):
                return found

    async def ids(self, count: int) -> list[int]:
        return [(await self.event())["id"] for _ in range(count)]


class Stage:
    """Two buses, served as the daemon serves them."""

    def __init__(self, site: RunningListener, events: Bus, logs: Bus) -> None:
        self.site, self.events, self.logs = site, events, logs

    async def open(
        self, query: str = "", *headers: str, path: str = "/api/events", receive_bytes: int | None = None
    ) -> Reader:
        """A stream that has begun, so that nothing published from now on is missed."""
        client = await self.site.client(receive_bytes=receive_bytes)
        await client.send(request("GET", path + query, *headers))
        head = await within_limit(client.reader.readuntil(b"\r\n\r\n"))
        assert head.startswith(b"HTTP/1.1 200 ")
        return Reader(client)


@asynccontextmanager
async def staged(*, history: int = 1000, queue: int = 1000, limits: HttpLimits | None = None) -> AsyncGenerator[Stage]:
    events, logs = (Bus(name, history=history, max_queue=queue) for name in ("events", "logs"))
    services = cast(Any, Mock(events=events, logs=logs, instance="i", version="v"))
    services.operations = bind_operations(DaemonOperations(services))
    async with start_listener(build_app(services), limits) as site:
        yield Stage(site, events, logs)
    assert (events.reader_count, logs.reader_count) == (0, 0)


async def test_every_event_is_sent_with_its_id_and_time() -> None:
    async with staged() as stage:
        reader = await stage.open()
        assert await reader.block() == {"": "hello"}
        first = stage.events.publish("project.added", name="größe\nzwei")
        stage.events.publish("project.removed")
        assert await reader.event() == {
            "id": first.id,
            "event": "project.added",
            "data": {"name": "größe\nzwei", "at": first.at},
        }
        assert (await reader.event())["id"] == first.id + 1


async def test_the_answer_is_an_event_stream_that_nobody_may_store() -> None:
    async with staged() as stage:
        client = await stage.site.client()
        await client.send(request("GET", "/api/events"))
        head = (await within_limit(client.reader.readuntil(b"\r\n\r\n"))).lower()
        assert b"content-type: text/event-stream\r\n" in head
        assert b"cache-control: no-store\r\n" in head


async def test_since_goes_on_exactly_behind_that_event() -> None:
    async with staged() as stage:
        ids = [stage.events.publish("tick").id for _ in range(10)]
        reader = await stage.open(f"?since={ids[3]}")
        assert await reader.block() == {"": "hello"}
        ids.append(stage.events.publish("tick").id)
        assert await reader.ids(7) == ids[4:]


async def test_last_event_id_goes_on_too_and_is_newer_than_the_url_it_comes_with() -> None:
    """A browser reconnects to the URL it began with."""
    async with staged() as stage:
        ids = [stage.events.publish("tick").id for _ in range(10)]
        reader = await stage.open("", f"Last-Event-ID: {ids[6]}")
        assert await reader.ids(3) == ids[7:]
        reader = await stage.open(f"?since={ids[0]}", f"Last-Event-ID: {ids[6]}")
        assert await reader.ids(3) == ids[7:]
        reader = await stage.open(f"?since={ids[7]}", "Last-Event-ID:")
        assert await reader.ids(2) == ids[8:]


@pytest.mark.parametrize("ago", [-(10**9), -7, 7])
async def test_a_since_too_old_or_not_of_here_is_told_as_a_gap(ago: int) -> None:
    async with staged(history=3) as stage:
        ids = [stage.events.publish("tick").id for _ in range(6)]
        reader = await stage.open(f"?since={ids[-1] + ago}")
        assert await reader.event() == {"event": "gap", "data": {"oldest": ids[3]}}
        new = stage.events.publish("tick").id
        assert await reader.ids(1 if ago > 0 else 4) == ([new] if ago > 0 else [*ids[3:], new])


@pytest.mark.parametrize("since", ["x", "-1", "1.5", "1e3", "0x10", "%20", "1" * 19, "٣", "1,2", "null"])
async def test_a_since_that_is_no_id_is_an_invalid_input(since: str) -> None:
    async with staged() as stage:
        for sent in (
            request("GET", f"/api/events?since={since if since.isascii() else '%D9%A3'}"),
            request("GET", "/api/events", f"Last-Event-ID: {since}" if since.isascii() else "Last-Event-ID: \xd9\xa3"),
        ):
            answer = await stage.site.ask(sent)
            assert (answer.status, answer.code) == (400, "invalid-input")
        assert stage.events.reader_count == 0


async def test_head_does_not_hang_and_subscribes_to_nothing() -> None:
    async with staged() as stage:
        client = await stage.site.client()
        await client.send(request("HEAD", "/api/events"), request("GET", "/api/health"))
        answer = await client.answer(bodyless=True)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        assert (await client.answer()).json()["status"] == "ok"
        assert stage.events.reader_count == 0


async def test_at_shutdown_the_stream_ends_with_what_there_was_and_the_reason() -> None:
    async with staged() as stage:
        reader = await stage.open()
        published = stage.events.publish("last").id
        stage.events.end_all("shutdown")
        assert (await reader.event())["id"] == published
        assert await reader.event() == {"event": "end", "data": {"reason": "shutdown"}}
        assert await reader.event() == {}
        assert reader.over
        late = await stage.open(f"?since={published - 1}")
        assert (await late.event())["id"] == published
        assert (await late.event())["event"] == "end"
        await within_limit(stage.site.listener.stop(60))


async def test_a_quiet_stream_says_that_it_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_KEEP_ALIVE_SECONDS", 0.02)
    async with staged() as stage:
        reader = await stage.open()
        assert await reader.block() == {"": "hello"}
        for _ in range(3):
            assert await reader.block() == {"": "still here"}
        published = stage.events.publish("tick").id
        assert (await reader.event())["id"] == published


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_reader_that_goes_is_forgotten_at_once(how: str) -> None:
    async with staged() as stage:
        reader, other = await stage.open(), await stage.open()
        assert stage.events.reader_count == 2
        reader.client.close() if how == "close" else reader.client.reset()
        await stage.site.connections.reach(1)
        assert stage.events.reader_count == 1
        published = stage.events.publish("tick").id
        assert await other.ids(1) == [published]


async def test_log_lines_come_with_their_past_and_only_those_that_were_asked_for() -> None:
    async with staged() as stage:
        levels = ["debug", "info", "warning", "error"]
        ids = {level: stage.logs.publish("log", level=level).id for level in levels}
        reader = await stage.open("?level=warning", path="/api/logs")
        assert await reader.ids(2) == [ids["warning"], ids["error"]]
        stage.logs.publish("log", level="info")
        published = stage.logs.publish("log", level="error").id
        assert await reader.ids(1) == [published]


async def test_log_lines_of_one_logger_and_of_those_below_it_can_be_asked_for() -> None:
    async with staged() as stage:
        names = ["rookery.mcp", "rookery.mcp.servers", "rookery.mcpx", "rookery.agents"]
        ids = [stage.logs.publish("log", level="info", logger=name).id for name in names]
        short, full = [await stage.open(f"?logger={name}", path="/api/logs") for name in ("mcp", "rookery.mcp")]
        assert await short.ids(2) == ids[:2] == await full.ids(2)
        stage.logs.publish("log", level="info", logger="rookery.daemon")
        published = stage.logs.publish("log", level="info", logger="rookery.mcp.client").id
        assert await short.ids(1) == [published] == await full.ids(1)


async def test_no_reconnect_loses_or_doubles_an_event() -> None:
    """However publishing and reading fall together: what is resumed joins what is live without a seam."""
    choose = random.Random(14)
    async with staged(history=100_000, queue=100_000) as stage:
        start = stage.events.last_id
        seen: list[int] = []

        async def publish() -> None:
            for _ in range(300):
                for _ in range(choose.randrange(1, 10)):
                    stage.events.publish("tick", text="x" * choose.randrange(200))
                for _ in range(choose.randrange(4)):
                    await asyncio.sleep(0)
            stage.events.publish("last")

        publishing = asyncio.ensure_future(publish())
        last = False
        while not last:
            reader = await stage.open(f"?since={(seen or [start])[-1]}")
            for _ in range(choose.randrange(1, 200)):
                event = await reader.event()
                assert event["event"] != "gap"
                seen.append(event["id"])
                if last := event["event"] == "last":
                    break
            reader.client.close() if choose.random() < 0.5 else reader.client.reset()
        await publishing
        assert seen == list(range(start + 1, stage.events.last_id + 1))


# ---- A14

EVENT = "x" * 10_000
EVENTS = 10_000


class Pace:
    """A reader that keeps up, and a publisher that goes only as fast as that one reads."""

    def __init__(self, stage: Stage, reader: Reader) -> None:
        self.stage, self.reader = stage, reader
        self.ids: list[int] = []

    async def publish(self, count: int, at_once: int = 50) -> None:
        for _ in range(0, count, at_once):
            for _ in range(at_once):
                self.stage.events.publish("tick", text=EVENT)
            self.ids += await self.reader.ids(at_once)


@pytest.mark.parametrize("reads_again", [True, False])
async def test_a14_a_slow_reader_is_cut_off_with_the_reason_at_nobody_elses_cost(reads_again: bool) -> None:
    """100 MB of events while one client does not read."""
    raise_file_limit(256)
    limits = HttpLimits(write_seconds=60.0 if reads_again else 1.0)
    async with staged(history=100, queue=100, limits=limits) as stage:
        slow = await stage.open(receive_bytes=4096)
        (front,) = stage.site.connections
        pace = Pace(stage, await stage.open())
        start = stage.events.last_id
        before = psutil.Process().memory_info().rss
        largest = 0
        for _ in range(EVENTS // 500):
            await pace.publish(500)
            largest = max(largest, front.transport.get_write_buffer_size())
        assert pace.ids == list(range(start + 1, start + EVENTS + 1))
        assert largest < 3_000_000  # one batch of a full queue and what was begun before it
        assert psutil.Process().memory_info().rss - before < 60_000_000
        assert stage.events.reader_count == 1
        if not reads_again:
            await stage.site.connections.reach(1)
            assert b"event: end" not in await slow.client.rest()
            return
        seen: list[int] = []
        while (event := await slow.event())["event"] != "end":
            seen.append(event["id"])
        assert event == {"event": "end", "data": {"reason": "slow-reader"}}
        assert await slow.event() == {}
        assert seen == list(range(start + 1, start + len(seen) + 1))
        assert len(seen) < EVENTS
        again = await stage.open(f"?since={stage.events.last_id - 50}")
        assert await again.ids(50) == pace.ids[-50:]
