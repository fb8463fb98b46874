"""Every HTTP transport of MCP for one provider, side by side: whatever a client speaks, it finds the same."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.head import Head
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.lane import Lane
from rookery.wire.provider import Provider
from rookery.wire.service import SHUTTING_DOWN, Service
from rookery.wire.session import Session
from rookery.wire.sessions import Sessions
from rookery.wire.sse_server import HttpSse
from rookery.wire.streamable import StreamableHttp
from rookery.wire.traffic import Traffic
from rookery.wire.way import Ways
from rookery.wire.websocket_server import MESSAGE_BYTES, WebSocket

_NOTHING = WireError(INVALID_REQUEST, "there is nothing at this path")


class Endpoint:
    """An ASGI app: Streamable HTTP at `path`; `sse`, `messages` and `ws` beside it. Paths are matched undecoded."""

    def __init__(
        self,
        provider: Provider,
        path: str = "/mcp",
        *,
        sessions: Sessions | None = None,
        message_bytes: int = MESSAGE_BYTES,
        on_session_end: Callable[[Session], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.service = Service(provider, sessions, traffic=traffic)
        if on_session_end is not None:
            self.service.sessions.on_end = on_session_end
        beside = path.rpartition("/")[0]
        sse = HttpSse(self.service, f"{beside}/messages")
        self.routes: dict[str, ASGIApp] = {
            path: StreamableHttp(provider, service=self.service),
            f"{beside}/sse": sse.stream,
            f"{beside}/messages": sse.messages,
            f"{beside}/ws": WebSocket(self.service, message_bytes=message_bytes),
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route = self.routes.get(scope["raw_path"].decode("latin-1"))
        if route is None:
            return Http(scope, receive, send).refuse(404, _NOTHING)
        return route(scope, receive, send)

    def lane(self, scope: Scope, path: bytes | None = None, holds: Callable[[], bool] = lambda: True) -> Lane | None:
        """For requests like this one, or at another `path`, as long as `holds` says that they lead here."""
        route = self.routes.get((scope["raw_path"] if path is None else path).decode("latin-1"))
        ways = self.service.provider
        if not isinstance(route, StreamableHttp) or not isinstance(ways, Ways):
            return None
        head, owner = Head.of(scope["headers"]), scope["state"]["principal"].name
        return Lane(lambda brief: partial(route, brief=brief), self.service, ways, head, owner, holds)

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, and every stream and connection. Nobody is let in after it."""
        self.service.close(reason)
