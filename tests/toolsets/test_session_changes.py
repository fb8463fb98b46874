"""Subscribers of a session are notified of its changes: merged, and without cost for others."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from rookery.sessions.records import SessionChange
from tests.support.gateway.gateway import Gateway, start_gateway
from tests.support.mcp.caller import ERAS, MODERN, Caller
from tests.support.requirements import requirement

pytestmark = pytest.mark.anyio

UPDATED = "notifications/resources/updated"
URI = "messages://ses_a"


async def change(gateway: Gateway, times: int = 1) -> None:
    for _ in range(times):
        gateway.parts.sessions.sessions._changes.notify(SessionChange("messages", "/somewhere", "ses_a"))
        await asyncio.sleep(0)


@requirement("session.resource.changes")
@pytest.mark.parametrize("era", ERAS)
async def test_a_change_is_told_to_those_who_watch_it_and_nobody_listens_for_nobody(era: str) -> None:
    async with start_gateway() as gateway:
        listeners = gateway.parts.sessions.sessions._changes._listeners
        before = len(listeners)
        caller, other = await gateway.caller("/mcp", era), await gateway.caller("/mcp?toolsets=session", era)
        await caller.listen(URI, "session://ses_a")
        await other.listen("session://ses_b")
        await change(gateway)
        await caller.hears(UPDATED, 2)
        assert {one["params"]["uri"] for one in caller.all(UPDATED)} == {URI, "session://ses_a"}
        assert other.all(UPDATED) == [] and len(listeners) == before + 2
        for one in (caller, other):
            await one.close()
            gateway.callers.remove(one)
        async with asyncio.timeout(10):
            while len(listeners) > before:  # noqa: ASYNC110 - nothing tells when a socket's end has been noticed
                await asyncio.sleep(0)


async def test_a14_a_subscriber_that_does_not_read_is_owed_little_and_keeps_nobody_waiting() -> None:
    async with start_gateway() as gateway:
        caller = await gateway.caller()
        await caller.listen(URI)
        known = set(gateway.site.connections)
        slow = await _listens_and_never_reads(gateway)
        try:
            await gateway.site.connections.reach(len(known) + 1)
            (front,) = set(gateway.site.connections) - known
            largest = 0
            for _ in range(200):
                await change(gateway, 100)
                largest = max(largest, front.transport.get_write_buffer_size())
            await caller.hears(UPDATED)
            heard = len(caller.all(UPDATED))
            await change(gateway)
            await caller.hears(UPDATED, heard + 1)
            assert largest < 200_000
        finally:
            slow.close()


async def _listens_and_never_reads(gateway: Gateway) -> socket.socket:
    wanted = {"notifications": {"resourceSubscriptions": [URI]}}
    message = Caller(gateway.http, gateway.url(), MODERN).message("subscriptions/listen", wanted)
    body = json.dumps(message).encode()
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{gateway.site.port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {MODERN}",
        "Mcp-Method: subscriptions/listen",
        f"Content-Length: {len(body)}",
    ]
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, ("127.0.0.1", gateway.site.port))
    await loop.sock_sendall(made, "\r\n".join(head).encode() + b"\r\n\r\n" + body)
    return made


@requirement("session.scope.token", "session.resource.changes")
async def test_changes_are_sent_only_within_the_scope_and_general_ones_for_each_session() -> None:
    async with start_gateway() as gateway:
        sessions, told = gateway.parts.sessions.sessions, list[str]()
        inside, outside = Path("/here"), Path("/there")
        toolset = gateway.parts.sessions.toolset(inside)
        toolset.changes.listen(lambda kind, uri: told.append(str(uri)))
        watcher, watched = object(), frozenset({"session://ses_a", "messages://ses_a"})
        toolset.watch(watcher, watched)
        for what in ("messages", "session"):
            sessions._changes.notify(SessionChange(what, str(outside), "ses_a"))
            sessions._changes.notify(SessionChange(what, str(outside), None))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert told == []
        # Such as after a gap in what is heard of an agent, or when one ends.
        sessions._changes.notify(SessionChange("session", str(inside), None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["session://ses_a"]
        sessions._changes.notify(SessionChange("messages", str(inside), None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(told[1:]) == ["messages://ses_a", "session://ses_a"]
        toolset.watch(watcher, frozenset())
