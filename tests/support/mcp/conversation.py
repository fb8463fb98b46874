"""Playbooks: conversations with the server side of the protocol, message by message.

    assert await (client >> call(1, "hang") << told("notifications/progress", progress=1) >> cancel(1))

`>>` is a message that the client sends, or a function that is called. `<<` is the next message that the client
receives; it must receive no other. There are no sockets and no timers: after a few turns of the loop all messages of
both sides have been delivered.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Self

import msgspec

from rookery.wire.protocol.provider import Provider
from rookery.wire.protocol.sealed_state import Seal
from rookery.wire.server.duplex import DuplexConnection
from rookery.wire.server.service import Service
from rookery.wire.server.session import Sessions
from tests.support.clock import SetClock

_TURNS = 50


class ConversationClient:
    """One client and its playbook, which is played when it is awaited."""

    def __init__(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        self.take = take
        self.steps: list[tuple[str, Any]] = []
        self.heard: list[bytes] = []
        self._unread: list[Any] = []
        self._told: list[str] = []

    async def hear(self, data: bytes) -> None:
        self.heard.append(data)
        self._unread.append(json.loads(data))

    def __rshift__(self, said: Any) -> Self:
        self.steps.append((">>", said))
        return self

    def __lshift__(self, expected: Any) -> Self:
        self.steps.append(("<<", expected))
        return self

    def __await__(self) -> Generator[Any, None, bool]:
        return self._play().__await__()

    async def _play(self) -> bool:
        __tracebackhide__ = True
        steps, self.steps = self.steps, []
        for arrow, step in steps:
            if arrow == "<<":
                self._compare(step)
            else:
                self._compare_silence()
                self._told.append(f">> {step}")
                await self._say(step)
        self._compare_silence()
        return True

    async def _say(self, said: Any) -> None:
        if callable(said):
            said()
        else:
            await self.take(msgspec.json.encode(said, enc_hook=lambda placeholder: placeholder.value))
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def _compare(self, expected: Any) -> None:
        __tracebackhide__ = True
        heard = self._unread.pop(0) if self._unread else "nothing"
        assert expected == heard, "\n".join([*self._told, f"expected << {expected}", f"heard << {heard}"])
        self._told.append(f"<< {heard}")

    def _compare_silence(self) -> None:
        __tracebackhide__ = True
        assert not self._unread, "\n".join([*self._told, *(f"heard, unexpected << {each}" for each in self._unread)])


class Conversation:
    """A service on a clock that stands still, with clients that have a connection each."""

    def __init__(self, provider: Provider, **limits: Any) -> None:
        self.clock = SetClock()
        self.sessions = Sessions(provider, clock=self.clock, **limits)
        self.service = Service(provider, self.sessions, Seal(self.clock))
        self.peers: dict[ConversationClient, DuplexConnection] = {}

    def client(self, owner: str = "owner", *, modern: bool = True) -> ConversationClient:
        made = ConversationClient(lambda data: self.peers[made].handle_frame(data))
        self.peers[made] = DuplexConnection(self.service, owner, made.hear, modern=modern)
        return made


@asynccontextmanager
async def start_conversation(provider: Provider, **limits: Any) -> AsyncGenerator[Conversation]:
    """Start a conversation; at the end every playbook was played, and no listener or subscription is left."""
    stage = Conversation(provider, **limits)
    try:
        yield stage
    finally:
        for peer in stage.peers.values():
            await peer.end(lost=True)
        stage.service.close()
    assert not any(talker.steps for talker in stage.peers)
    assert not provider.changes.watched and not provider.changes._listeners
