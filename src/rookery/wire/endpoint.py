"""Every HTTP transport of MCP for one provider, side by side: whatever a client speaks, it finds the same."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.provider import Provider
from rookery.wire.service import SHUTTING_DOWN, Service
from rookery.wire.session import Session
from rookery.wire.sessions import Sessions
from rookery.wire.sse_server import HttpSse
from rookery.wire.streamable import StreamableHttp
from rookery.wire.traffic import Traffic
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

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, and every stream and connection. Nobody is let in after it."""
        self.service.close(reason)
