"""Every HTTP transport of MCP for one provider, side by side."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.http.head import RequestHead
from rookery.wire.protocol.messages import INVALID_REQUEST, WireError
from rookery.wire.protocol.provider import Provider
from rookery.wire.server.fastpath import FastPathMatcher, FastRouteProvider
from rookery.wire.server.http_request import HttpRequest
from rookery.wire.server.service import SHUTTING_DOWN, Service
from rookery.wire.server.session import Session, Sessions
from rookery.wire.server.sse import SseServer
from rookery.wire.server.streamable import StreamableHttp
from rookery.wire.server.traffic import Traffic
from rookery.wire.server.websocket import MESSAGE_BYTES, WebSocketServer
from rookery.wire.shares import Shares

_NOT_FOUND = WireError(INVALID_REQUEST, "there is nothing at this path")


class Endpoint:
    """An ASGI app with Streamable HTTP at `path`, and `sse`, `messages` and `ws` beside it.

    Paths are matched before percent-decoding.
    """

    def __init__(
        self,
        provider: Provider,
        path: str = "/mcp",
        *,
        sessions: Sessions | None = None,
        message_bytes: int = MESSAGE_BYTES,
        on_session_end: Callable[[Session], None] | None = None,
        traffic: Traffic | None = None,
        shares: Shares | None = None,
    ) -> None:
        self.service = Service(provider, sessions, traffic=traffic, shares=shares)
        if on_session_end is not None:
            self.service.sessions.on_end = on_session_end
        parent = path.rpartition("/")[0]
        sse = SseServer(self.service, f"{parent}/messages")
        self.routes: dict[str, ASGIApp] = {
            path: StreamableHttp(provider, service=self.service),
            f"{parent}/sse": sse.stream,
            f"{parent}/messages": sse.messages,
            f"{parent}/ws": WebSocketServer(self.service, message_bytes=message_bytes),
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route = self.routes.get(scope["raw_path"].decode("latin-1"))
        if route is None:
            return HttpRequest(scope, receive, send).refuse(404, _NOT_FOUND)
        return route(scope, receive, send)

    def find_fast_path(
        self, scope: Scope, path: bytes | None = None, is_valid: Callable[[], bool] = lambda: True
    ) -> FastPathMatcher | None:
        """Return a fast path for requests like this one, or None if there is none.

        `path` replaces the path of the request. `is_valid` returns whether such requests still lead to this endpoint.
        """
        route = self.routes.get((scope["raw_path"] if path is None else path).decode("latin-1"))
        provider = self.service.provider
        if not isinstance(route, StreamableHttp) or not isinstance(provider, FastRouteProvider):
            return None
        head = RequestHead.from_headers(scope["headers"])
        owner = scope["state"]["principal"].name
        return FastPathMatcher(
            lambda fast_call: partial(route, fast_call=fast_call), self.service, provider, head, owner, is_valid
        )

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, and every stream and connection. Later requests are refused."""
        self.service.close(reason)
