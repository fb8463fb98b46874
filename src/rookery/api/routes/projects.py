"""The routes about projects, and about the trash with deleted workspaces."""

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.requests import RawRoute, json_response, read_body, read_query
from rookery.system.errors import RookeryError
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.projects import Projects


class AddProject(msgspec.Struct, forbid_unknown_fields=True):
    path: str


def project_routes(projects: Projects) -> list[Route]:
    routes = ProjectRoutes(projects)
    return [
        Route("/api/projects", routes.list),
        Route("/api/projects", routes.add, methods=["POST"]),
        RawRoute("/api/projects/{id}", routes.remove, methods=["DELETE"]),
    ]


class ProjectRoutes:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def list(self, request: Request) -> Response:
        """All registered projects."""
        return json_response(await self._projects.all())

    async def add(self, request: Request) -> Response:
        """Register the repository that contains `path`; returns the project and what was approved with it.

        The status is 201 if the project is new and 200 if not.
        """
        body = await read_body(request, AddProject)
        registration = await self._projects.add(require_absolute(body.path))
        result = msgspec.to_builtins(registration)
        return json_response(result.pop("project") | result, status=201 if registration.added else 200)

    async def remove(self, request: Request) -> Response:
        """Remove a project, by id or name, and its approvals; repository, worktrees and branches stay as they are."""
        project = await self._projects.remove(request.path_params["id"])
        return json_response(msgspec.to_builtins(project) | {"removed": True})


def require_absolute(path: str) -> Path:
    """Return a path; raise if it is not absolute, because it would depend on the working directory."""
    if not path.startswith("/") or "\0" in path:
        raise RookeryError("invalid-input", f"{path!r} is not an absolute path", "send an absolute path")
    return Path(path)


class RestoreWorkspace(msgspec.Struct, forbid_unknown_fields=True):
    """A restore. `to` is the new path of the folder; without it the old path is used."""

    to: str | None = None


def trash_routes(operations: WorkspaceOperations) -> list[Route]:
    routes = TrashRoutes(operations)
    return [
        Route("/api/trash", routes.list),
        Route("/api/trash", routes.purge, methods=["DELETE"]),
        RawRoute("/api/trash/{id}", routes.purge_one, methods=["DELETE"]),
        RawRoute("/api/trash/{id}/restore", routes.restore, methods=["POST"]),
    ]


class TrashRoutes:
    """The routes about the trash.

    `{id}` may also be the name of a workspace: the newest entry with that name, of `?project=` if given.
    """

    def __init__(self, operations: WorkspaceOperations) -> None:
        self._operations = operations

    async def list(self, request: Request) -> Response:
        """The entries of the trash (of `?project=`), the oldest first, with their size in bytes."""
        return json_response(await self._operations.trash.all(read_query(request, "project")))

    async def purge(self, request: Request) -> Response:
        """Remove all entries of the trash (of `?project=`) permanently; returns them."""
        return json_response({"purged": await self._operations.trash.purge(None, read_query(request, "project"))})

    async def purge_one(self, request: Request) -> Response:
        """Remove one entry permanently."""
        removed = await self._operations.trash.purge(request.path_params["id"], read_query(request, "project"))
        return json_response({"purged": removed})

    async def restore(self, request: Request) -> Response:
        """Restore a workspace to its old path or to the path `to`; returns it."""
        body = await read_body(request, RestoreWorkspace)
        to = require_absolute(body.to) if body.to is not None else None
        restored = await self._operations.trash.restore(request.path_params["id"], read_query(request, "project"), to)
        return json_response(await self._operations.overview.summary(restored))
