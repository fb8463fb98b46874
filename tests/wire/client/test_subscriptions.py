"""Changes reach our client: over a subscription in the modern era, over the session in the others."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.system.errors import RookeryError
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.client import subscriptions
from rookery.wire.client.client import Timeouts
from rookery.wire.client.http import HttpTransport
from rookery.wire.client.stdio import StdioTransport
from rookery.wire.http_client.client import HttpClient
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import WireError
from tests.conformance.busy import WATCHED
from tests.support.mcp.client import (
    LIMIT,
    PROGRAMS,
    CallRecorder,
    ConnectedClient,
    HandshakeHandler,
    HttpRequest,
    HttpResponder,
    ScriptedHttpServer,
    connect,
    program,
    read,
    within_limit,
)
from tests.support.mcp.sdk_client import start_endpoint

pytestmark = pytest.mark.anyio

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"
LISTS: dict[str, Any] = {"tools": {"listChanged": True}, "prompts": {"listChanged": False}, "resources": {}}


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as made:
        yield made


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The SDK's server over HTTP."""
    argv = [sys.executable, "-P", PROGRAMS / "sdk_watched.py", "http"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@asynccontextmanager
async def watched(way: str, port: int, http: HttpClient) -> AsyncGenerator[ConnectedClient]:
    """The SDK's server, over its pipe or over HTTP."""
    if way == "stdio":
        channel = StdioTransport(Spawner(new_id()), program("sdk_watched.py", "stdio"))
    else:
        channel = HttpTransport(http, f"http://127.0.0.1:{port}/mcp")
    async with connect(channel) as met:
        assert met.era == "modern"
        yield met


async def change(met: ConnectedClient, what: str) -> None:
    assert read(await within_limit(met.client.call_tool("change", {"what": what})))["content"][0]["text"] == what


def uris(met: ConnectedClient) -> list[str]:
    return [read(one.params)["uri"] for one in met.heard.all if one.method == UPDATED]


# ---- the SDK as the server


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_changes_that_are_watched_are_heard_and_others_are_not(way: str, port: int, http: HttpClient) -> None:
    async with watched(way, port, http) as met:
        await within_limit(met.client.watch({"note://one"}))
        for what in ("note://two", "note://one", "tools"):
            await change(met, what)
        await met.heard.wait_for(TOOLS)
        assert uris(met) == ["note://one"]
        # What is wanted changes: the new ones are heard before the old ones are not.
        await within_limit(met.client.watch({"note://two", "note://three"}))
        for what in ("note://one", "note://two", "note://three"):
            await change(met, what)
        assert (await met.heard.wait_for(UPDATED, 3))["uri"] == "note://three"
        assert uris(met) == ["note://one", "note://two", "note://three"]
        assert met.client.strays == 0


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_subscription_is_nobodys_call(way: str, port: int, http: HttpClient) -> None:
    async with watched(way, port, http) as met:
        await within_limit(met.client.watch(set()))
        ear = CallRecorder()
        params: dict[str, Any] = {"name": "log", "arguments": {}, "_meta": {revisions.META_LOG_LEVEL: "info"}}
        await within_limit(met.client.call("tools/call", params, ear))
        assert (await ear.heard.wait_for("notifications/message"))["data"] == "something happened"
        assert (met.heard.all, met.client.unassigned) == ([], {})


# ---- subscriptions that break, end, or never stand


class Modern:
    """A modern server whose subscriptions are served by the test."""

    def __init__(self, capabilities: Mapping[str, Any] = LISTS) -> None:
        self.capabilities = capabilities
        self.streams: list[tuple[HttpRequest, HttpResponder]] = []
        self.left = asyncio.Event()
        self.refused: str | None = None
        self.silent = False

    async def __call__(self, asked: HttpRequest, out: HttpResponder) -> None:
        if asked.what == "server/discover":
            await out.json(
                asked.result({"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities, "_meta": {}})
            )
        elif asked.what != "subscriptions/listen":
            await out.json(asked.result({"resultType": "complete", "content": []}))
        elif self.refused is not None:
            await out.json(asked.error(-32603, self.refused))
        else:
            await out.stream({"Connection": "close"})
            self.streams.append((asked, out))
            if not self.silent:
                await self.say(-1, "notifications/subscriptions/acknowledged", {"notifications": {}})
            await out.left()
            self.left.set()

    async def say(self, number: int, method: str, params: Mapping[str, Any]) -> None:
        asked, out = self.streams[number]
        tag = {"_meta": {revisions.META_SUBSCRIPTION: asked.message["id"]}}
        await out.event({"jsonrpc": "2.0", "method": method, "params": {**params, **tag}})


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_subscription_that_ends_is_opened_again_and_everything_counts_as_changed(
    orderly: bool, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[int] = []

    def pause(failures: int) -> float:
        pauses.append(failures)
        return 0.01

    monkeypatch.setattr(subscriptions, "compute_backoff", pause)
    modern = Modern({**LISTS, "resources": {"subscribe": True}})
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(met.client.watch({"note://one"}))
        assert met.heard.all == []
        for round_ in (1, 2):
            asked, out = modern.streams[-1]
            if orderly:
                await out.event(asked.result({"resultType": "complete"}))
                await out.end()
            else:
                out.reset()
            await met.heard.wait_for(TOOLS, round_)
            assert (await met.heard.wait_for(UPDATED, round_))["uri"] == "note://one"
        filters = [one.message["params"]["notifications"] for one in server.of("subscriptions/listen")]
        assert filters == [{"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}] * 3
        assert pauses == [1, 2]
        await modern.say(-1, TOOLS, {})
        await met.heard.wait_for(TOOLS, 3)


async def test_a_subscription_ends_with_its_client(http: HttpClient) -> None:
    modern = Modern()
    async with ScriptedHttpServer(modern) as server:
        async with connect(HttpTransport(http, server.url)) as met:
            await within_limit(met.client.watch(set()))
            assert not modern.left.is_set()
        await within_limit(modern.left.wait())
        assert len(server.of("subscriptions/listen")) == 1


async def test_what_is_watched_already_is_not_asked_for_again(http: HttpClient) -> None:
    async with ScriptedHttpServer(Modern()) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(asyncio.gather(*(met.client.watch(set()) for _ in range(5))))
        assert len(server.of("subscriptions/listen")) == 1


@pytest.mark.parametrize("capabilities", [{}, {"tools": {}, "prompts": {"listChanged": False}, "resources": None}])
async def test_a_server_that_never_tells_of_changes_is_not_asked_to(
    capabilities: dict[str, Any], http: HttpClient
) -> None:
    async with ScriptedHttpServer(Modern(capabilities)) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(met.client.watch({"note://one"}))
        assert server.whats() == ["server/discover"]


async def test_a_subscription_that_is_refused_is_told_and_the_old_one_stays(http: HttpClient) -> None:
    modern = Modern({**LISTS, "resources": {"subscribe": True}})
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(met.client.watch(set()))
        modern.refused = "too many"
        with pytest.raises(WireError, match="too many"):
            await within_limit(met.client.watch({"note://one"}))
        await modern.say(0, TOOLS, {})
        await met.heard.wait_for(TOOLS)
        assert not modern.left.is_set()
        modern.refused = None
        await within_limit(met.client.watch({"note://one"}))
        await within_limit(modern.left.wait())


async def test_a_subscription_that_is_never_acknowledged_is_given_up(http: HttpClient) -> None:
    modern = Modern()
    modern.silent = True
    limits = Timeouts(startup=LIMIT, catalog=0.2, execution=LIMIT)
    async with ScriptedHttpServer(modern) as server, connect(HttpTransport(http, server.url), timeouts=limits) as met:
        with pytest.raises(RookeryError, match=r"not acknowledged within the catalog timeout of 0\.2 s"):
            await within_limit(met.client.watch(set()))
        await within_limit(modern.left.wait())


# ---- the handshake era


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_a_handshake_server_is_asked_for_each_resource(way: str, http: HttpClient) -> None:
    async with start_endpoint() as place:
        if way == "stdio":
            root = Path(__file__).parents[3]
            made = program("odd_server.py")
            object.__setattr__(made, "argv", [sys.executable, "-m", "tests.conformance.serve_stdio"])
            object.__setattr__(made, "cwd", root)
            channel = StdioTransport(Spawner(new_id()), made)
        else:
            channel = HttpTransport(http, place.url("http"))
        async with connect(channel, known="handshake") as met:
            await within_limit(met.client.watch({WATCHED, "test://static-text"}))
            await within_limit(met.client.call_tool("touch", {}))
            assert (await met.heard.wait_for(UPDATED))["uri"] == WATCHED
            await within_limit(met.client.watch({"test://static-text"}))
            await within_limit(met.client.call_tool("touch", {}))
            await within_limit(met.client.call_tool("test_trigger_tool_change", {}))
            await met.heard.wait_for(TOOLS)
            assert uris(met) == [WATCHED]


async def test_a_new_session_is_told_what_is_watched_and_everything_counts_as_changed(
    http: HttpClient,
) -> None:
    handler = HandshakeHandler()
    handler.capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(met.client.watch({"note://one"}))
        handler.forget()
        await within_limit(met.client.call_tool("echo", {}))
        assert (await met.heard.wait_for(UPDATED))["uri"] == "note://one"
        await met.heard.wait_for(TOOLS)
        again = await server.wait_for("resources/subscribe", 2)
        assert (again.message["params"]["uri"], again.headers["mcp-session-id"]) == ("note://one", "session-2")


async def test_a_resource_that_cannot_be_watched_does_not_keep_others_from_it(http: HttpClient) -> None:
    async def on_call(asked: HttpRequest, out: HttpResponder) -> None:
        bad = asked.message["params"].get("uri") == "note://bad"
        await out.json(asked.error(-32602, "no such resource") if bad else asked.result({}))

    handler = HandshakeHandler(on_call)
    handler.capabilities = {"resources": {"subscribe": True}}
    async with ScriptedHttpServer(handler) as server, connect(HttpTransport(http, server.url)) as met:
        await within_limit(met.client.watch({"note://bad", "note://good"}))
        await within_limit(met.client.watch({"note://good"}))
        await within_limit(met.client.watch(set()))
        asked = [(one.what, one.message["params"]["uri"]) for one in server.asked if "resources/" in one.what]
        assert asked == [
            ("resources/subscribe", "note://bad"),
            ("resources/subscribe", "note://good"),
            ("resources/unsubscribe", "note://good"),
        ]
