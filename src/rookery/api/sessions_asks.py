"""The routes about what sessions ask their user. Nobody that Rookery started may answer."""

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api import outsiders
from rookery.api.answers import answer, body_of
from rookery.api.raw_route import RawRoute
from rookery.sessions.service import Sessions

_ONE = "/api/sessions/{id}/asks"


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """`reply` answers a permission, `answers` has for each of the questions the labels that are chosen."""

    reply: Literal["once", "always", "reject"] | None = None
    answers: list[list[str]] | None = None
    message: str | None = None


def routes(sessions: Sessions) -> list[Route]:
    made = AskRoutes(sessions)
    return [
        Route("/api/sessions/asks", made.list),
        RawRoute("/api/sessions/asks/{ask}", made.answer, methods=["POST"]),
        RawRoute(_ONE, made.list),
        RawRoute(f"{_ONE}/{{ask}}", made.answer, methods=["POST"]),
    ]


class AskRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def list(self, request: Request) -> Response:
        """What a session waits for, or what all do: permissions and questions, with the words to answer with."""
        return answer(await self._sessions.asks(request.path_params.get("id")))

    async def answer(self, request: Request) -> Response:
        """Answer what a session waits for; answers what it was. Refused to whatever Rookery has started."""
        asked = await body_of(request, Answer)
        await require_outsider()
        told = await self._sessions.answer(
            request.path_params["ask"], asked.reply, answers=asked.answers, message=asked.message
        )
        return answer(told)


async def require_outsider() -> None:
    """An agent must not answer what it asks its user."""
    await outsiders.require_outsider(
        "what a session asks is answered by its user only", "answer it yourself: rookery session answer"
    )
