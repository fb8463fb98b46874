"""The routes about projects."""

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.raw_route import RawRoute
from rookery.system.errors import RookeryError
from rookery.workspaces.projects import Projects


class AddProject(msgspec.Struct, forbid_unknown_fields=True):
    path: str


def routes(projects: Projects) -> list[Route]:
    made = ProjectRoutes(projects)
    return [
        Route("/api/projects", made.list),
        Route("/api/projects", made.add, methods=["POST"]),
        RawRoute("/api/projects/{id}", made.remove, methods=["DELETE"]),
    ]


class ProjectRoutes:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def list(self, request: Request) -> Response:
        """The projects."""
        return answer(await self._projects.all())

    async def add(self, request: Request) -> Response:
        """Register the repository that `path` lies in; answers the project, with 201 if it is new and 200 if not."""
        asked = await body_of(request, AddProject)
        project, added = await self._projects.add(absolute(asked.path))
        return answer(msgspec.to_builtins(project) | {"added": added}, status=201 if added else 200)

    async def remove(self, request: Request) -> Response:
        """Forget a project, by id or name; repository, worktrees and branches stay as they are."""
        found = await self._projects.remove(request.path_params["id"])
        return answer(msgspec.to_builtins(found) | {"removed": True})


def absolute(given: str) -> Path:
    """A path that means the same wherever it was written."""
    if not given.startswith("/") or "\0" in given:
        raise RookeryError("invalid-input", f"{given!r} is not an absolute path", "send the whole path")
    return Path(given)
