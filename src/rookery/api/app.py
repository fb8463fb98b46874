"""The REST routes of the app port and of the Unix socket. `wire/http/auth.py` authenticates the caller."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from rookery.api.errors import handle_crash, handle_http_error, handle_rookery_error
from rookery.api.rest import operation_routes
from rookery.api.socketio.app import SocketIo
from rookery.api.socketio.events import WorkspaceEvents
from rookery.operations.operation import BoundOperation
from rookery.system.bus import Bus
from rookery.system.errors import RookeryError
from rookery.wire.shares import Shares
from rookery.workspaces.operations import WorkspaceOperations


@dataclass(frozen=True)
class AppServices:
    """The services behind the routes."""

    workspaces: WorkspaceOperations
    events: Bus
    operations: Sequence[BoundOperation[Any]]
    shares: Shares


def build_app(services: AppServices) -> ASGIApp:
    """Return the ASGI app with all REST routes."""
    return Starlette(
        routes=[
            *operation_routes(services.operations),
            Route(
                "/socket.io/",
                SocketIo(WorkspaceEvents(services.workspaces, services.operations), services.events, services.shares),
                methods=["GET", "POST"],
            ),
        ],
        exception_handlers={
            RookeryError: handle_rookery_error,
            HTTPException: handle_http_error,
            Exception: handle_crash,
        },
    )
