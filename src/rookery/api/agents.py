"""The routes about agents: the one of a workspace, and the OpenCode that all of them run."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.agents.life import Life
from rookery.agents.service import AgentService
from rookery.agents.status import SessionState
from rookery.api.answers import answer, body_of
from rookery.api.queries import query
from rookery.api.raw_route import RawRoute
from rookery.guard.terminal import require_person
from rookery.system.errors import RookeryError
from rookery.workspaces.record import Workspace, as_text
from rookery.workspaces.tools import WorkspaceTools

_LINES, _MOST_LINES = 100, 10_000


class Install(msgspec.Struct, forbid_unknown_fields=True):
    force: bool = False


def routes(tools: WorkspaceTools, agents: AgentService) -> list[Route]:
    made = AgentRoutes(tools, agents)
    one = "/api/workspaces/{project}/{name}/agent"
    return [
        Route("/api/agents/install", made.install, methods=["POST"]),
        RawRoute(one, made.show),
        RawRoute(f"{one}/start", made.start, methods=["POST"]),
        RawRoute(f"{one}/stop", made.stop, methods=["POST"]),
        RawRoute(f"{one}/restart", made.restart, methods=["POST"]),
        RawRoute(f"{one}/resume", made.resume, methods=["POST"]),
        RawRoute(f"{one}/logs", made.logs),
        RawRoute(f"{one}/attach", made.attach),
    ]


class AgentRoutes:
    def __init__(self, tools: WorkspaceTools, agents: AgentService) -> None:
        self._tools, self._agents = tools, agents

    async def install(self, request: Request) -> Response:
        """Bring the OpenCode of `agents.version` if it is not here, or with `force`; events tell how far it is."""
        asked = await body_of(request, Install)
        found = await self._agents.launcher.installed(again=asked.force)
        ripgrep = str(found.ripgrep) if found.ripgrep is not None else None
        return answer({"version": found.version, "opencode": str(found.opencode), "ripgrep": ripgrep})

    async def show(self, request: Request) -> Response:
        """The agent of a workspace: its process, its status, and what its sessions do."""
        return await self._answer(await self._one(request))

    async def start(self, request: Request) -> Response:
        """Start or wake it; answers when it listens."""
        one = await self._one(request)
        await self._agents.up(one)
        return await self._answer(one)

    async def stop(self, request: Request) -> Response:
        """End it, until somebody starts it; the workspace stays open."""
        one = await self._one(request)
        await self._agents.stop(one)
        return await self._answer(one)

    async def restart(self, request: Request) -> Response:
        """Start it anew on the port that it had; answers when it listens. A turn that runs is cut off."""
        one = await self._one(request)
        await self._agents.restart(one)
        return await self._answer(one)

    async def resume(self, request: Request) -> Response:
        """Take up every turn that was cut off; answers the `resumed` sessions too."""
        one = await self._one(request)
        resumed = await self._agents.resume(one)
        return await self._answer(one, resumed=resumed)

    async def logs(self, request: Request) -> Response:
        """What it printed last, `?tail=` lines of it, and the `path` of its log."""
        one = await self._one(request)
        given = query(request, "tail") or str(_LINES)
        if not given.isascii() or not given.isdigit() or len(given) > 9:
            raise RookeryError("invalid-input", f"tail={given[:40]!r} is not a number", "send how many lines you want")
        lines = await self._agents.log_lines(one, min(int(given), _MOST_LINES))
        return answer({"path": as_text(self._agents.log(one)), "lines": lines})

    async def attach(self, request: Request) -> Response:
        """Where it listens, its password and its session, or `?session=`; starts or wakes it. Only for its user."""
        await _for_its_user(request)
        one = await self._one(request)
        life = await self._agents.up(one)
        session = await self._session(one, life, query(request, "session"))
        return answer(
            {
                "url": life.process.url,
                "directory": as_text(life.client.directory),
                "password": life.process.password,
                "opencode": str(life.started.installed.opencode),
                "session": session,
            }
        )

    async def _session(self, workspace: Workspace, life: Life, given: str | None) -> str | None:
        """The one that is asked for, if it is one of this workspace's, else the one that a person wants to see."""
        if given is not None:
            return (await life.client.session(given)).id
        found = await self._agents.session(workspace)
        return found.session_id if found is not None else None

    async def _one(self, request: Request) -> Workspace:
        return await self._tools.get(request.path_params["project"], request.path_params["name"])

    async def _answer(self, workspace: Workspace, **more: object) -> Response:
        agent = msgspec.to_builtins(await self._agents.process(workspace))
        status = msgspec.to_builtins(await self._agents.status(workspace))
        sessions = [_shown(one) for one in self._agents.sessions(workspace)]
        return answer({**agent, "status": status, "sessions": sessions, **more})


def _shown(one: SessionState) -> dict[str, object]:
    asks = [{"id": ask.id, "kind": ask.kind, "text": ask.text} for ask in one.asks]
    return {"id": one.id, "title": one.title, "state": one.state, "detail": one.detail, "asks": asks}


async def _for_its_user(request: Request) -> None:
    """With the password an agent could answer what its own session asks its user."""
    try:
        await require_person(request.state.principal, request.scope["state"].get("peer"), at_terminal=False)
    except RookeryError as error:
        raise RookeryError(
            "forbidden",
            f"the password of an agent is told to its user only, over the Unix socket: {error.message}",
            "run `rookery agent attach` yourself, in a terminal that Rookery did not open",
        ) from None
