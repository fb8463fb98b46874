"""The daemon's services, in the order they are started."""

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

from rookery.daemon.settings import Settings
from rookery.system import metrics, places, processes
from rookery.system.files import remove
from rookery.system.leftovers import Instance, Register, end_leftovers
from rookery.system.spawn import Spawner
from rookery.system.store import Store
from rookery.wire.front import Limits
from rookery.wire.gate import Tokens, socket_judge, tcp_judge
from rookery.wire.listener import LOOPBACK, Listener, bind_port, bind_unix, port_taken, socket_path
from rookery.wire.peers import with_peers

logger = logging.getLogger("rookery.daemon")

_FIRST_PORT = 7777
_PORTS_TO_TRY = 100


@dataclass
class ChildrenService:
    """Ends what a killed daemon left, and at the end everything that this one started."""

    state: Path
    spawner: Spawner
    tell: Callable[[str], None]
    name: str = "children"
    needs: Sequence[str] = ()
    _unfinished: list[Instance] = field(default_factory=list[Instance])
    _here: Instance | None = None

    async def start(self) -> None:
        register = Register(self.state)
        earlier = register.earlier()
        here = self._here = {
            "id": self.spawner.instance,
            "boot": processes.boot_id(),
            "started": processes.started(os.getpid()),
        }
        register.write([*earlier, here])
        if not earlier:
            return
        self.tell("looking for what an earlier daemon left running")
        ended, self._unfinished = await end_leftovers(earlier)
        if ended:
            logger.warning("ended %d processes that an earlier daemon left: %s", len(ended), ended)
        if self._unfinished:
            logger.error("processes of an earlier daemon did not end; the next start tries again")
        register.write([*self._unfinished, here])

    async def stop(self) -> None:
        if not await self.spawner.stop_all() and self._here is not None:
            logger.error("processes that we started did not end; the next start tries again")
            self._unfinished.append(self._here)
        Register(self.state).write(self._unfinished)


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
    """The app port and the Unix socket."""

    state: Path
    settings: Settings
    store: Store
    tokens: Tokens
    app: ASGIApp
    # Called when it stops, while clients can still be told so.
    closing: Sequence[Callable[[], None]]
    # Told the port, before the first request.
    bound: Callable[[int], None]
    name: str = "http"
    needs: Sequence[str] = ("gateway",)
    port: int = 0
    socket_file: Path = Path()
    _listeners: list[Listener] = field(default_factory=list[Listener])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        # There are two of these listeners.
        limits = limits_of(self.settings, 4, 8)
        tcp = await self._bind()
        self.port = tcp.getsockname()[1]
        self.bound(self.port)
        judge = tcp_judge(self.port, self.tokens, require_token=self.settings.auth == "token")
        self._listeners.append(Listener(tcp, self.app, judge, limits))
        self.socket_file = socket_path(self.state, lambda: _short_folder(self.state))
        self._listeners.append(Listener(bind_unix(self.socket_file), with_peers(self.app), socket_judge, limits))
        for listener in self._listeners:
            await listener.start()
        metrics.gauge("rookery_http_connections", "Open connections.", self._connections)

    async def _bind(self) -> socket.socket:
        """Whatever is bound is ours; nothing is looked for first and bound later."""
        wanted = self.settings.http.port
        last: int | None = await self.store.read(
            lambda db: (db.execute("SELECT port FROM ports WHERE name = 'app'").fetchone() or (None,))[0]
        )
        usual = [*([last] if last else []), *range(_FIRST_PORT, _FIRST_PORT + _PORTS_TO_TRY), 0]
        made = next(filter(None, map(bind_port, [wanted] if wanted else usual)), None)
        if made is None:
            raise port_taken(wanted)
        port = made.getsockname()[1]
        if last and not wanted and port != last:
            logger.warning("port %d is held by another program; now at %d: client configs may need a look", last, port)
        if port != last:
            await self.store.write(lambda db: db.execute("INSERT OR REPLACE INTO ports VALUES ('app', ?)", (port,)))
        return made

    def _connections(self) -> float:
        return sum(len(listener.door.connections) for listener in self._listeners)

    async def stop(self) -> None:
        for close in self.closing:
            close()
        for listener in self._listeners:
            await listener.stop(self.settings.daemon.stop_seconds / 3)
        if self.socket_file != Path():
            remove(self.socket_file)


def limits_of(settings: Settings, share: int, least: int) -> Limits:
    """What one listener may take: connections must leave files for everything else, so that it gets a share of them."""
    given = settings.limits
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Limits(
        header_bytes=given.header_bytes,
        header_seconds=given.header_seconds,
        body_bytes=given.body_bytes,
        body_seconds=given.body_seconds,
        write_seconds=given.write_seconds,
        keep_alive_seconds=given.keep_alive_seconds,
        connections=max(min(given.connections, files // share), least),
    )


def _short_folder(state: Path) -> Path:
    """A folder of this user's for a socket whose own path would be too long."""
    name = f"rookery-{os.getuid()}-{sha256(str(state).encode()).hexdigest()[:12]}"
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return places.ensure_private_folder(Path(base) / name, may_be_link=False)
