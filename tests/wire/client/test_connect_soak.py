"""D14: many connections of each kind, opened and closed, leave nothing behind."""

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.wire.client.connect import Era
from rookery.wire.client.http import HttpTransport, SseTransport
from rookery.wire.client.stdio import ServerProgram, StdioTransport
from rookery.wire.client.transport import ClientTransport
from rookery.wire.http_client.client import HttpClient
from tests.support.mcp.client import (
    LIMIT,
    HandshakeHandler,
    ScriptedHttpServer,
    SseHandler,
    connect,
    text,
    within_limit,
)
from tests.support.requirements import requirement
from tests.support.soak import repetitions, soak

pytestmark = pytest.mark.anyio

CYCLES = repetitions(200, 1000)
A_ROUND = repetitions(40, 200)
AT_ONCE = 8
SECONDS = 240
TABLE = 2 * 2**20

# The cheapest server there is: a shell that reads three lines, and answers the first and the last.
SCRIPT = 'read -r _; echo "$0"; read -r _; read -r _; echo "$1"; read -r _'
ANSWERS = [
    '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sh"}}}',
    '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"1"}]}}',
]
SHELL = ServerProgram("sh", ["/bin/sh", "-c", SCRIPT, *ANSWERS], Path("/"), {"PATH": os.environ["PATH"]})


async def cycle(channel: ClientTransport, known: Era, said: object) -> None:
    async with connect(channel, known=known) as met:
        assert text(await within_limit(met.client.call_tool("echo", {}))) == said


async def over_stdio(count: int) -> None:
    await repeat(count, lambda: cycle(StdioTransport(Spawner(new_id()), SHELL), "handshake", 1))


async def over_http(count: int) -> None:
    async with HttpClient() as http, ScriptedHttpServer(HandshakeHandler()) as server:
        await repeat(count, lambda: cycle(HttpTransport(http, server.url), "handshake", "done"))
        assert len(server.of("DELETE")) == count


async def over_sse(count: int) -> None:
    async with HttpClient() as http, ScriptedHttpServer(SseHandler()) as server:
        await repeat(count, lambda: cycle(SseTransport(http, server.url), "sse", "old"))
        assert len(server.of("initialize")) == count


async def repeat(count: int, once: Callable[[], Awaitable[None]]) -> None:
    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await once()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def held() -> dict[str, int]:
    """What this process holds that could be lost."""
    gc.collect()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "memory": psutil.Process().memory_info().rss,
    }


async def settled(before: dict[str, int]) -> dict[str, int]:
    """The same a little later: a socket is closed after whoever used it, and nothing tells when."""
    for _ in range(100):
        after = held()
        if after["descriptors"] <= before["descriptors"] and after["tasks"] <= before["tasks"]:
            break
        await asyncio.sleep(0.05)
    return held()


async def start_all_threads() -> None:
    """The loop's own pool grows to its cap whenever there is much to do; from here on it does not grow any more."""
    cap = min(32, (os.cpu_count() or 1) + 4)
    together = threading.Barrier(cap)
    await within_limit(asyncio.gather(*(asyncio.to_thread(together.wait, LIMIT) for _ in range(cap))))


@soak
@pytest.mark.timeout(SECONDS)
@requirement("wire.client.survives")
@pytest.mark.parametrize("way", [over_stdio, over_http, over_sse], ids=["stdio", "http", "sse"])
async def test_d14_many_connections_leave_nothing_behind(
    way: Callable[[int], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)  # what is logged is kept until the end of the test
    await start_all_threads()
    # What one round takes from the system and keeps is no loss.
    await way(A_ROUND)
    before = held()
    for _ in range(CYCLES // A_ROUND):
        await way(A_ROUND)
        gc.collect()  # how long cycles lie about is the collector's business
    after = await settled(before)
    for kind in ("descriptors", "threads", "tasks"):
        assert after[kind] <= before[kind], (kind, before, after)
    # Less than one thing for each connection, whether the collector knows it or not; of few connections less than
    # five, as the interpreter keeps some hundreds for itself. One that is lost has more.
    for kind in ("objects", "blocks"):
        assert after[kind] - before[kind] < CYCLES * repetitions(5, 1), (kind, before, after)
    # In each thread's share of the heap the interpreter's table of strings, of 2 MB, may have been and be gone again.
    assert after["memory"] - before["memory"] < after["threads"] * 2 * TABLE, (before, after)
