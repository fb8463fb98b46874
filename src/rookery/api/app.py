"""The REST routes of the app port and of the Unix socket. `wire/http/auth.py` authenticates the caller."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rookery.agents.manager import AgentManager
from rookery.api.requests import json_response, read_body, record_views
from rookery.api.routes import agents, guard, mcp, plugins, projects, sessions, workspaces
from rookery.api.socketio.app import SocketIo
from rookery.api.socketio.events import WorkspaceEvents
from rookery.api.status import ClientSession, DaemonStatus, EndpointLookup, StatusReport, add_endpoint
from rookery.api.streams import EventStream, read_since
from rookery.plugins.service import Plugins
from rookery.sessions.service import Sessions
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.causes import explain_os_error
from rookery.system.errors import RookeryError
from rookery.system.log import LEVELS, is_below
from rookery.wire.shares import Shares
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Projects

_STATUSES = {
    "invalid-input": 400,
    "ambiguous-id": 400,
    "address-refused": 502,
    "agent-unavailable": 409,
    "no-provider": 409,
    "approval-refused": 403,
    "branch-exists": 409,
    "forbidden": 403,
    "limit-reached": 503,
    "server-busy": 503,
    "too-many-agents": 429,
    "too-many-workspaces": 429,
    "server-exists": 409,
    "server-unavailable": 409,
    "upstream-failed": 502,
    "needs-approval": 409,
    "needs-auth": 409,
    "needs-client-registration": 409,
    "plugin-failed": 502,
    "repository-busy": 503,
    "sign-in-failed": 502,
    "store-busy": 503,
    "timeout": 504,
    "workspace-exists": 409,
    "workspace-not-clean": 409,
}


@dataclass(frozen=True)
class AppServices:
    """The services behind the routes."""

    instance: str
    version: str
    daemon: Callable[[], DaemonStatus]
    projects: Projects
    workspaces: WorkspaceOperations
    events: Bus
    logs: Bus
    guard: guard.GuardServices
    mcp: mcp.McpServices
    agents: AgentManager
    endpoints: Callable[[], EndpointLookup]
    sessions: Sessions
    plugins: Plugins
    shares: Shares
    reload: Callable[[], Awaitable[dict[str, Any]]]
    stop: Callable[[str], None]
    clients: Callable[[], Sequence[ClientSession]]


def build_app(services: AppServices) -> ASGIApp:
    """Return the ASGI app with all REST routes."""
    routes = AppRoutes(services)
    return Starlette(
        routes=[
            Route("/api/health", routes.health),
            Route("/api/status", routes.status),
            Route("/api/daemon", routes.daemon),
            Route("/api/events", routes.events),
            Route("/api/logs", routes.logs),
            *projects.project_routes(services.projects),
            *workspaces.workspace_routes(services.workspaces, services.endpoints, lambda: services.daemon().url),
            *agents.agent_routes(services.workspaces, services.agents),
            *projects.trash_routes(services.workspaces),
            *plugins.plugin_routes(services.plugins),
            *sessions.session_routes(services.sessions, record_views(services.agents)),
            Route("/api/daemon/reload", routes.reload, methods=["POST"]),
            Route("/api/daemon/stop", routes.stop, methods=["POST"]),
            *guard.guard_routes(lambda: services.guard),
            *mcp.mcp_routes(services.mcp),
            *mcp.sign_in_routes(services.mcp),
            *mcp.check_routes(services.mcp),
            Route(
                "/socket.io/",
                SocketIo(WorkspaceEvents(services.workspaces), services.events, services.shares),
                methods=["GET", "POST"],
            ),
            Route("/metrics", routes.metrics),
        ],
        exception_handlers={
            RookeryError: _handle_rookery_error,
            HTTPException: _handle_http_error,
            Exception: _handle_crash,
        },
    )


class StopRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = "asked to"


class AppRoutes:
    """The routes about the daemon itself."""

    def __init__(self, services: AppServices) -> None:
        self._services = services

    async def health(self, request: Request) -> Response:
        """Whether the daemon is alive, and which instance it is; needs no token."""
        return json_response({"status": "ok", "instance": self._services.instance, "version": self._services.version})

    async def status(self, request: Request) -> Response:
        """The data that `rookery status --json` prints."""
        services, daemon = self._services, self._daemon()
        entries = await services.workspaces.overview.all(status=True)
        return json_response(
            StatusReport(
                daemon,
                await services.projects.all(),
                workspaces=[await add_endpoint(entry, services.endpoints(), daemon.url) for entry in entries],
                servers=await services.mcp.hub.all_records(),
            )
        )

    async def daemon(self, request: Request) -> Response:
        """The daemon alone: its process, problems and crashed tasks, and the clients that have a session."""
        return json_response(self._daemon())

    def _daemon(self) -> DaemonStatus:
        return msgspec.structs.replace(self._services.daemon(), clients=self._services.clients())

    async def events(self, request: Request) -> ASGIApp:
        """All changes as server-sent events; `?since=<id>` continues after that event."""
        return EventStream(self._services.events, read_since(request))

    async def logs(self, request: Request) -> ASGIApp:
        """The log as server-sent events, the last records first; `?level=`, `?logger=` and `?last=` limit them."""
        level = request.query_params.get("level", "debug")
        if level not in LEVELS:
            raise RookeryError("invalid-input", f"there is no level {level!r}", f"use one of {', '.join(LEVELS)}")
        minimum = logging.getLevelNamesMapping()[level.upper()]
        logger = request.query_params.get("logger")

        def keep(event: Event) -> bool:
            if logger is not None and not is_below(event.data["logger"], logger):
                return False
            return logging.getLevelNamesMapping()[event.data["level"].upper()] >= minimum

        last = request.query_params.get("last", "200")
        if not last.isascii() or not last.isdigit() or len(last) > 9:
            raise RookeryError(
                "invalid-input", f"last={last[:40]!r} is not a number", "send how many records to begin with"
            )
        since = read_since(request)
        return EventStream(
            self._services.logs, self._services.logs.id_before_last(int(last)) if since is None else since, keep
        )

    async def reload(self, request: Request) -> Response:
        """Read the settings again; returns which of them are in use now and which need a restart."""
        return json_response(await self._services.reload())

    async def stop(self, request: Request) -> Response:
        """Stop the daemon; returns immediately."""
        body = await read_body(request, StopRequest)
        self._services.stop(body.reason)
        return json_response({"stopping": True}, status=202)

    async def metrics(self, request: Request) -> Response:
        """Counters and gauges in the text format of Prometheus."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _handle_rookery_error(request: Request, error: Exception) -> Response:
    """Return the response for an expected error."""
    assert isinstance(error, RookeryError)
    status = 404 if error.code.endswith("-not-found") else _STATUSES.get(error.code, 500)
    return json_response({"error": error.as_dict()}, status)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    """Return the response for an HTTP error of Starlette."""
    assert isinstance(error, HTTPException)
    code = {404: "route-not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-input")
    remedy = "see the routes in the HTTP reference of the docs"
    return json_response({"error": {"code": code, "message": error.detail, "remedy": remedy}}, error.status_code)


async def _handle_crash(request: Request, error: Exception) -> Response:
    """Return the response for an unexpected error."""
    explained = explain_os_error(error) if isinstance(error, OSError) else None
    if explained is not None:
        return json_response({"error": explained.as_dict()}, 507 if explained.code == "disk-full" else 500)
    message = "an internal error occurred; see the log of the daemon"
    return json_response({"error": {"code": "internal-error", "message": message}}, 500)
