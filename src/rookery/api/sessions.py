"""The routes about sessions: made, listed, closed, and what was said in them. Times are in milliseconds."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api import sessions_asks, sessions_screen, sessions_shot, sessions_work
from rookery.api.answers import answer, body_of
from rookery.api.queries import ends_with_client, flag, number, query
from rookery.api.raw_route import RawRoute
from rookery.sessions.service import Sessions

ONE = "/api/sessions/{id}"
_LIMIT = 50


class Create(msgspec.Struct, forbid_unknown_fields=True):
    """`directory` is the path of a workspace, or of a folder in it."""

    directory: str
    agent: str | None = None
    model: str | None = None
    title: str | None = None


class Send(msgspec.Struct, forbid_unknown_fields=True):
    """Without `wait` the answer comes as soon as the message is taken."""

    content: str
    wait: bool = True
    timeout: float = 30_000
    agent: str | None = None
    model: str | None = None


def routes(sessions: Sessions) -> list[Route]:
    made = SessionRoutes(sessions)
    return [
        Route("/api/sessions", made.list),
        Route("/api/sessions", made.create, methods=["POST"]),
        *sessions_work.routes(sessions),
        *sessions_asks.routes(sessions),
        *sessions_screen.routes(sessions),
        *sessions_shot.routes(sessions),
        RawRoute(ONE, made.show),
        RawRoute(ONE, made.close, methods=["DELETE"]),
        RawRoute(f"{ONE}/abort", made.abort, methods=["POST"]),
        RawRoute(f"{ONE}/messages", made.messages),
        RawRoute(f"{ONE}/messages", made.send, methods=["POST"]),
    ]


class SessionRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def list(self, request: Request) -> Response:
        """All open sessions, the one that was used last first; `?project=` and `?workspace=` narrow by id and name."""
        project, workspace = query(request, "project"), query(request, "workspace")
        found = [
            one
            for one in await self._sessions.list()
            if project in (None, one.project) and workspace in (None, one.workspace)
        ]
        return answer(found)

    async def create(self, request: Request) -> Response:
        """Make a session in the workspace at `directory`, whose agent is started if it has to be."""
        asked = await body_of(request, Create)
        return answer(await self._sessions.create(asked.directory, asked.agent, asked.model, title=asked.title), 201)

    async def show(self, request: Request) -> Response:
        """A session: what it does, how many messages it has, when it was last active, how its last turn failed."""
        return answer(await self._sessions.get(request.path_params["id"]))

    async def close(self, request: Request) -> Response:
        """Close a session: its turn and all that waits for it end. `?delete=true` deletes its history too."""
        return answer(await self._sessions.close(request.path_params["id"], delete=flag(request, "delete")))

    async def abort(self, request: Request) -> Response:
        """End the turn that runs, if there is one; answers the session."""
        return answer(await self._sessions.abort(request.path_params["id"]))

    async def messages(self, request: Request) -> Response:
        """The newest `?limit=` messages (50), in the order they were made, after `?since=`; `note` tells of limits."""
        limit, since = number(request, "limit"), number(request, "since")
        count = _LIMIT if limit is None else max(int(limit), 0)
        return answer(await self._sessions.messages(request.path_params["id"], count, since))

    async def send(self, request: Request) -> Response:
        """Send a message; answers at the end of the turn, at `timeout`, or without `wait` at once. See `status`."""
        asked = await body_of(request, Send)
        ends_with_client(request)
        turn = await self._sessions.send(
            request.path_params["id"],
            asked.content,
            wait=asked.wait,
            timeout=asked.timeout / 1000,
            agent=asked.agent,
            model=asked.model,
        )
        return answer(turn, 200 if asked.wait else 202)
