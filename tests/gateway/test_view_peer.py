"""The official SDK on both sides: client and server get the same through the gateway as without it."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from tests.conformance.suite import NODE
from tests.support.gateway.gateway import checkout, start_gateway, view_of
from tests.support.mcp.client import LIMIT, PROGRAMS
from tests.support.mcp.sdk_client import MODERN, ClientRecorder
from tests.support.npm.mcp_servers import OFFLINE, installed
from tests.support.npm.packages import SECONDS
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

PROGRAM = [sys.executable, "-P", str(PROGRAMS / "sdk_server.py"), "stdio"]
# Members that say when and by whom something was served, and not what.
OF_THE_LEG = {"_meta", "ttl_ms", "cache_scope", "ttlMs", "cacheScope"}


@asynccontextmanager
async def a_peer(way: Any, mode: str) -> AsyncGenerator[tuple[Client, ClientRecorder]]:
    told = ClientRecorder()
    async with Client(
        way,
        mode=mode,
        read_timeout_seconds=LIMIT,
        log_level="debug",
        logging_callback=told.on_log,
        elicitation_callback=told.on_elicitation,
        sampling_callback=told.on_sampling,
        list_roots_callback=told.on_roots,
    ) as client:
        yield client, told


def plain(found: Any) -> Any:
    """A result without what belongs to the leg it came over."""
    return _without(found.model_dump(by_alias=True, exclude_none=True, mode="json"))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        return {key: _without(one) for key, one in members.items() if key not in OF_THE_LEG}
    return [_without(one) for one in cast(list[Any], value)] if isinstance(value, list) else value


async def pages(ask: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
    """A whole list: this server gives it in pages, and the gateway in one."""
    found, cursor = list[Any](), None
    while True:
        page = plain(await ask(cursor=cursor))
        found += page[key]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


async def all_of_it(client: Client, told: ClientRecorder, modern: bool) -> dict[str, Any]:
    """Everything that this server has, asked for once."""
    steps: list[tuple[float, float | None, str | None]] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    found: dict[str, Any] = {
        "tools": await pages(client.list_tools, "tools"),
        "resources": await pages(client.list_resources, "resources"),
        "templates": await pages(client.list_resource_templates, "resourceTemplates"),
        "prompts": await pages(client.list_prompts, "prompts"),
    }
    calls: dict[str, dict[str, Any]] = {
        "echo": {"text": "ü 😀 \u2028"},
        "add": {"a": 1, "b": 2**53},
        "structured": {},
        "unicode": {},
        "fail": {},
        "log": {},
        "elicit": {},
        "sample": {},
    }
    for name, arguments in calls.items():
        found[name] = plain(await client.call_tool(name, arguments))
    found["progress"] = plain(await client.call_tool("progress", {"steps": 3}, progress_callback=progressed))
    found["note"] = plain(await client.read_resource("note://one"))
    found["bytes"] = plain(await client.read_resource("note://bytes"))
    found["named"] = plain(await client.read_resource("note://ada/text"))
    found["greet"] = plain(await client.get_prompt("greet", {"name": "Ada"}))
    return found | {"told": told.logged if not modern else [], "steps": steps}


async def gathered(way: Any, mode: str) -> dict[str, Any]:
    async with a_peer(way, mode) as (client, told):
        return await all_of_it(client, told, mode == MODERN)


@requirement("hub.catalog.primitives", "hub.call.route")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_what_the_sdk_finds_through_the_gateway_is_what_it_finds_without(mode: str) -> None:
    folder = checkout()
    direct = StdioServerParameters(command=PROGRAM[0], args=PROGRAM[1:], env={"PYTHONDONTWRITEBYTECODE": "1"})
    expected = await gathered(direct, mode)
    async with start_gateway({"peer": {"command": PROGRAM}}, folder) as gateway:
        found = await gathered(gateway.url(view_of(folder, "peer")), mode)
    differing = {key for key in expected if found[key] != expected[key]}
    assert not differing, {key: (expected[key], found[key]) for key in differing}
    assert expected["elicit"]["content"][0]["text"] == "Hello, Ada"


@pytest.mark.timeout(SECONDS)
@requirement("hub.call.server-requests")
async def test_a_modern_sdk_client_answers_what_a_handshake_server_of_others_asks() -> None:
    everything = [str(NODE / "bin" / "node"), str(installed("everything") / "dist" / "index.js"), "stdio"]
    servers = {"all": {"command": everything, "environment": OFFLINE}}
    async with start_gateway(servers) as gateway, a_peer(gateway.url(), MODERN) as (client, _):
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("get-roots-list", {}, "file:///here"),
            ("trigger-sampling-request", {"prompt": "capital?", "maxTokens": 9}, "Paris"),
            ("trigger-elicitation-request", {}, "Ada"),
        ]
        for name, arguments, wanted in calls:
            found = plain(await client.call_tool(f"all__{name}", arguments))
            assert wanted in str(found["content"]) and not found.get("isError"), found
        server = await gateway.server("all")
        assert server.client is not None and server.client.revision == "2025-11-25"
        assert len(gateway.service.parked_calls) == 0


@requirement("hub.call.abort")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_an_sdk_server_notices_that_its_caller_left(mode: str) -> None:
    async with start_gateway({"peer": {"command": PROGRAM}}) as gateway, a_peer(gateway.url(), mode) as (client, _):
        begun = anyio.Event()

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async with anyio.create_task_group() as tasks:

            async def slow() -> None:
                await client.call_tool("peer__slow", {}, progress_callback=progressed)

            tasks.start_soon(slow)
            with anyio.fail_after(LIMIT):
                await begun.wait()
            tasks.cancel_scope.cancel()
        found = await client.call_tool("peer__was_cancelled", {})
        content = found.content[0]
        assert isinstance(content, TextContent) and content.text == "true"
