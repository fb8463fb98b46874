"""Requests to HTTP servers over connections that are kept for the next one. Follows no redirect, keeps no cookie."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self

from rookery.wire.dialing import dial
from rookery.wire.http_answer import Answer, HttpBroken
from rookery.wire.http_connection import HttpConnection
from rookery.wire.http_request import Place

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


class HttpClient:
    """One for all servers: each place has connections of its own, as many as there are requests at a time.

    `dial` makes a connected socket for a host and a port.
    """

    def __init__(self, dial: Callable[[str, int], Awaitable[socket.socket]] = dial) -> None:
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Place, list[HttpConnection]] = {}
        self._all: set[HttpConnection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None
        self._trusting = asyncio.Lock()
        self._gone = asyncio.Event()
        self._closed = False

    async def send(self, place: Place, request: bytes, *, harmless: bool = False) -> Answer:
        """The answer, once its head is there; close it. Raises OSError where there is none, ValueError for a bad one.

        A `harmless` request may arrive twice: it is sent again where a kept connection turns out to be dead.
        """
        while idle := self._idle.get(place):
            connection = idle.pop()
            if connection.transport.is_closing() or connection.idle_until <= self._loop.time():
                connection.abort()
                continue
            try:
                return await connection.ask(request)
            except OSError:
                if not harmless or connection.heard:
                    raise
        return await (await self._connect(place)).ask(request)

    async def close(self) -> None:
        """Ends every request that still runs."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in self._all:
            connection.abort()
        if self._all:
            self._gone.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._gone.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- making connections

    async def _connect(self, place: Place) -> HttpConnection:
        if self._closed:
            raise HttpBroken("the client is closed")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._make(place)
        except socket.gaierror as error:
            raise HttpBroken(f"no address of {place.host} is known: {error.strerror}") from None
        except TimeoutError:
            raise HttpBroken(f"no connection to {place.host} within {_CONNECT_SECONDS:g} s") from None

    async def _make(self, place: Place) -> HttpConnection:
        trust = await self._trusted() if place.tls else None
        connection = HttpConnection(partial(self._keep, place), self._forget)
        await self._loop.create_connection(
            lambda: connection,
            sock=await self._dial(place.host, place.port),
            ssl=trust,
            server_hostname=place.host if place.tls else None,
        )
        if self._closed:
            connection.abort()
        if not connection.transport.is_closing():
            self._all.add(connection)
        return connection

    async def _trusted(self) -> ssl.SSLContext:
        """The certificates of the system, read once and beside the loop: there are hundreds."""
        async with self._trusting:
            if self._trust is None:
                self._trust = await asyncio.to_thread(ssl.create_default_context)
                self._trust.set_alpn_protocols(["http/1.1"])
            return self._trust

    # ---- keeping them

    def _keep(self, place: Place, connection: HttpConnection) -> None:
        if self._closed:
            return
        # A server that says how long it keeps one may count from an earlier moment than we do.
        kept = _IDLE_SECONDS if connection.kept_seconds is None else min(_IDLE_SECONDS, connection.kept_seconds - 1)
        connection.idle_until = self._loop.time() + kept
        self._idle.setdefault(place, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """One timer for all of them: a connection is used again far more often than it is given up."""
        now = self._loop.time()
        for place, connections in list(self._idle.items()):
            for connection in connections:
                if connection.idle_until <= now:
                    connection.transport.close()
            self._idle[place] = [one for one in connections if not one.transport.is_closing()]
            if not self._idle[place]:
                del self._idle[place]
        self._sweeper = self._loop.call_later(_IDLE_SECONDS / 2, self._sweep) if self._idle else None

    def _forget(self, connection: HttpConnection) -> None:
        self._all.discard(connection)
        if not self._all:
            self._gone.set()
