"""Listening sockets, bound before their address is published, and the listener that serves them."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
from starlette.types import ASGIApp

from rookery.system.errors import RookeryError
from rookery.system.process import table
from rookery.wire.http.auth import ANYBODY, Authenticate, PeerProcess, Principal, make_socket_authenticator
from rookery.wire.http.connection import HttpServerConnection
from rookery.wire.http.pool import ConnectionPool, HttpLimits
from rookery.wire.shares import Shares

LOOPBACK_ADDRESS = "127.0.0.1"
_BACKLOG = 512
_LONGEST_SOCKET_PATH = 100


def bind_port(port: int, *, keep_alive: tuple[int, int, int] = (30, 10, 3)) -> socket.socket | None:
    """Return a listening socket on 127.0.0.1:port (0: any port), or None if another program holds the port.

    `keep_alive` configures TCP keep-alive, which detects a client that is gone without closing: the idle seconds before
    the first probe, the seconds between probes, and their number.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # On POSIX this takes a port in TIME_WAIT, but never one that another socket listens on.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            # Accepted connections inherit these options.
            for option, value in zip(
                (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT), keep_alive, strict=True
            ):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.bind((LOOPBACK_ADDRESS, port))
        # Two sockets may be bound to one port until the first one listens, so only `listen` shows who owns the port.
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    sock.setblocking(False)
    return sock


def bind_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket at `path`, with mode 0600 from the start.

    The caller holds the lock that guards the path. A socket file that exists is replaced.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(str(path))
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(mask)
    sock.setblocking(False)
    return sock


def choose_socket_path(state: Path, fallback: Callable[[], Path]) -> Path:
    """Return `<state>/rookery.sock`, or a path in `fallback` if that is longer than the system allows."""
    preferred = state / "rookery.sock"
    return preferred if len(os.fsencode(preferred)) <= _LONGEST_SOCKET_PATH else fallback() / "rookery.sock"


def read_peer_uid(sock: socket.socket) -> int | None:
    """Return the uid of the peer of a Unix socket, or None if the system does not report it."""
    if sys.platform == "linux":
        packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return struct.unpack("3i", packed)[1]
    if sys.platform == "darwin":
        packed = sock.getsockopt(0, 1, struct.calcsize("IIh16I"))  # LOCAL_PEERCRED: struct xucred
        return struct.unpack_from("II", packed)[1]
    return None


def read_peer_process(sock: socket.socket) -> PeerProcess | None:
    """Return the peer process of a Unix socket, or None if it has ended or the system does not report it.

    A pid identifies a process only together with its start time, so both are read when the connection is made.
    """
    try:
        if sys.platform == "linux":
            packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        elif sys.platform == "darwin":
            packed = sock.getsockopt(0, 2, struct.calcsize("i"))  # LOCAL_PEERPID
        else:
            return None
        pid: int = struct.unpack_from("i", packed)[0]
        return PeerProcess(pid, table.start_time(pid))
    except (OSError, psutil.Error):
        return None


# Choose how a connection is authenticated: by its peer on the Unix socket, by its address on a TCP port.
IdentifyPeer = Callable[[PeerProcess | None], Awaitable[Authenticate]]
IdentifyAddress = Callable[[tuple[str, int]], Awaitable[Authenticate]]


class _IdentifiedConnection(HttpServerConnection):
    """A connection that processes no data until its peer is identified."""

    def wait_for_authenticator(self, authenticator: Awaitable[Authenticate]) -> None:
        """Buffer all data until `authenticator` returns the authentication of this connection."""
        self.authenticate = make_socket_authenticator(ANYBODY)
        # Pausing alone is not enough: the loop may have started to read.
        self._early: list[bytes] = []
        self._feed = self._buffer
        self.pool.tasks.start(self._set_authenticator(authenticator), "identify")

    def can_parse_at_once(self, size: int) -> bool:
        return self._feed == self._buffer or super().can_parse_at_once(size)

    def _buffer(self, data: bytes) -> None:
        self._early.append(data)
        self.set_reading(False)

    async def _set_authenticator(self, authenticator: Awaitable[Authenticate]) -> None:
        try:
            self.authenticate = await authenticator
        finally:
            self._feed = None
            self.set_reading(True)
            if self._early and not self.transport.is_closing():
                self.data_received(b"".join(self._early))


class _UnixConnection(_IdentifiedConnection):
    """A connection of the Unix socket. Refuses every user but that of the daemon before any data is read."""

    def __init__(self, pool: ConnectionPool, identify: IdentifyPeer | None) -> None:
        super().__init__(pool)
        self._identify = identify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = transport.get_extra_info("socket")
        try:
            uid = read_peer_uid(connected)
        except OSError:  # the peer has disconnected already
            uid = -1
        self._peer = read_peer_process(connected)
        super().connection_made(transport)
        if uid is not None and uid != os.getuid():
            self.terminate("foreign-uid")
        elif self._identify is not None:
            self.wait_for_authenticator(self._identify(self._peer))

    def _state(self, principal: Principal) -> dict[str, Any]:
        return {"principal": principal, "peer": self._peer}


class _AddressConnection(_IdentifiedConnection):
    """A TCP connection that is authenticated by the address of its peer."""

    def __init__(self, pool: ConnectionPool, identify: IdentifyAddress) -> None:
        super().__init__(pool)
        self._identify = identify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.wait_for_authenticator(self._identify(transport.get_extra_info("peername")))


class Listener:
    """Serves an app on one bound socket.

    `identify` (Unix socket) and `identify_address` (TCP port) choose the authentication of each connection once, when
    it is made. Without them `authenticate` authenticates all connections.
    """

    def __init__(
        self,
        sock: socket.socket,
        app: ASGIApp,
        authenticate: Authenticate,
        limits: HttpLimits,
        shares: Shares | None = None,
        *,
        identify: IdentifyPeer | None = None,
        identify_address: IdentifyAddress | None = None,
    ) -> None:
        self.pool = ConnectionPool(app, authenticate, limits, shares)
        self._socket = sock
        self._identify = identify
        self._identify_address = identify_address
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._socket.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(
                lambda: _UnixConnection(self.pool, self._identify), sock=self._socket, backlog=_BACKLOG
            )
        else:
            self._server = await loop.create_server(self._make_connection, sock=self._socket, backlog=_BACKLOG)

    def _make_connection(self) -> HttpServerConnection:
        identify = self._identify_address
        return HttpServerConnection(self.pool) if identify is None else _AddressConnection(self.pool, identify)

    def stop_accepting(self) -> None:
        """Close the listening socket and accept no more connections. Running requests continue."""
        self.pool.is_closing = True
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self.pool.connections):
            connection.shut_down()

    async def stop(self, seconds: float) -> None:
        """Accept no more connections, wait up to `seconds` for running requests, then abort them."""
        self.stop_accepting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.pool.empty.wait()
        for connection in list(self.pool.connections):
            connection.terminate("shutdown")
        await self.pool.empty.wait()
        await self.pool.tasks.close()


def make_port_taken_error(port: int) -> RookeryError:
    subject = f"port {port} of 127.0.0.1 is" if port else "all ports of 127.0.0.1 are"
    return RookeryError(
        "port-taken",
        f"{subject} in use by another program",
        "end that program, or choose another port: --port, or rookery config set http.port 0",
    )
