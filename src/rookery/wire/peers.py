"""Which process a call comes from, where it came over the Unix socket; known all along the way, as context."""

from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.wire.gate import Peer

# Whether this came over the Unix socket, and from whom, where the system tells.
_from: ContextVar[tuple[bool, Peer | None]] = ContextVar("peer", default=(False, None))


def over_socket() -> bool:
    return _from.get()[0]


def calling_process() -> Peer | None:
    return _from.get()[1]


def with_peers(app: ASGIApp) -> ASGIApp:
    """The app, as the Unix socket serves it."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        _from.set((True, scope["state"].get("peer")))
        await app(scope, receive, send)

    return served
