"""The MCP server of one workspace: a port, with the workspace's endpoint at its root."""

from collections.abc import Awaitable

from starlette.types import Receive, Scope, Send

from rookery.api.endpoint.router import EndpointRouter, FindPlace
from rookery.daemon.callers import Callers
from rookery.daemon.services.core import listen_on_port, listener_limits
from rookery.daemon.services.endpoint_ports import BoundPort
from rookery.daemon.settings.schema import Settings
from rookery.system.errors import RookeryError
from rookery.wire.http.listener import LOOPBACK_ADDRESS, Listener
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.server.fastpath import FastPathMatcher
from rookery.wire.server.http_request import HttpRequest
from rookery.wire.shares import Shares
from rookery.workspaces.model import Workspace

_PATHS = frozenset({b"/mcp", b"/sse", b"/messages", b"/ws"})
_NOT_FOUND = WireError(
    INVALID_REQUEST, "there is nothing at this path; the MCP server of a workspace serves /mcp, /sse and /ws"
)
# The share of the file descriptors of this process; there may be many such servers.
_SHARE, _LEAST_CONNECTIONS = 16, 64


class EndpointRoot:
    """An ASGI app that serves one endpoint of the router at the root, and nothing else."""

    def __init__(self, router: EndpointRouter, find_path: FindPlace) -> None:
        self._router, self._find_path = router, find_path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["raw_path"] not in _PATHS:
            return HttpRequest(scope, receive, send).refuse(404, _NOT_FOUND)
        scope["state"]["place"] = self._find_path
        return self._router(scope, receive, send)

    def find_fast_path(self, scope: Scope) -> FastPathMatcher | None:
        scope["state"]["place"] = self._find_path
        return self._router.find_fast_path(scope)


class WorkspaceServer:
    """The MCP server of one workspace. `error` says why it does not run, or what else the user has to know."""

    def __init__(
        self, workspace: Workspace, router: EndpointRouter, callers: Callers, settings: Settings, shares: Shares
    ) -> None:
        self._shares = shares
        self.workspace = workspace
        self.port: int | None = None
        self.error: str | None = None
        self._router, self._callers, self._settings = router, callers, settings
        self._listener: Listener | None = None

    @property
    def is_running(self) -> bool:
        return self.port is not None

    @property
    def url(self) -> str | None:
        return f"http://{LOOPBACK_ADDRESS}:{self.port}/mcp" if self.port is not None else None

    async def start(self, bound: BoundPort, find_path: FindPlace) -> None:
        """Serve on a socket that is already bound."""
        limits = listener_limits(self._settings, _SHARE, _LEAST_CONNECTIONS)
        listener = listen_on_port(
            bound.socket, EndpointRoot(self._router, find_path), self._callers, limits, self._shares
        )
        try:
            await listener.start()
        except BaseException:
            bound.socket.close()
            raise
        self._listener, self.port = listener, bound.port
        if bound.previous is not None:
            self.error = (
                f"port {bound.previous} is in use by another program; the server now uses {bound.port}: "
                "update the configs of clients with rookery client install"
            )

    def set_error(self, error: Exception) -> None:
        """Record why the server could not be started."""
        parts = [error.message, error.remedy] if isinstance(error, RookeryError) else [str(error)]
        self.error = "; ".join(filter(None, parts))

    def release_port(self) -> None:
        """Release the port; requests in progress are still served."""
        self.port = None
        if self._listener is not None:
            self._listener.stop_accepting()

    async def stop(self, seconds: float) -> None:
        self.port = None
        if self._listener is not None:
            await self._listener.stop(seconds)
