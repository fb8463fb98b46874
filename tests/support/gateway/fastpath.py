"""A client that sends all calls on one connection with the same head, as real clients do."""

import itertools
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Raw

from rookery.wire.client.inflight import PostedRequest
from rookery.wire.server.fastpath import FastCall
from tests.support.gateway.gateway import Gateway
from tests.support.http.listener import Client
from tests.support.mcp.caller import HANDSHAKE, Caller, Message, words
from tests.support.mcp.scripted_server import ScriptedServer, text


@dataclass
class FastCallCounts:
    """Counts calls that started without a task, and those of them that needed one later."""

    begun: list[FastCall] = field(default_factory=list[FastCall])
    tasks: list[FastCall] = field(default_factory=list[FastCall])

    def count(self) -> tuple[int, int]:
        return len(self.begun), len(self.tasks)

    def clear(self) -> None:
        self.begun.clear()
        self.tasks.clear()


@contextmanager
def count_fast_calls() -> Generator[FastCallCounts]:
    made = FastCallCounts()
    send, call_task = FastCall.send, FastCall.start_task

    def note_send(self: FastCall, arguments: Raw) -> bool:
        sent = send(self, arguments)
        made.begun += [self] if sent else []
        return sent

    def note_task(self: FastCall) -> None:
        made.tasks.append(self)
        call_task(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastCall, "send", note_send)
        patch.setattr(FastCall, "start_task", note_task)
        yield made


# The first is parsed, the second is the first one with a known head.
_LEARNED = 2


class RepeatCaller:
    """Calls one tool; `heard` contains what arrived before the results."""

    def __init__(self, client: Client, caller: Caller, port: int, path: str, tool: str, token: str | None) -> None:
        self.client = client
        self._port = port
        self.caller = caller
        self.heard: list[Message] = []
        self._path = path
        self._tool = tool
        self._token = token
        self._numbers = itertools.count(1000)

    def data(self, arguments: Any = None, **more: Any) -> bytes:
        """Return a whole request; `more` contains other members of the parameters, or the `id`."""
        id_ = more.pop("id", None)
        given: Message = {"name": self._tool, "arguments": {} if arguments is None else arguments, **more}
        message = self.caller.message("tools/call", given, next(self._numbers) if id_ is None else id_)
        return self.framed(json.dumps(message, ensure_ascii=False).encode())

    def framed(self, body: bytes) -> bytes:
        lines = [f"POST {self._path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Content-Length: {len(body)}"]
        lines += ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
        lines += [f"Authorization: Bearer {self._token}"] if self._token else []
        lines.append(f"MCP-Protocol-Version: {self.caller.revision}")
        if self.caller.session is not None:
            lines.append(f"Mcp-Session-Id: {self.caller.session}")
        else:
            lines += ["Mcp-Method: tools/call", f"Mcp-Name: {self._tool}"]
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def begin(self, arguments: Any = None, **more: Any) -> None:
        await self.client.send(self.data(arguments, **more))

    async def held(self, server: ScriptedServer, arguments: Any = None, **more: Any) -> Message:
        """Start a call, and return the request as its server received it."""
        name = self._tool.partition("__")[2]
        count = len(server.calls(name))
        await self.begin(arguments, **more)
        return await server.called(name, count + 1)

    async def answer(self) -> Message:
        found = await self.client.answer()
        if found.headers.get("content-type") != "text/event-stream":
            return found.json()
        events = [
            line[5:] for line in found.body.decode().splitlines() if line.startswith("data:") and line[5:].strip()
        ]
        *before, last = [json.loads(event) for event in events]
        self.heard += before
        return last

    async def call(self, arguments: Any = None, **more: Any) -> Message:
        await self.begin(arguments, **more)
        return await self.answer()


async def open_repeat_caller(
    gateway: Gateway,
    era: str = HANDSHAKE,
    path: str = "/mcp",
    tool: str = "one__echo",
    token: str | None = None,
    **more: Any,
) -> RepeatCaller:
    """Return a client that has called often enough for its next call to need no task."""
    made = await _new(gateway, era, path, tool, token, **more)
    for _ in range(_LEARNED):
        assert "result" in await made.call()
    return made


async def open_holding_caller(
    gateway: Gateway, era: str = HANDSHAKE, tool: str = "hold", **more: Any
) -> tuple[RepeatCaller, ScriptedServer]:
    """Return a client of a tool that responds when the test wants it to, and its server `one`."""
    made = await _new(gateway, era, "/mcp", f"one__{tool}", None, **more)
    await made.caller.tools()
    server = await gateway.scripted.comes("one")
    for _ in range(_LEARNED):
        server.answer(await made.held(server), text("done"))
        assert "result" in await made.answer()
    return made, server


async def _new(gateway: Gateway, era: str, path: str, tool: str, token: str | None, **more: Any) -> RepeatCaller:
    headers = {"Authorization": f"Bearer {token}"} if token else None
    caller = await gateway.caller(path, era, headers=headers, **more)
    return RepeatCaller(await gateway.site.client(), caller, gateway.site.port, path, tool, token)


async def check_still_fast(
    gateway: Gateway, repeat: RepeatCaller, server: ScriptedServer, fast_calls: FastCallCounts
) -> None:
    """Check that nothing is left of the call, and that the next one needs no task."""
    one = await gateway.server("one")
    assert one.limiter.running == 0 and one.client is not None
    assert not any(isinstance(running, PostedRequest) for running in one.client.in_flight.requests.values())
    fast_calls.clear()
    server.answer(await repeat.held(server), text("again"))
    assert words(await repeat.answer()) == "again"
    assert fast_calls.count() == (1, 0)
