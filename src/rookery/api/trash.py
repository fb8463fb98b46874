"""The routes about the trash, where deleted workspaces are kept for a while."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.projects import absolute
from rookery.api.queries import query
from rookery.api.raw_route import RawRoute
from rookery.workspaces.tools import WorkspaceTools


class Restore(msgspec.Struct, forbid_unknown_fields=True):
    """`to` is where the folder goes; without it to where it was."""

    to: str | None = None


def routes(tools: WorkspaceTools) -> list[Route]:
    made = TrashRoutes(tools)
    return [
        Route("/api/trash", made.list),
        Route("/api/trash", made.purge, methods=["DELETE"]),
        RawRoute("/api/trash/{id}", made.purge_one, methods=["DELETE"]),
        RawRoute("/api/trash/{id}/restore", made.restore, methods=["POST"]),
    ]


class TrashRoutes:
    """`{id}` may also be the name of a workspace; then the newest of that name is meant, of `?project=` if given."""

    def __init__(self, tools: WorkspaceTools) -> None:
        self._tools = tools

    async def list(self, request: Request) -> Response:
        """What is in the trash (of `?project=`), the oldest first, with the bytes that each entry takes."""
        return answer(await self._tools.bin.all(query(request, "project")))

    async def purge(self, request: Request) -> Response:
        """Remove everything in the trash (of `?project=`) for good; answers what went."""
        return answer({"purged": await self._tools.bin.purge(None, query(request, "project"))})

    async def purge_one(self, request: Request) -> Response:
        """Remove one entry for good."""
        gone = await self._tools.bin.purge(request.path_params["id"], query(request, "project"))
        return answer({"purged": gone})

    async def restore(self, request: Request) -> Response:
        """Bring a workspace back, to where it was or to the path `to`; answers it."""
        asked = await body_of(request, Restore)
        to = absolute(asked.to) if asked.to is not None else None
        restored = await self._tools.bin.restore(request.path_params["id"], query(request, "project"), to)
        return answer(await self._tools.overview.brief(restored))
