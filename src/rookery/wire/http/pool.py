"""The connections of one listener, and which of them is closed when there are too many.

Before its first request a connection belongs to nobody: the oldest of these is closed for a new one. After that, the
connection counts towards the token of its last request. All workspaces together leave slots to the owner. When the
slots of the workspaces are taken, the workspace that holds most of them loses a connection that it does not use.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from rookery.system.tasks import TaskSet
from rookery.wire.http.auth import OWNER, Authenticate, Principal, Refusal
from rookery.wire.shares import Shares, compute_workspace_share, decrease_count

if TYPE_CHECKING:
    from rookery.wire.http.connection import HttpServerConnection

_TOO_MANY_CONNECTIONS = Refusal(
    429, "too-many-connections", "too many connections; try again", remedy="close some, or raise limits.connections"
)


@dataclass(frozen=True)
class HttpLimits:
    """Limits of each connection, and the number of connections of one listener."""

    header_bytes: int = 32_768
    header_seconds: float = 10.0
    body_bytes: int = 67_108_864
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    keep_alive_seconds: float = 75.0
    connections: int = 512

    def refuse_head(self) -> Refusal:
        """Return the refusal of a head that is too large."""
        message = f"the head of the request is larger than {self.header_bytes} bytes"
        return Refusal(431, "headers-too-large", message)

    def refuse_body(self) -> Refusal:
        """Return the refusal of a body that is too large."""
        return Refusal(413, "body-too-large", f"the body of the request is larger than {self.body_bytes} bytes")


class ConnectionPool:
    """The connections of one listener, with what all of them share: app, authentication, limits and tasks."""

    def __init__(
        self, app: ASGIApp, authenticate: Authenticate, limits: HttpLimits, shares: Shares | None = None
    ) -> None:
        self.shares = shares if shares is not None else Shares()
        self.app = app
        self.authenticate = authenticate
        self.limits = limits
        self.tasks = TaskSet("http")
        self.is_closing = False
        self.connections: set[HttpServerConnection] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        # Connections without an authenticated request, in the order of arrival: the oldest is closed first.
        self.unauthenticated: dict[HttpServerConnection, None] = {}
        # Connections of workspace tokens by the name of the principal, in the order of their first use.
        self.workspaces: dict[str, dict[HttpServerConnection, None]] = {}
        # Connections that are closing, in that order. They take no slot, and there are never more of them than slots.
        self.closing_connections: dict[HttpServerConnection, None] = {}

    def add(self, connection: "HttpServerConnection") -> None:
        """Add a connection. If there are too many now, close or refuse one."""
        self.connections.add(connection)
        self.unauthenticated[connection] = None
        self.empty.clear()
        if self.is_closing:
            connection.terminate("shutdown")
        elif len(self.connections) - len(self.closing_connections) > self.limits.connections:
            oldest = next(iter(self.unauthenticated))
            if oldest is connection:
                connection.refuse(_TOO_MANY_CONNECTIONS)
            else:
                oldest.terminate("crowded-out")
        if len(self.closing_connections) > self.limits.connections:
            next(iter(self.closing_connections)).terminate("crowded-out")

    def attribute(self, connection: "HttpServerConnection", principal: Principal) -> Refusal | None:
        """Count a connection towards the principal of its last request.

        Return a refusal if that exceeds the share of the principal.
        """
        self._withdraw(connection)
        self.unauthenticated.pop(connection, None)
        name = principal.name
        if name == OWNER.name:
            return None
        own_connections = self.workspaces.get(name, {})
        if not self.shares.has_connection_left(name):
            if not _evict(own_connections):
                return self.shares.refuse_connection()
        elif sum(map(len, self.workspaces.values())) >= compute_workspace_share(self.limits.connections):
            largest = max(self.workspaces.values(), key=len)
            if not _evict(own_connections) and not (
                len(largest) > len(own_connections) + 1 and _evict(largest, streams=True)
            ):
                return _TOO_MANY_CONNECTIONS
        self.workspaces.setdefault(name, {})[connection] = None
        self.shares.connections[name] += 1
        connection.share = name
        return None

    def _withdraw(self, connection: "HttpServerConnection") -> None:
        """Stop counting a connection towards a workspace."""
        if (name := connection.share) is None:
            return
        connection.share = None
        del self.workspaces[name][connection]
        if not self.workspaces[name]:
            del self.workspaces[name]
        decrease_count(self.shares.connections, name)

    def mark_closing(self, connection: "HttpServerConnection") -> None:
        """Record that a connection is closing, which frees its slot."""
        self._withdraw(connection)
        self.unauthenticated.pop(connection, None)
        self.closing_connections.pop(connection, None)
        self.closing_connections[connection] = None

    def remove(self, connection: "HttpServerConnection") -> None:
        """Remove a connection that is closed."""
        self._withdraw(connection)
        self.connections.discard(connection)
        self.unauthenticated.pop(connection, None)
        self.closing_connections.pop(connection, None)
        if not self.connections:
            self.empty.set()


def _evict(connections: "dict[HttpServerConnection, None]", *, streams: bool = False) -> bool:
    """Close the oldest idle connection, or with `streams`, if none is idle, the oldest stream.

    Return whether a connection was closed.
    """
    victim = next((connection for connection in connections if connection.is_idle), None)
    if victim is None and streams:
        victim = next((connection for connection in connections if connection.is_streaming), None)
    if victim is not None:
        victim.terminate("crowded-out")
    return victim is not None
