"""The older HTTP+SSE transport: a stream that names the URL for posts, and a session that ends with the stream."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from rookery.wire.http.auth import ANYBODY, OWNER, Headers, Principal
from rookery.wire.server import sse
from rookery.wire.server.endpoint import Endpoint
from tests.conformance.busy import Busy
from tests.support.http.listener import (
    LIMIT,
    Client,
    RawResponse,
    RunningListener,
    request,
    start_listener,
    within_limit,
)
from tests.support.mcp.line_client import hello, message
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio


def authenticate(method: str, path: str, headers: Headers) -> Principal:
    return ANYBODY if (b"x-who", b"anybody") in headers else OWNER


@dataclass
class Place:
    """One running endpoint."""

    endpoint: Endpoint
    site: RunningListener


@asynccontextmanager
async def a_place() -> AsyncGenerator[Place]:
    endpoint = Endpoint(Busy())
    async with start_listener(endpoint, judge_of=lambda port: authenticate) as site:
        try:
            yield Place(endpoint, site)
        finally:
            endpoint.close()


class Events:
    """One event stream."""

    def __init__(self, site: RunningListener, client: Client) -> None:
        self.site = site
        self.client = client
        self.address = ""

    async def next(self) -> tuple[str, str]:
        """The kind and the data of the next event; a comment has no kind."""
        async with asyncio.timeout(LIMIT):
            size = int(await self.client.reader.readline(), 16)
            block = (await self.client.reader.readexactly(size)).decode()
            await self.client.reader.readline()
        if size == 0:
            return "end", ""
        assert block.endswith("\r\n\r\n")
        if block.startswith(":"):
            return "", block
        kind, data = block.removesuffix("\r\n\r\n").split("\r\n")
        return kind.removeprefix("event: "), data.removeprefix("data: ")

    async def message(self) -> Any:
        kind, data = await self.next()
        assert kind == "message"
        return json.loads(data)

    async def post(self, body: Any, *headers: str) -> RawResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.site.ask(request("POST", self.address, *headers, body=data))

    async def ask(self, body: Any) -> Any:
        answer = await self.post(body)
        assert (answer.status, answer.body) == (202, b"")
        return await self.message()


async def opened(place: Place) -> Events:
    client = await place.site.client()
    await client.send(request("GET", "/sse", "Accept: text/event-stream"))
    head = RawResponse(await within_limit(client.reader.readuntil(b"\r\n\r\n")), b"")
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
    events = Events(place.site, client)
    kind, events.address = await events.next()
    assert kind == "endpoint"
    return events


@requirement("wire.sse.server")
async def test_the_stream_tells_its_address_and_carries_the_answers() -> None:
    async with a_place() as place:
        events = await opened(place)
        assert events.address.startswith("/messages?session_id=")
        assert (await events.ask(hello("2024-11-05")))["result"]["protocolVersion"] == "2024-11-05"
        assert (await events.post(message("notifications/initialized"))).status == 202
        answer = await events.ask(message("tools/call", {"name": "test_simple_text"}, 1))
        assert answer["result"]["content"][0]["type"] == "text"


@requirement("wire.sse.server", "wire.jsonrpc.errors")
async def test_what_is_no_message_is_refused_where_it_was_posted() -> None:
    async with a_place() as place:
        events = await opened(place)
        for body, code in ((b"{", -32700), (b"5", -32600)):
            refused = await events.post(body)
            assert (refused.status, refused.json()["error"]["code"]) == (400, code)
        assert (await events.ask(message("ping", {}, 1)))["id"] == 1


async def test_a18_an_unknown_session_is_404_and_another_credentials_403() -> None:
    async with a_place() as place:
        events = await opened(place)
        foreign = await events.post(hello(), "X-Who: anybody")
        assert foreign.status == 403
        events.address, real = "/messages?session_id=guess", events.address
        assert (await events.post(hello())).status == 404
        events.address = "/messages"
        assert (await events.post(hello())).status == 404
        events.address = real
        assert (await events.ask(hello()))["id"] == "hello"


@pytest.mark.parametrize("reset", [False, True])
async def test_the_loss_of_the_stream_ends_its_session_and_cancels_its_calls(reset: bool) -> None:
    async with a_place() as place:
        events = await opened(place)
        await events.ask(hello())
        assert len(place.endpoint.service.sessions) == 1
        begun = await events.ask(message("tools/call", {"name": "hang", "_meta": {"progressToken": 1}}, 1))
        assert begun["method"] == "notifications/progress"
        if reset:
            events.client.reset()
        else:
            events.client.close()
        other = await opened(place)
        await other.ask(hello())
        await other.ask(message("tools/call", {"name": "count_cancelled", "arguments": {"least": 1}}, 1))
        assert (await events.post(message("ping", {}, 2))).status == 404
        assert len(place.endpoint.service.sessions) == 1


@requirement("wire.server.shutdown")
async def test_a_shutdown_answers_open_calls_ends_the_stream_and_lets_nobody_in() -> None:
    async with a_place() as place:
        events = await opened(place)
        await events.ask(hello())
        await events.ask(message("tools/call", {"name": "hang", "_meta": {"progressToken": 1}}, 1))
        place.endpoint.close()
        assert (await events.message())["error"] == {"code": -32000, "message": "shutting down"}
        assert (await events.next())[0] == "end"
        assert (await place.site.ask(request("GET", "/sse"))).status == 503


async def test_a_silent_stream_shows_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.01)
    async with a_place() as place:
        events = await opened(place)
        assert (await events.next())[0] == ""


@pytest.mark.parametrize(
    ("line", "status"),
    [("POST /sse", 405), ("GET /messages", 405), ("DELETE /messages", 405), ("GET /elsewhere", 404)],
)
async def test_other_methods_and_paths_are_refused(line: str, status: int) -> None:
    async with a_place() as place:
        assert (await place.site.ask(request(*line.split()))).status == status


async def test_a_client_that_takes_no_stream_is_told_so() -> None:
    async with a_place() as place:
        assert (await place.site.ask(request("GET", "/sse", "Accept: application/json"))).status == 406
