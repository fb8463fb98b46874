"""The routes about workspaces. `{project}` is an id or a name, `{name}` one percent-encoded segment."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.answers import answer, body_of
from rookery.api.projects import absolute
from rookery.api.queries import flag, query
from rookery.api.raw_route import RawRoute
from rookery.api.status import Endpoints, endpoint_of
from rookery.system.errors import RookeryError
from rookery.workspaces.overview import Shown
from rookery.workspaces.record import Workspace
from rookery.workspaces.tools import WorkspaceTools


class Create(msgspec.Struct, forbid_unknown_fields=True):
    """`agent` says whether one is to work there; `wait` answers when the workspace is prepared."""

    name: str
    project: str | None = None
    base: str | None = None
    branch: str | None = None
    prompt: str | None = None
    agent: bool = True
    wait: bool = False


class Delete(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    force: bool = False
    keep_branch: bool = False
    wait: bool = False


class Prepare(msgspec.Struct, forbid_unknown_fields=True):
    wait: bool = False


class Metadatum(msgspec.Struct, forbid_unknown_fields=True):
    """Null removes the key."""

    key: str
    value: str | None


def routes(tools: WorkspaceTools, endpoints: Callable[[], Endpoints], url: Callable[[], str]) -> list[Route]:
    """`url` is that of the app port."""
    made = WorkspaceRoutes(tools, endpoints, url)
    one = "/api/workspaces/{project}/{name}"
    return [
        Route("/api/workspaces", made.list),
        Route("/api/workspaces", made.create, methods=["POST"]),
        Route("/api/workspaces/merged", made.merged),
        Route("/api/workspaces/at", made.at),
        RawRoute(one, made.show),
        RawRoute(one, made.delete, methods=["DELETE"]),
        RawRoute(f"{one}/status", made.status),
        RawRoute(f"{one}/metadata", made.metadata),
        RawRoute(f"{one}/metadata", made.set_metadata, methods=["PUT"]),
        RawRoute(f"{one}/environment", made.environment),
        RawRoute(f"{one}/token", made.token),
        RawRoute(f"{one}/diff", made.diff),
        RawRoute(f"{one}/open", made.open, methods=["POST"]),
        RawRoute(f"{one}/close", made.close, methods=["POST"]),
        RawRoute(f"{one}/prepare", made.prepare, methods=["POST"]),
    ]


class WorkspaceRoutes:
    def __init__(self, tools: WorkspaceTools, endpoints: Callable[[], Endpoints], url: Callable[[], str]) -> None:
        self._tools, self._endpoints, self._url = tools, endpoints, url

    async def list(self, request: Request) -> Response:
        """The workspaces of all projects, or of `?project=`; `?status=true` tells the status of each one too."""
        project, status = query(request, "project"), flag(request, "status")
        found = await self._tools.overview.all(project, status=status)
        return answer([self._with_state(one) for one in found])

    async def create(self, request: Request) -> Response:
        """Make a workspace; it is still being prepared, unless `wait` is true. Without `project` the only one."""
        asked = await body_of(request, Create)
        made = await self._tools.create(
            await self._tools.project(asked.project),
            asked.name,
            base=asked.base,
            branch=asked.branch,
            prompt=asked.prompt,
            agent=asked.agent,
            wait=asked.wait,
        )
        return await self._answer(made, 201)

    async def merged(self, request: Request) -> Response:
        """Those that are clean and whose work is in their base already, with `how` it came there; `?project=`."""
        return answer(await self._tools.overview.merged(query(request, "project")))

    async def at(self, request: Request) -> Response:
        """The workspace that the folder `?path=` lies in."""
        given = query(request, "path")
        if given is None:
            raise RookeryError("invalid-input", "path is missing", "send ?path= with the path of a folder")
        return await self._answer(await self._tools.around(absolute(given)))

    async def show(self, request: Request) -> Response:
        """A workspace with its status, its metadata, its MCP server and what it needs its user for."""
        shown, endpoints = await self._tools.overview.one(await self._one(request)), self._endpoints()
        mcp = msgspec.structs.asdict(await endpoint_of(shown, endpoints, self._url()))
        return answer({**shown, "mcp": mcp | {"traffic": endpoints.traffic(shown)}})

    async def delete(self, request: Request) -> Response:
        """Move a workspace to the trash; answers at once, or with `wait` at the end. Also `force`, `keepBranch`."""
        asked = await body_of(request, Delete)
        wait = asked.wait or flag(request, "wait")
        started = await self._tools.delete(
            await self._one(request),
            force=asked.force or flag(request, "force"),
            keep_branch=asked.keep_branch or flag(request, "keepBranch"),
            wait=wait,
        )
        return answer(started, status=200 if wait else 202)

    async def status(self, request: Request) -> Response:
        """What is dirty, unmerged or in conflict, and what the agent does."""
        return answer(await self._tools.status(await self._one(request)))

    async def metadata(self, request: Request) -> Response:
        """All metadata of a workspace; `base` is always there."""
        return answer(await self._tools.workspaces.metadata(await self._one(request)))

    async def set_metadata(self, request: Request) -> Response:
        """Set the metadata `key` to `value`, or remove it with null; answers all metadata."""
        one = await self._one(request)
        asked = await body_of(request, Metadatum)
        await self._tools.workspaces.set_metadata(one, asked.key, asked.value)
        return answer(await self._tools.workspaces.metadata(one))

    async def environment(self, request: Request) -> Response:
        """The variables that programs in a workspace are given, its ports among them."""
        return answer(await self._tools.workspaces.environment(await self._one(request)))

    async def token(self, request: Request) -> Response:
        """The token that opens this workspace and no other."""
        return answer({"token": await self._tools.workspaces.token(await self._one(request))})

    async def diff(self, request: Request) -> Response:
        """What was changed since the branch left its base, committed or not: files, a patch, and what was cut off."""
        return answer(await self._tools.diff(await self._one(request)))

    async def open(self, request: Request) -> Response:
        """Open a workspace: what belongs to it starts, now and with the daemon."""
        return await self._answer(await self._tools.workspaces.open(await self._one(request)))

    async def close(self, request: Request) -> Response:
        """Close a workspace: what belongs to it stops; nothing of it is deleted."""
        return await self._answer(await self._tools.workspaces.close(await self._one(request)))

    async def prepare(self, request: Request) -> Response:
        """Prepare a workspace again, after a failure; with `wait` answers when that has ended."""
        asked = await body_of(request, Prepare)
        return await self._answer(await self._tools.prepare(await self._one(request), wait=asked.wait), 202)

    async def _one(self, request: Request) -> Workspace:
        return await self._tools.get(request.path_params["project"], request.path_params["name"])

    async def _answer(self, workspace: Workspace, status: int = 200) -> Response:
        return answer(self._with_state(await self._tools.overview.brief(workspace)), status)

    def _with_state(self, shown: Shown) -> Shown:
        return {**shown, "mcp": self._endpoints().state(shown)}
