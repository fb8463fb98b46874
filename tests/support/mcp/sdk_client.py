"""The official SDK as a client of our fixture, on every common transport, in both eras."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.message import SessionMessage
from pydantic import FileUrl
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from rookery.wire.server.endpoint import Endpoint
from tests.conformance.busy import Busy
from tests.support.http.listener import LIMIT, RunningListener, start_listener

ROOT = Path(__file__).parents[3]
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"

# Transport and era; HTTP+SSE has only one.
WAYS = [
    ("http", "legacy"),
    ("http", MODERN),
    ("sse", "legacy"),
    ("ws", "legacy"),
    ("ws", MODERN),
    ("stdio", "legacy"),
    ("stdio", MODERN),
]


class RunningEndpoint:
    """One running endpoint."""

    def __init__(self, endpoint: Endpoint, provider: Busy, site: RunningListener) -> None:
        self.endpoint = endpoint
        self.provider = provider
        self.site = site

    def url(self, transport: str) -> str:
        path = {"http": "http://{}/mcp", "sse": "http://{}/sse", "ws": "ws://{}/ws"}[transport]
        return path.format(f"127.0.0.1:{self.site.port}")


@asynccontextmanager
async def start_endpoint() -> AsyncGenerator[RunningEndpoint]:
    provider = Busy()
    endpoint = Endpoint(provider)
    async with start_listener(endpoint) as site:
        try:
            yield RunningEndpoint(endpoint, provider, site)
        finally:
            endpoint.close()


class ClientRecorder:
    """A record of the server's unsolicited messages, and a user who answers every question."""

    def __init__(self) -> None:
        self.logged: list[tuple[str, Any]] = []
        self.heard: list[Any] = []
        self.news = anyio.Event()

    async def on_log(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        self.logged.append((params.level, params.data))

    async def on_message(self, message: Any) -> None:
        self.heard.append(message)
        self.news.set()

    async def on_elicitation(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "Ada", "username": "ada", "email": "a@b.c"})

    async def on_sampling(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult:
        content = mcp_types.TextContent(type="text", text="Paris")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="none")

    async def on_roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri=FileUrl("file:///here"))])


@asynccontextmanager
async def open_client(transport: str, mode: str, told: ClientRecorder | None = None) -> AsyncGenerator[Client]:
    """Open a client of a separate endpoint."""
    if transport == "stdio":
        async with client_over(_child(), mode, told) as client:
            yield client
        return
    async with start_endpoint() as place, open_client_of(place, transport, mode, told) as client:
        yield client


@asynccontextmanager
async def open_client_of(
    place: RunningEndpoint, transport: str, mode: str, told: ClientRecorder | None = None
) -> AsyncGenerator[Client]:
    url = place.url(transport)
    ways: dict[str, Any] = {"http": url, "sse": sse_client(url), "ws": over_websocket(url)}
    async with client_over(ways[transport], mode, told) as client:
        yield client


def _child() -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=["-m", "tests.conformance.serve_stdio", "--noisy"], cwd=str(ROOT)
    )


def client_over(
    way: Any, mode: str, told: ClientRecorder | None, seconds: float = LIMIT
) -> AbstractAsyncContextManager[Client]:
    told = told or ClientRecorder()
    return Client(
        way,
        mode=mode,
        read_timeout_seconds=seconds,
        log_level="debug",
        logging_callback=told.on_log,
        message_handler=told.on_message,
        elicitation_callback=told.on_elicitation,
        sampling_callback=told.on_sampling,
        list_roots_callback=told.on_roots,
    )


@asynccontextmanager
async def over_websocket(url: str, headers: Mapping[str, str] | None = None) -> AsyncGenerator[Any]:
    """The WebSocket transport, which the SDK lacks."""
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](100)

    async def receive(socket: ClientConnection) -> None:
        async with incoming:
            async for text in socket:
                message = mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False)
                await incoming.send(SessionMessage(message))

    async def send(socket: ClientConnection) -> None:
        async with outgoing:
            async for message in outgoing:
                try:
                    await socket.send(message.message.model_dump_json(by_alias=True, exclude_unset=True))
                except ConnectionClosed:
                    return

    async with (
        connect(url, subprotocols=[Subprotocol("mcp")], additional_headers=headers, proxy=None) as socket,
        anyio.create_task_group() as tasks,
    ):
        assert socket.subprotocol == "mcp"
        tasks.start_soon(receive, socket)
        tasks.start_soon(send, socket)
        async with read, write:
            yield read, write
        tasks.cancel_scope.cancel()
