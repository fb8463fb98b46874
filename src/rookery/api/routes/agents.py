"""The routes about agents: the agent of a workspace, and the OpenCode that all agents run."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.agents.manager import AgentManager
from rookery.agents.opencode.environment import FOLDER_VARIABLES
from rookery.agents.run import AgentRun
from rookery.agents.status import SessionState
from rookery.api.requests import RawRoute, json_response, read_body, read_query
from rookery.guard.terminal import require_person
from rookery.system.errors import RookeryError
from rookery.system.ids import match_prefix
from rookery.workspaces.model import Workspace, format_path
from rookery.workspaces.operations import WorkspaceOperations

_DEFAULT_LINES, _MOST_LINES = 100, 10_000


class DismissTurn(msgspec.Struct, forbid_unknown_fields=True):
    session: str | None = None


class InstallAgent(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False


def agent_routes(operations: WorkspaceOperations, agents: AgentManager) -> list[Route]:
    routes = AgentRoutes(operations, agents)
    path = "/api/workspaces/{project}/{name}/agent"
    return [
        Route("/api/agents/install", routes.install, methods=["POST"]),
        RawRoute(path, routes.show),
        RawRoute(f"{path}/start", routes.start, methods=["POST"]),
        RawRoute(f"{path}/stop", routes.stop, methods=["POST"]),
        RawRoute(f"{path}/restart", routes.restart, methods=["POST"]),
        RawRoute(f"{path}/resume", routes.resume, methods=["POST"]),
        RawRoute(f"{path}/dismiss", routes.dismiss, methods=["POST"]),
        RawRoute(f"{path}/logs", routes.logs),
        RawRoute(f"{path}/attach", routes.attach),
    ]


class AgentRoutes:
    def __init__(self, operations: WorkspaceOperations, agents: AgentManager) -> None:
        self._operations, self._agents = operations, agents

    async def install(self, request: Request) -> Response:
        """Install the OpenCode of `agents.version` if it is missing, or always with `force`; events report progress."""
        body = await read_body(request, InstallAgent)
        installation = await self._agents.launcher.get_installation(again=body.force)
        ripgrep = str(installation.ripgrep) if installation.ripgrep is not None else None
        return json_response(
            {"version": installation.version, "opencode": str(installation.opencode), "ripgrep": ripgrep}
        )

    async def show(self, request: Request) -> Response:
        """The agent of a workspace: its process, its status, and its sessions."""
        return await self._response(await self._workspace(request))

    async def start(self, request: Request) -> Response:
        """Start or wake the agent; returns when it listens."""
        workspace = await self._workspace(request)
        await self._agents.ensure_running(workspace)
        return await self._response(workspace)

    async def stop(self, request: Request) -> Response:
        """Stop the agent until it is started again; the workspace stays open."""
        workspace = await self._workspace(request)
        await self._agents.stop(workspace)
        return await self._response(workspace)

    async def restart(self, request: Request) -> Response:
        """Restart the agent on its previous port; returns when it listens. A running turn is interrupted."""
        workspace = await self._workspace(request)
        await self._agents.restart(workspace)
        return await self._response(workspace)

    async def resume(self, request: Request) -> Response:
        """Resume every interrupted turn; returns the `resumed` sessions too."""
        workspace = await self._workspace(request)
        resumed = await self._agents.resume(workspace)
        return await self._response(workspace, resumed=resumed)

    async def dismiss(self, request: Request) -> Response:
        """Dismiss failed turns of all sessions or of `session`; returns the sessions that had one."""
        body = await read_body(request, DismissTurn)
        workspace = await self._workspace(request)
        dismissed = self._agents.dismiss(workspace, body.session)
        return await self._response(workspace, dismissed=dismissed)

    async def logs(self, request: Request) -> Response:
        """The last `?tail=` lines of the agent's output, and the `path` of its log."""
        workspace = await self._workspace(request)
        tail = read_query(request, "tail") or str(_DEFAULT_LINES)
        if not tail.isascii() or not tail.isdigit() or len(tail) > 9:
            raise RookeryError("invalid-input", f"tail={tail[:40]!r} is not a number", "send the number of lines")
        lines = await self._agents.log_lines(workspace, min(int(tail), _MOST_LINES))
        return json_response({"path": format_path(self._agents.log(workspace)), "lines": lines})

    async def attach(self, request: Request) -> Response:
        """The agent's address, password and session, or `?session=`; starts or wakes it. Only for its user."""
        await _require_user(request)
        workspace = await self._workspace(request)
        run = await self._agents.ensure_running(workspace)
        session = await self._session(workspace, run, read_query(request, "session"))
        self._agents.mark_seen(workspace)
        return json_response(
            {
                "url": run.process.url,
                "directory": format_path(run.client.directory),
                "password": run.process.password,
                "opencode": str(run.started.installation.opencode),
                "session": session,
                "folders": {name: run.process.folders.get(name) for name in FOLDER_VARIABLES},
            }
        )

    async def _session(self, workspace: Workspace, run: AgentRun, session: str | None) -> str | None:
        """Return the requested session if it belongs to this workspace, else the one that a person wants to see."""
        if session is not None:
            session_id = match_prefix(
                session, (open_session.id for open_session in self._agents.sessions(workspace)), "sessions"
            )
            return (await run.client.session(session_id or session)).id
        current = await self._agents.session(workspace)
        return current.session_id if current is not None else None

    async def _workspace(self, request: Request) -> Workspace:
        return await self._operations.workspaces.get(request.path_params["project"], request.path_params["name"])

    async def _response(self, workspace: Workspace, **more: object) -> Response:
        """Return the response with the agent of a workspace."""
        agent = msgspec.to_builtins(await self._agents.process(workspace))
        status = msgspec.to_builtins(await self._agents.status(workspace))
        sessions = [_format_session(session) for session in self._agents.sessions(workspace)]
        return json_response({**agent, "status": status, "sessions": sessions, **more})


def _format_session(session: SessionState) -> dict[str, object]:
    asks = [{"id": ask.id, "kind": ask.kind, "text": ask.text} for ask in session.asks]
    failure = session.failure.text if session.failure is not None else None
    fields = {"id": session.id, "title": session.title, "state": session.state, "detail": session.detail, "asks": asks}
    return {**fields, "failure": failure}


async def _require_user(request: Request) -> None:
    """Refuse everyone but the user: with the password, an agent could answer what its own session asks its user."""
    try:
        await require_person(request.state.principal, request.scope["state"].get("peer"), at_terminal=False)
    except RookeryError as error:
        raise RookeryError(
            "forbidden",
            f"the password of an agent is given only to its user, over the Unix socket: {error.message}",
            "run `rookery agent attach` or `rookery agent password` yourself, in a terminal that Rookery did not open",
        ) from None
