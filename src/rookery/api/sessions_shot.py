"""The route that draws what stands on a session's screen."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer
from rookery.api.queries import ends_with_client, flag, number, query
from rookery.api.raw_route import RawRoute
from rookery.sessions.service import Sessions
from rookery.sessions.shots import format_of, shoot, size_of


def routes(sessions: Sessions) -> list[Route]:
    made = ShotRoutes(sessions)
    return [
        Route("/api/sessions/screenshot", made.screenshot),
        RawRoute("/api/sessions/{id}/screenshot", made.screenshot),
    ]


class ShotRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def screenshot(self, request: Request) -> Response:
        """A picture of its screen; `?format=` png or svg, `?columns=`, `?rows=`, `?scale=`; `?json=true`: as JSON."""
        ends_with_client(request)
        scale = number(request, "scale")
        shot = await shoot(
            self._sessions,
            request.path_params.get("id"),
            format=format_of(query(request, "format"), None),
            size=size_of(number(request, "columns"), number(request, "rows")),
            scale=int(scale) if scale is not None else 1,
        )
        if flag(request, "json"):
            return answer(shot.whole())
        headers = {"X-Rookery-Source": shot.seen.source, "X-Rookery-Session": shot.seen.found.id}
        return Response(shot.picture.data, media_type=shot.picture.media_type, headers=headers)
