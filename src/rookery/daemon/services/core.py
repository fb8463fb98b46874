"""The services that all others need, in the order of their start: children, store, HTTP."""

import functools
import logging
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from starlette.types import ASGIApp

from rookery.daemon.callers import Callers
from rookery.daemon.settings.schema import LOOPBACK_WARNING, Settings
from rookery.system import metrics
from rookery.system.fs import paths
from rookery.system.fs.atomic import remove_file
from rookery.system.process.leftovers import Instance, InstanceRegistry, stop_leftovers, this_instance
from rookery.system.process.spawn import Spawner
from rookery.system.store import Store
from rookery.wire.http.auth import ANYBODY, make_socket_authenticator, wrap_with_peer_context
from rookery.wire.http.connection import HttpLimits
from rookery.wire.http.listener import (
    LOOPBACK_ADDRESS,
    Listener,
    bind_port,
    bind_unix,
    choose_socket_path,
    make_port_taken_error,
)
from rookery.wire.shares import ShareLimits, Shares

logger = logging.getLogger("rookery.daemon")

_FIRST_PORT = 7777
_PORTS_TO_TRY = 100


@dataclass
class ChildrenService:
    """Ends the processes that a killed daemon left, and at the stop all processes that this daemon started."""

    state: Path
    spawner: Spawner
    report_progress: Callable[[str], None]
    # Whether the state folder still belongs to this daemon; the folder of another is not written to.
    owns_state: Callable[[], bool] = lambda: True
    name: str = "children"
    needs: Sequence[str] = ()
    problems: list[str] = field(default_factory=list[str])
    _unfinished: list[Instance] = field(default_factory=list[Instance])
    _instance: Instance | None = None

    async def start(self) -> None:
        register = InstanceRegistry(self.state)
        earlier = register.load_current_boot()
        self.spawner.earlier_instances = frozenset(record["id"] for record in earlier)
        self.problems += register.problems
        instance = self._instance = this_instance(self.spawner.instance)
        register.write([*earlier, instance])
        if not earlier:
            return
        self.report_progress("looking for processes that an earlier daemon left running")
        ended, self._unfinished = await stop_leftovers(earlier)
        if ended:
            logger.warning("ended %d processes that an earlier daemon left: %s", len(ended), ended)
        if self._unfinished:
            logger.error("processes of an earlier daemon did not end; the next start tries again")
        register.write([*self._unfinished, instance])

    async def stop(self) -> None:
        if not await self.spawner.stop_all() and self._instance is not None:
            logger.error("processes of this daemon did not end; the next start tries again")
            self._unfinished.append(self._instance)
        if self.owns_state():
            InstanceRegistry(self.state).write(self._unfinished)


@dataclass
class StoreService:
    store: Store
    name: str = "store"
    needs: Sequence[str] = ("children",)

    async def start(self) -> None:
        await self.store.open()

    async def stop(self) -> None:
        await self.store.close()


@dataclass
class HttpService:
    """Listens on the app port and the Unix socket."""

    state: Path
    settings: Settings
    store: Store
    callers: Callers
    app: ASGIApp
    shares: Shares
    # Called at the stop, while clients can still be notified.
    on_closing: Sequence[Callable[[], None]]
    # Called with the port, before the first request.
    on_bound: Callable[[int], None]
    name: str = "http"
    needs: Sequence[str] = ("gateway",)
    port: int = 0
    socket_file: Path = Path()
    _listeners: list[Listener] = field(default_factory=list[Listener])
    _socket_identity: tuple[int, int] | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK_ADDRESS}:{self.port}"

    async def start(self) -> None:
        # The app port and the socket may each use up to a quarter of the file descriptors.
        limits = listener_limits(self.settings, 4, 8)
        tcp = await self._bind()
        self.port = tcp.getsockname()[1]
        self.on_bound(self.port)
        self._listeners.append(listen_on_port(tcp, self.app, self.callers, limits, self.shares))
        if self.callers.allows_tokenless:
            logger.warning("%s", LOOPBACK_WARNING)
        self.socket_file = choose_socket_path(self.state, lambda: _short_folder(self.state))
        self._listeners.append(self._listen_unix(limits))
        for listener in self._listeners:
            await listener.start()
        metrics.gauge("rookery_http_connections", "Open connections.", self._connections)

    async def _bind(self) -> socket.socket:
        """Return a bound socket. Ports are bound without a check first, so no other program can take one meanwhile."""
        configured = self.settings.http.port
        last: int | None = await self.store.read(
            lambda db: (db.execute("SELECT port FROM ports WHERE name = 'app'").fetchone() or (None,))[0]
        )
        candidates = [*([last] if last else []), *range(_FIRST_PORT, _FIRST_PORT + _PORTS_TO_TRY), 0]
        bound = next(filter(None, map(bind_port, [configured] if configured else candidates)), None)
        if bound is None:
            raise make_port_taken_error(configured)
        port = bound.getsockname()[1]
        if last and not configured and port != last:
            logger.warning(
                "port %d is in use by another program; the daemon now uses %d: client configs may need an update",
                last,
                port,
            )
        if port != last:
            await self.store.write(lambda db: db.execute("INSERT OR REPLACE INTO ports VALUES ('app', ?)", (port,)))
        return bound

    def _listen_unix(self, limits: HttpLimits) -> Listener:
        bound = bind_unix(self.socket_file)
        self._socket_identity = _read_file_id(self.socket_file)
        authenticate = make_socket_authenticator(ANYBODY)
        identify = self.callers.authenticator_for_socket
        return Listener(bound, wrap_with_peer_context(self.app), authenticate, limits, self.shares, identify=identify)

    def has_socket(self) -> bool:
        """Return whether the socket at its path is still the one that this daemon bound."""
        return self._socket_identity is not None and _read_file_id(self.socket_file) == self._socket_identity

    async def bind_socket_again(self) -> None:
        """Listen on a new socket at the same path. Connections over the old one continue."""
        listener = self._listen_unix(listener_limits(self.settings, 4, 8))
        self._listeners.append(listener)
        await listener.start()

    def remove_socket(self) -> None:
        """Remove the socket, unless another daemon has replaced it."""
        if self.has_socket():
            remove_file(self.socket_file)

    def _connections(self) -> float:
        return sum(len(listener.pool.connections) for listener in self._listeners)

    async def stop(self) -> None:
        for close in self.on_closing:
            close()
        for listener in self._listeners:
            await listener.stop(self.settings.daemon.stop_seconds / 3)
        self.remove_socket()


def _read_file_id(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def listen_on_port(sock: socket.socket, app: ASGIApp, callers: Callers, limits: HttpLimits, shares: Shares) -> Listener:
    """Return the listener for a TCP socket. The connecting process is identified only if no token is required."""
    port: int = sock.getsockname()[1]
    identify = functools.partial(callers.authenticator_for_address, port) if callers.allows_tokenless else None
    return Listener(sock, app, callers.authenticator_for_port(port), limits, shares, identify_address=identify)


def listener_limits(settings: Settings, share: int, minimum: int) -> HttpLimits:
    """Return the limits of one listener: its connections may use one `share`-th of all file descriptors.

    The rest is left for other uses.
    """
    limits = settings.limits
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return HttpLimits(
        header_bytes=limits.header_bytes,
        header_seconds=limits.header_seconds,
        body_bytes=limits.body_bytes,
        body_seconds=limits.body_seconds,
        write_seconds=limits.write_seconds,
        keep_alive_seconds=limits.keep_alive_seconds,
        connections=max(min(limits.connections, files // share), minimum),
    )


def share_limits(settings: Settings) -> ShareLimits:
    """Return the limits of what one workspace's token may hold."""
    limits = settings.limits
    return ShareLimits(
        connections=limits.connections_each,
        streams=limits.streams_each,
        sessions=limits.sessions_each,
        held_bytes=limits.held_bytes_each,
        held_bytes_in_all=limits.held_bytes,
    )


def _short_folder(state: Path) -> Path:
    """Return a private folder of this user for a socket whose usual path would be too long."""
    name = f"rookery-{os.getuid()}-{sha256(str(state).encode()).hexdigest()[:12]}"
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return paths.ensure_private_folder(Path(base) / name, allow_link=False)
