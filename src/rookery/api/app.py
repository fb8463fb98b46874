"""The REST routes of the app port and of the Unix socket. Who may call has been judged before (`wire/gate`)."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rookery.agents.service import AgentService
from rookery.api import agents, guard, mcp, mcp_check, mcp_signin, plugins, projects, sessions, trash, workspaces
from rookery.api.answers import answer, body_of
from rookery.api.socketio import SocketIo
from rookery.api.socketio_events import WorkspaceEvents
from rookery.api.status import Daemon, Endpoints, Report, with_endpoint
from rookery.api.streams import EventStream, since_of
from rookery.plugins.service import Plugins
from rookery.sessions.service import Sessions
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.log import LEVELS
from rookery.workspaces.projects import Projects
from rookery.workspaces.tools import WorkspaceTools

_STATUSES = {
    "invalid-input": 400,
    "address-refused": 502,
    "agent-unavailable": 409,
    "approval-refused": 403,
    "forbidden": 403,
    "limit-reached": 503,
    "server-busy": 503,
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
class House:
    """What the routes speak for."""

    instance: str
    version: str
    daemon: Callable[[], Daemon]
    projects: Projects
    workspaces: WorkspaceTools
    events: Bus
    logs: Bus
    guard: guard.Guard
    mcp: mcp.Mcp
    agents: AgentService
    endpoints: Callable[[], Endpoints]
    sessions: Sessions
    plugins: Plugins
    reload: Callable[[], Awaitable[dict[str, Any]]]
    stop: Callable[[str], None]


def build(house: House) -> ASGIApp:
    routes = Routes(house)
    return Starlette(
        routes=[
            Route("/api/health", routes.health),
            Route("/api/status", routes.status),
            Route("/api/events", routes.events),
            Route("/api/logs", routes.logs),
            *projects.routes(house.projects),
            *workspaces.routes(house.workspaces, house.endpoints, lambda: house.daemon().url),
            *agents.routes(house.workspaces, house.agents),
            *trash.routes(house.workspaces),
            *plugins.routes(house.plugins),
            *sessions.routes(house.sessions),
            Route("/api/daemon/reload", routes.reload, methods=["POST"]),
            Route("/api/daemon/stop", routes.stop, methods=["POST"]),
            *guard.routes(lambda: house.guard),
            *mcp.routes(house.mcp),
            *mcp_signin.routes(house.mcp),
            *mcp_check.routes(house.mcp),
            Route("/socket.io/", SocketIo(WorkspaceEvents(house.workspaces), house.events), methods=["GET", "POST"]),
            Route("/metrics", routes.metrics),
        ],
        exception_handlers={RookeryError: _known, HTTPException: _plain, Exception: _crashed},
    )


class Stop(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = "asked to"


class Routes:
    def __init__(self, house: House) -> None:
        self._house = house

    async def health(self, request: Request) -> Response:
        """That the daemon is alive, and which instance it is; needs no token."""
        return answer({"status": "ok", "instance": self._house.instance, "version": self._house.version})

    async def status(self, request: Request) -> Response:
        """What `rookery status --json` prints."""
        house, daemon = self._house, self._house.daemon()
        found = await house.workspaces.overview.all(status=True)
        return answer(
            Report(
                daemon,
                await house.projects.all(),
                workspaces=[await with_endpoint(one, house.endpoints(), daemon.url) for one in found],
                servers=await house.mcp.hub.all_records(),
            )
        )

    async def events(self, request: Request) -> ASGIApp:
        """Everything that changes, as server-sent events; `?since=<id>` goes on after that event."""
        return EventStream(self._house.events, since_of(request))

    async def logs(self, request: Request) -> ASGIApp:
        """The log as server-sent events: its last records, then each new one; `?level=` and `?last=` choose."""
        level = request.query_params.get("level", "debug")
        if level not in LEVELS:
            raise RookeryError("invalid-input", f"there is no level {level!r}", f"use one of {', '.join(LEVELS)}")
        wanted = logging.getLevelNamesMapping()[level.upper()]

        def keep(event: Event) -> bool:
            return logging.getLevelNamesMapping()[event.data["level"].upper()] >= wanted

        last = request.query_params.get("last", "200")
        if not last.isascii() or not last.isdigit() or len(last) > 9:
            raise RookeryError(
                "invalid-input", f"last={last[:40]!r} is not a number", "send how many records to begin with"
            )
        since = since_of(request)
        return EventStream(self._house.logs, self._house.logs.before(int(last)) if since is None else since, keep)

    async def reload(self, request: Request) -> Response:
        """Read the settings anew; answers which were taken over and which need a restart."""
        return answer(await self._house.reload())

    async def stop(self, request: Request) -> Response:
        """Stop the daemon; answers at once."""
        asked = await body_of(request, Stop)
        self._house.stop(asked.reason)
        return answer({"stopping": True}, status=202)

    async def metrics(self, request: Request) -> Response:
        """Counters and gauges in Prometheus' text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, RookeryError)
    status = 404 if error.code.endswith("-not-found") else _STATUSES.get(error.code, 500)
    return answer({"error": error.as_dict()}, status)


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "route-not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-input")
    remedy = "see the routes in the HTTP reference of the docs"
    return answer({"error": {"code": code, "message": error.detail, "remedy": remedy}}, error.status_code)


async def _crashed(request: Request, error: Exception) -> Response:
    message = "something went wrong here; the daemon's log tells what"
    return answer({"error": {"code": "internal-error", "message": message}}, 500)
