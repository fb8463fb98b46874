"""Sockets that are bound before anybody is told about them, and the listener that serves them."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from starlette.types import ASGIApp

from rookery.system import processes
from rookery.system.errors import RookeryError
from rookery.wire.door import Door, Limits
from rookery.wire.front import Front
from rookery.wire.gate import Judge, Peer, Principal

LOOPBACK = "127.0.0.1"
_BACKLOG = 512
_LONGEST_SOCKET_PATH = 100


def bind_port(port: int, *, silence: tuple[int, int, int] = (30, 10, 3)) -> socket.socket | None:
    """A socket bound to 127.0.0.1:port (0: any), None if somebody else holds that port.

    A client that has gone without a word is noticed by `silence`: the seconds until it is asked for a sign of life,
    the seconds between asking again, and how often.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # On POSIX this re-takes a port in TIME_WAIT, and never one that is being listened on.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            # Connections inherit it from the socket that accepted them.
            for option, value in zip(
                (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT), silence, strict=True
            ):
                made.setsockopt(socket.IPPROTO_TCP, option, value)
        made.bind((LOOPBACK, port))
        # Two sockets may be bound to one port until the first listens, so that only this tells whose it is.
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    made.setblocking(False)
    return made


def bind_unix(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from its first moment. The caller holds the lock that makes it ours."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        made.bind(str(path))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(mask)
    made.setblocking(False)
    return made


def socket_path(state: Path, fallback: Callable[[], Path]) -> Path:
    """`<state>/rookery.sock`, or one in `fallback` where that is longer than the system allows."""
    wanted = state / "rookery.sock"
    return wanted if len(os.fsencode(wanted)) <= _LONGEST_SOCKET_PATH else fallback() / "rookery.sock"


def peer_uid(connected: socket.socket) -> int | None:
    """The user at the other end of a Unix socket, None where the system does not tell."""
    if sys.platform == "linux":
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return struct.unpack("3i", packed)[1]
    if sys.platform == "darwin":
        packed = connected.getsockopt(0, 1, struct.calcsize("IIh16I"))  # LOCAL_PEERCRED: struct xucred
        return struct.unpack_from("II", packed)[1]
    return None


def peer_of(connected: socket.socket) -> Peer | None:
    """The process at the other end of a Unix socket, None where it has gone or the system does not tell.

    Its pid is worth something only with the moment it started, which is why this is asked at once.
    """
    try:
        if sys.platform == "linux":
            packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        elif sys.platform == "darwin":
            packed = connected.getsockopt(0, 2, struct.calcsize("i"))  # LOCAL_PEERPID
        else:
            return None
        pid: int = struct.unpack_from("i", packed)[0]
        return Peer(pid, processes.started(pid))
    except (OSError, psutil.Error):
        return None


class _UnixFront(Front):
    """Refuses, before a byte is read, everybody but the user that the daemon runs as, and tells which process calls."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = transport.get_extra_info("socket")
        try:
            uid = peer_uid(connected)
        except OSError:  # it has gone already, and what it left behind is nobody's
            uid = -1
        self._peer = peer_of(connected)
        super().connection_made(transport)
        if uid is not None and uid != os.getuid():
            self.cut("foreign-uid")

    def _state(self, principal: Principal) -> dict[str, Any]:
        return {"principal": principal, "peer": self._peer}


class Listener:
    """Serves an app on one bound socket."""

    def __init__(self, sock: socket.socket, app: ASGIApp, judge: Judge, limits: Limits) -> None:
        self.door = Door(app, judge, limits)
        self._socket = sock
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        front = _UnixFront if self._socket.family == socket.AF_UNIX else Front
        loop = asyncio.get_running_loop()
        if front is _UnixFront:
            self._server = await loop.create_unix_server(lambda: front(self.door), sock=self._socket, backlog=_BACKLOG)
        else:
            self._server = await loop.create_server(lambda: front(self.door), sock=self._socket, backlog=_BACKLOG)

    def leave(self) -> None:
        """Give the port back and accept nobody any more; running requests go on."""
        self.door.closing = True
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self.door.connections):
            connection.shut_down()

    async def stop(self, seconds: float) -> None:
        """Accept nobody any more, let running requests end for `seconds`, then cut them off."""
        self.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.door.empty.wait()
        for connection in list(self.door.connections):
            connection.cut("shutdown")
        await self.door.empty.wait()
        await self.door.tasks.close()


def port_taken(port: int) -> RookeryError:
    what = f"port {port} of 127.0.0.1 is" if port else "all ports of 127.0.0.1 are"
    return RookeryError(
        "port-taken",
        f"{what} held by another program",
        "end that program, or choose another port: --port, or rookery config set http.port 0",
    )
