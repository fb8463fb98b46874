"""The MCP server of one workspace: a port, and the workspace's endpoint at its root."""

from collections.abc import Awaitable

from starlette.types import Receive, Scope, Send

from rookery.api.doors import Doors, Place
from rookery.daemon.endpoint_ports import Held
from rookery.daemon.parts import limits_of
from rookery.daemon.settings import Settings
from rookery.system.errors import RookeryError
from rookery.wire.gate import Tokens, tcp_judge
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.lane import Lane
from rookery.wire.listener import LOOPBACK, Listener
from rookery.workspaces.record import Workspace

_SERVED = frozenset({b"/mcp", b"/sse", b"/messages", b"/ws"})
_NOTHING = WireError(
    INVALID_REQUEST, "there is nothing at this path: the MCP server of a workspace has /mcp, /sse and /ws"
)
# Of the files that this process may open; there may be many such servers.
_SHARE, _LEAST_CONNECTIONS = 16, 64


class Root:
    """An ASGI app: what one place of the doors serves, at the root, and nothing else."""

    def __init__(self, doors: Doors, place: Place) -> None:
        self._doors, self._place = doors, place

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"] not in _SERVED:
            return Http(scope, receive, send).refuse(404, _NOTHING)
        scope["state"]["place"] = self._place
        return self._doors(scope, receive, send)

    def lane(self, scope: Scope) -> Lane | None:
        scope["state"]["place"] = self._place
        return self._doors.lane(scope)


class WorkspaceServer:
    """`error` tells why it does not run, or what else its user has to know."""

    def __init__(self, workspace: Workspace, doors: Doors, tokens: Tokens, settings: Settings) -> None:
        self.workspace = workspace
        self.port: int | None = None
        self.error: str | None = None
        self._doors, self._tokens, self._settings = doors, tokens, settings
        self._listener: Listener | None = None

    @property
    def running(self) -> bool:
        return self.port is not None

    @property
    def url(self) -> str | None:
        return f"http://{LOOPBACK}:{self.port}/mcp" if self.port is not None else None

    async def start(self, held: Held, place: Place) -> None:
        """Serve on a socket that is held already."""
        judge = tcp_judge(held.port, self._tokens, require_token=self._settings.auth == "token")
        limits = limits_of(self._settings, _SHARE, _LEAST_CONNECTIONS)
        listener = Listener(held.socket, Root(self._doors, place), judge, limits)
        try:
            await listener.start()
        except BaseException:
            held.socket.close()
            raise
        self._listener, self.port = listener, held.port
        if held.before is not None:
            self.error = (
                f"port {held.before} is held by another program; now at {held.port}: "
                "bring the configs of clients up to date with rookery client install"
            )

    def failed(self, error: Exception) -> None:
        told = [error.message, error.remedy] if isinstance(error, RookeryError) else [str(error)]
        self.error = "; ".join(filter(None, told))

    def leave(self) -> None:
        """Give the port back; whoever is being answered still is."""
        self.port = None
        if self._listener is not None:
            self._listener.leave()

    async def stop(self, seconds: float) -> None:
        self.port = None
        if self._listener is not None:
            await self._listener.stop(seconds)
