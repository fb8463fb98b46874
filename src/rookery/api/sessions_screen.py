"""The routes about the screens of sessions. Whoever presses keys can answer what a session asks its user."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.queries import ends_with_client, flag, number
from rookery.api.raw_route import RawRoute
from rookery.api.sessions_asks import require_outsider
from rookery.sessions.service import Sessions
from rookery.sessions.shots import size_of
from rookery.system.errors import RookeryError

_ONE = "/api/sessions/{id}"


class Keys(msgspec.Struct, forbid_unknown_fields=True):
    """`text` is typed first, then `paste` is pasted, then `keys` are pressed, such as `enter` or `ctrl+p`."""

    text: str = ""
    paste: str = ""
    keys: list[str] = []
    columns: int | None = None
    rows: int | None = None


def routes(sessions: Sessions) -> list[Route]:
    made = ScreenRoutes(sessions)
    return [
        Route("/api/sessions/screen", made.screen),
        RawRoute(f"{_ONE}/screen", made.screen),
        RawRoute(f"{_ONE}/keys", made.keys, methods=["POST"]),
    ]


class ScreenRoutes:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def screen(self, request: Request) -> Response:
        """What stands on its screen, or on that of the one active last; `?columns=`, `?rows=`, `?colours=true`."""
        ends_with_client(request)
        size = size_of(number(request, "columns"), number(request, "rows"))
        colours = flag(request, "colours")
        return answer(await self._sessions.screen(request.path_params.get("id"), size=size, colours=colours))

    async def keys(self, request: Request) -> Response:
        """Type, paste and press keys on its terminal; answers the screen then. Refused to what Rookery has started."""
        asked = await body_of(request, Keys)
        await require_outsider()
        if not (asked.text or asked.paste or asked.keys):
            raise RookeryError("invalid-input", "there is nothing to press", "send text, paste or keys")
        ends_with_client(request)
        shown = await self._sessions.press(
            request.path_params["id"],
            text=asked.text,
            paste=asked.paste,
            keys=asked.keys,
            size=size_of(asked.columns, asked.rows),
        )
        return answer(shown)
