"""Who is at an endpoint: sessions, connections, calls that are under way, and streams of news."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rookery.wire.jsonrpc import CONNECTION_CLOSED, Notification, Request, WireError
from rookery.wire.provider import Provider
from rookery.wire.sent import Sent
from rookery.wire.sessions import Sessions
from rookery.wire.traffic import Traffic, Who

if TYPE_CHECKING:
    from rookery.wire.streams import News

Task = asyncio.Task[Any]

SHUTTING_DOWN = WireError(CONNECTION_CLOSED, "shutting down")


@runtime_checkable
class Attentive(Protocol):
    """A provider that keeps something for clients, for as long as these are there."""

    def left(self, connection: object) -> None:
        """Whoever called over this connection is gone for good."""
        ...


class Attendance:
    """`traffic` is where all that goes over it is noted, if it is."""

    def __init__(self, provider: Provider, sessions: Sessions | None = None, traffic: Traffic | None = None) -> None:
        self.provider = provider
        self.sessions = sessions if sessions is not None else Sessions(provider)
        self.traffic = traffic
        self.closing = False
        self.goodbye = SHUTTING_DOWN
        # Called when it closes, by connections that are to say goodbye.
        self.on_close: set[Callable[[], object]] = set()
        self.calls: set[Task | Sent] = set()
        # With whose they are, where that is a client without a session or a connection.
        self.subscriptions: dict[News, Who | None] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody would miss it."""
        return not (len(self.sessions) or self.calls or self.subscriptions or self.on_close)

    @property
    def connected(self) -> int:
        """How many sessions there are, and connections without one."""
        self.sessions.expire()
        return len(self.sessions) + max(0, len(self.on_close) - self.sessions.on_connections)

    def listeners(self) -> set[Who]:
        """The clients without a session that have a stream open."""
        return {who for who in self.subscriptions.values() if who is not None}

    def under_way(self) -> set[asyncio.Future[Any]]:
        """The calls that somebody waits for."""
        return {one.over() if isinstance(one, Sent) else one for one in self.calls | self.sessions.calls()}

    def join(self, goodbye: Callable[[], object]) -> None:
        """A connection has come, which is told when the endpoint closes."""
        self.on_close.add(goodbye)
        self.changed()

    def leave(self, goodbye: Callable[[], object]) -> None:
        """It has gone."""
        self.on_close.discard(goodbye)
        self.changed()

    def forget(self, connection: object) -> None:
        """Nobody comes back over it."""
        if isinstance(self.provider, Attentive):
            self.provider.left(connection)

    def changed(self) -> None:
        """Others may be here than before."""
        if self.traffic is not None:
            self.traffic.changed()

    def mention(self, message: Request | Notification, answered: bytes | None = None, code: int = 0) -> None:
        """Something was said that is no call of the provider."""
        if self.traffic is not None:
            self.traffic.mention(message, answered, code)
            self.traffic.changed()

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, every subscription with its result, and every connection."""
        self.closing = True
        self.goodbye = WireError(CONNECTION_CLOSED, reason)
        self.sessions.close_all()
        for one in self.calls:
            one.cancel(reason)
        for news in self.subscriptions:
            news.end()
        for call in list(self.on_close):
            call()
