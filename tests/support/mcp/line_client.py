"""A client for a line-framed connection, with raw messages, and the envelopes of both eras."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from rookery.system.tasks import TaskSet
from rookery.wire.protocol import revisions
from rookery.wire.protocol.provider import Provider
from rookery.wire.server.service import Service
from rookery.wire.server.stdio import LINE_BYTES, serve_lines
from tests.support.http.listener import LIMIT, within_limit

ALL_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


def message(method: str, params: dict[str, Any] | None = None, id_: int | str | None = None) -> dict[str, Any]:
    """Return a request, or a notification if it has no id."""
    made: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    made |= {"id": id_} if id_ is not None else {}
    return made | ({"params": params} if params is not None else {})


def hello(revision: str = revisions.LATEST_HANDSHAKE, id_: int | str = "hello") -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return message(
        "initialize", {"protocolVersion": revision, "capabilities": ALL_CAPABILITIES, "clientInfo": info}, id_
    )


def enveloped(params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """Return parameters as a modern client sends them."""
    known = {
        revisions.META_VERSION: revisions.LATEST,
        revisions.META_CAPABILITIES: ALL_CAPABILITIES,
        revisions.META_CLIENT: {"name": "test", "version": "1"},
    }
    return {**(params or {}), "_meta": known | meta}


class LineClient:
    """A client of a server that reads from one stream and writes to another."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.reader = asyncio.StreamReader()
        self.heard: list[dict[str, Any]] = []
        self._unread: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, data: bytes) -> None:
        assert data.endswith(b"\n") and b"\n" not in data[:-1]
        found = json.loads(data)
        self.heard.append(found)
        self._unread.put_nowait(found)

    def send(self, *messages: Any, end: bytes = b"\n") -> None:
        """Send lines unchanged, and everything else as JSON."""
        for each in messages:
            self.reader.feed_data((each if isinstance(each, bytes) else json.dumps(each).encode()) + end)

    async def next(self) -> Any:
        return await within_limit(self._unread.get())

    async def ask(self, *messages: Any) -> Any:
        self.send(*messages)
        return await self.next()

    def hang_up(self) -> None:
        self.reader.feed_eof()


@contextlib.asynccontextmanager
async def lines_to(provider: Provider, *, line_bytes: int = LINE_BYTES) -> AsyncGenerator[LineClient]:
    made = LineClient(Service(provider))
    tasks = TaskSet("test")
    serving = tasks.start(serve_lines(made.service, made.reader, made.write, line_bytes=line_bytes), "lines")
    try:
        yield made
        made.hang_up()
        async with asyncio.timeout(LIMIT):
            await serving
    finally:
        await tasks.close()
