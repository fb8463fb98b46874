"""Requests to HTTP servers over kept connections, without redirects and cookies.

A new connection is made to the first address of a host that accepts one (RFC 8305).
"""

import asyncio
import contextlib
import itertools
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from rookery.system.tasks import TaskSet
from rookery.wire.http_client.connection import HttpBroken, HttpClientConnection, HttpResponse
from rookery.wire.http_client.proxy import Proxy, ProxySettings
from rookery.wire.http_client.request import HttpOrigin

# RFC 8305: the next address is tried in parallel if the previous one has not connected after this time.
_STAGGER_SECONDS = 0.25

SocketAddress = tuple[socket.AddressFamily, Any]

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_MAX_PROXY_HEAD_BYTES = 16_384
_PROXY_STATUS = re.compile(rb"HTTP/1\.\d (\d{3})[ \r]")


async def dial(host: str, port: int) -> socket.socket:
    """Return a connected socket. Raise the OSError of the first address if none accepts a connection."""
    loop = asyncio.get_running_loop()
    results = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = interleave_families([(family, address) for family, _, _, _, address in results])
    if len(addresses) == 1:
        return await _connect_address(*addresses[0])
    return await _connect_first(addresses)


def interleave_families(addresses: Sequence[SocketAddress]) -> list[SocketAddress]:
    """Return the addresses with the preferred family and the other families in turn."""
    preferred = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    pairs = itertools.zip_longest(preferred, others)
    return [address for pair in pairs for address in pair if address is not None]


async def _connect_first(addresses: Sequence[SocketAddress]) -> socket.socket:
    """Return the first socket that connects to one of the addresses, and close the others."""
    tasks = TaskSet("dial")
    attempts: list[asyncio.Task[socket.socket | OSError]] = []
    pending: set[asyncio.Task[socket.socket | OSError]] = set()
    remaining = list(addresses)
    connected: socket.socket | None = None
    try:
        while connected is None and (remaining or pending):
            if remaining:
                attempts.append(tasks.start(_try_address(*remaining.pop(0)), "address"))
                pending.add(attempts[-1])
            done, pending = await asyncio.wait(
                pending, timeout=_STAGGER_SECONDS if remaining else None, return_when=asyncio.FIRST_COMPLETED
            )
            connected = next(
                (candidate for task in done if isinstance(candidate := task.result(), socket.socket)), None
            )
    finally:
        await tasks.close()
        for task in attempts:
            if (
                not task.cancelled()
                and isinstance(candidate := task.result(), socket.socket)
                and candidate is not connected
            ):
                candidate.close()
    if connected is not None:
        return connected
    error = attempts[0].result()
    assert isinstance(error, OSError)
    raise error


async def _try_address(family: socket.AddressFamily, address: Any) -> socket.socket | OSError:
    try:
        return await _connect_address(family, address)
    except OSError as error:
        return error


async def _connect_address(family: socket.AddressFamily, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_tunnel(sock: socket.socket, origin: HttpOrigin, proxy: Proxy) -> None:
    """Ask a proxy to connect `sock` to an origin. Raise HttpBroken if it refuses."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, proxy.write_connect(origin))
    head = b""
    while b"\r\n\r\n" not in head:
        data = await loop.sock_recv(sock, 4096)
        if not data or len(head) > _MAX_PROXY_HEAD_BYTES:
            raise HttpBroken(f"the proxy {proxy} sent no response to CONNECT {origin.host}")
        head += data
    status = _PROXY_STATUS.match(head)
    if status is not None and not status[1].startswith(b"2"):
        hint = "; it requires other credentials" if status[1] == b"407" else ""
        raise HttpBroken(f"the proxy {proxy} refused a connection to {origin.host}: HTTP {status[1].decode()}{hint}")
    # In a tunnel the client speaks first, so nothing may follow the head.
    if status is None or not head.endswith(b"\r\n\r\n"):
        raise HttpBroken(f"the proxy {proxy} sent an invalid response to CONNECT {origin.host}")


class HttpClient:
    """An HTTP client for any number of servers. Each origin has as many connections as concurrent requests.

    `dial` returns a connected socket for a host and a port. `proxies` are used for all origins but this machine.
    """

    def __init__(
        self,
        dial: Callable[[str, int], Awaitable[socket.socket]] = dial,
        *,
        proxies: ProxySettings | None = None,
    ) -> None:
        self._dial = dial
        self._proxies = proxies
        self._loop = asyncio.get_running_loop()
        self._idle: dict[HttpOrigin, list[HttpClientConnection]] = {}
        self._connections: set[HttpClientConnection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._ssl_context: ssl.SSLContext | None = None
        self._ssl_lock = asyncio.Lock()
        self._all_closed = asyncio.Event()
        self._closed = False

    async def send(self, origin: HttpOrigin, request: bytes, *, idempotent: bool = False) -> HttpResponse:
        """Send a request and return the response as soon as its head has arrived. The caller closes the response.

        Raise OSError if there is no response, ValueError for an invalid one. An `idempotent` request may arrive twice:
        it is sent again if a kept connection turns out to be dead.
        """
        proxy = self._proxies.find(origin) if self._proxies is not None else None
        if proxy is not None and not origin.tls:
            request = proxy.rewrite(origin, request)
        while idle := self._idle.get(origin):
            connection = idle.pop()
            if connection.transport.is_closing() or connection.idle_until <= self._loop.time():
                connection.abort()
                continue
            try:
                return await connection.send(request)
            except OSError:
                if not idempotent or connection.has_received:
                    raise
        return await (await self._connect(origin, proxy)).send(request)

    def try_post(self, origin: HttpOrigin, request: bytes, on_change: Callable[[], None]) -> HttpResponse | None:
        """Send a request now over a kept connection; return None, without any effect, if there is none.

        See `HttpClientConnection.post`. The caller closes the response.
        """
        if self._proxies is not None and not origin.tls and self._proxies.find(origin) is not None:
            return None  # the request would have to be written for the proxy
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.transport.is_closing() and connection.idle_until > self._loop.time():
                return connection.post(request, on_change)
            connection.abort()
        return None

    async def close(self) -> None:
        """Close all connections, which ends every running request."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in self._connections:
            connection.abort()
        if self._connections:
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._all_closed.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Opening connections

    async def _connect(self, origin: HttpOrigin, proxy: Proxy | None) -> HttpClientConnection:
        if self._closed:
            raise HttpBroken("the client is closed")
        through = f" through the proxy {proxy}" if proxy is not None else ""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._open_connection(origin, proxy)
        except TimeoutError:
            raise HttpBroken(f"no connection to {origin.host}{through} within {_CONNECT_SECONDS:g} s") from None

    async def _open_connection(self, origin: HttpOrigin, proxy: Proxy | None) -> HttpClientConnection:
        trust = await self._get_ssl_context() if origin.tls else None
        sock = await self._dial_named(origin.host, origin.port) if proxy is None else await self._dial_proxy(proxy)
        if proxy is not None and origin.tls:
            try:
                await _open_tunnel(sock, origin, proxy)
            except BaseException:
                sock.close()
                raise
        connection = HttpClientConnection(partial(self._keep, origin), self._on_lost)
        await self._loop.create_connection(
            lambda: connection,
            sock=sock,
            ssl=trust,
            server_hostname=origin.host if origin.tls else None,
        )
        if self._closed:
            connection.abort()
        if not connection.transport.is_closing():
            self._connections.add(connection)
        return connection

    async def _dial_named(self, host: str, port: int) -> socket.socket:
        try:
            return await self._dial(host, port)
        except socket.gaierror as error:
            raise HttpBroken(f"the name {host} cannot be resolved: {error.strerror}") from None

    async def _dial_proxy(self, proxy: Proxy) -> socket.socket:
        try:
            return await self._dial_named(proxy.host, proxy.port)
        except OSError as error:
            raise HttpBroken(f"the proxy {proxy} cannot be reached: {error}") from None

    async def _get_ssl_context(self) -> ssl.SSLContext:
        """Return the TLS context with the system's certificates: hundreds, read once and in a thread."""
        async with self._ssl_lock:
            if self._ssl_context is None:
                self._ssl_context = await asyncio.to_thread(ssl.create_default_context)
                self._ssl_context.set_alpn_protocols(["http/1.1"])
            return self._ssl_context

    # Keeping connections

    def _keep(self, origin: HttpOrigin, connection: HttpClientConnection) -> None:
        if self._closed:
            return
        # A server that states how long it keeps a connection may count from an earlier moment.
        seconds = (
            _IDLE_SECONDS
            if connection.server_idle_seconds is None
            else min(_IDLE_SECONDS, connection.server_idle_seconds - 1)
        )
        connection.idle_until = self._loop.time() + seconds
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle too long. One timer serves all, as most connections are used again."""
        now = self._loop.time()
        for origin, connections in list(self._idle.items()):
            for connection in connections:
                if connection.idle_until <= now:
                    connection.transport.close()
            self._idle[origin] = [connection for connection in connections if not connection.transport.is_closing()]
            if not self._idle[origin]:
                del self._idle[origin]
        self._sweeper = self._loop.call_later(_IDLE_SECONDS / 2, self._sweep) if self._idle else None

    def _on_lost(self, connection: HttpClientConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()
