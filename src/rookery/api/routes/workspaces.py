"""The routes about workspaces. `{project}` is an id or a name, `{name}` one percent-encoded segment."""

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.requests import RawRoute, is_user_view, json_response, read_body, read_flag, read_query
from rookery.api.routes.projects import require_absolute
from rookery.api.status import EndpointLookup, describe_endpoint
from rookery.system.errors import RookeryError
from rookery.workspaces.model import Workspace
from rookery.workspaces.operations import WorkspaceOperations
from rookery.workspaces.overview import JsonObject


class CreateWorkspace(msgspec.Struct, forbid_unknown_fields=True):
    """A workspace to create. `agent` says whether an agent works in it.

    With `wait`, the response is sent when the workspace is prepared.
    """

    name: str
    project: str | None = None
    base: str | None = None
    branch: str | None = None
    prompt: str | None = None
    agent: bool = True
    wait: bool = False


class DeleteWorkspace(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    force: bool = False
    keep_branch: bool = False
    wait: bool = False


class PrepareWorkspace(msgspec.Struct, forbid_unknown_fields=True):
    wait: bool = False


class MetadataValue(msgspec.Struct, forbid_unknown_fields=True):
    """A metadata value. Null removes the key."""

    key: str
    value: str | None


def workspace_routes(
    operations: WorkspaceOperations, endpoints: Callable[[], EndpointLookup], url: Callable[[], str]
) -> list[Route]:
    """Return all routes about workspaces; `url` returns the address of the app port."""
    routes = WorkspaceRoutes(operations, endpoints, url)
    path = "/api/workspaces/{project}/{name}"
    return [
        Route("/api/workspaces", routes.list),
        Route("/api/workspaces", routes.create, methods=["POST"]),
        Route("/api/workspaces/merged", routes.merged),
        Route("/api/workspaces/at", routes.at),
        RawRoute(path, routes.show),
        RawRoute(path, routes.delete, methods=["DELETE"]),
        RawRoute(f"{path}/status", routes.status),
        RawRoute(f"{path}/metadata", routes.metadata),
        RawRoute(f"{path}/metadata", routes.set_metadata, methods=["PUT"]),
        RawRoute(f"{path}/environment", routes.environment),
        RawRoute(f"{path}/token", routes.token),
        RawRoute(f"{path}/diff", routes.diff),
        RawRoute(f"{path}/open", routes.open, methods=["POST"]),
        RawRoute(f"{path}/close", routes.close, methods=["POST"]),
        RawRoute(f"{path}/prepare", routes.prepare, methods=["POST"]),
    ]


class WorkspaceRoutes:
    def __init__(
        self, operations: WorkspaceOperations, endpoints: Callable[[], EndpointLookup], url: Callable[[], str]
    ) -> None:
        self._operations, self._endpoints, self._url = operations, endpoints, url

    async def list(self, request: Request) -> Response:
        """The workspaces of all projects, or of `?project=`; with their git status if `?status=true`."""
        project, status = read_query(request, "project"), read_flag(request, "status")
        workspaces = await self._operations.overview.all(project, status=status)
        return json_response([self._with_state(workspace) for workspace in workspaces])

    async def create(self, request: Request) -> Response:
        """Create a workspace; it is still being prepared unless `wait` is true. `project` defaults to the only one."""
        body = await read_body(request, CreateWorkspace)
        workspace = await self._operations.create(
            await self._operations.resolve_project(body.project),
            body.name,
            base=body.base,
            branch=body.branch,
            prompt=body.prompt,
            agent=body.agent,
            wait=body.wait,
            creator=request.state.principal.workspace,
        )
        return await self._response(workspace, 201)

    async def merged(self, request: Request) -> Response:
        """The clean workspaces whose work is already merged, with `how` it was merged; `?project=`."""
        return json_response(await self._operations.overview.merged(read_query(request, "project")))

    async def at(self, request: Request) -> Response:
        """The workspace that contains the folder `?path=`."""
        path = read_query(request, "path")
        if path is None:
            raise RookeryError("invalid-input", "path is missing", "send ?path= with the path of a folder")
        return await self._response(await self._operations.containing(require_absolute(path)))

    async def show(self, request: Request) -> Response:
        """A workspace with its status, its metadata, its MCP server and the reasons why it needs its user."""
        workspace = await self._workspace(request)
        details = await self._operations.overview.details(workspace)
        if is_user_view(request):
            self._operations.agents.mark_seen(workspace)
        return json_response({**details, "mcp": await describe_endpoint(details, self._endpoints(), self._url())})

    async def delete(self, request: Request) -> Response:
        """Move a workspace to the trash; returns immediately, or with `wait` at the end. Also `force`, `keepBranch`."""
        body = await read_body(request, DeleteWorkspace)
        wait = body.wait or read_flag(request, "wait")
        started = await self._operations.delete(
            await self._workspace(request),
            force=body.force or read_flag(request, "force"),
            keep_branch=body.keep_branch or read_flag(request, "keepBranch"),
            wait=wait,
        )
        return json_response(started, status=200 if wait else 202)

    async def status(self, request: Request) -> Response:
        """The uncommitted changes, unmerged commits and conflicts of a workspace, and the status of its agent."""
        return json_response(await self._operations.overview.status(await self._workspace(request)))

    async def metadata(self, request: Request) -> Response:
        """All metadata of a workspace; `base` is always present."""
        return json_response(await self._operations.workspaces.metadata(await self._workspace(request)))

    async def set_metadata(self, request: Request) -> Response:
        """Set the metadata `key` to `value`, or remove it with null; returns all metadata."""
        workspace = await self._workspace(request)
        body = await read_body(request, MetadataValue)
        await self._operations.workspaces.set_metadata(workspace, body.key, body.value)
        return json_response(await self._operations.workspaces.metadata(workspace))

    async def environment(self, request: Request) -> Response:
        """The environment variables for programs in a workspace, including its ports."""
        return json_response(await self._operations.workspaces.environment(await self._workspace(request)))

    async def token(self, request: Request) -> Response:
        """The token that gives access to this workspace only."""
        return json_response({"token": await self._operations.workspaces.token(await self._workspace(request))})

    async def diff(self, request: Request) -> Response:
        """The changes since the branch left its base, committed or not: files, a patch, and what was left out."""
        return json_response(await self._operations.diff(await self._workspace(request)))

    async def open(self, request: Request) -> Response:
        """Open a workspace: its services start, now and with the daemon."""
        return await self._response(await self._operations.workspaces.open(await self._workspace(request)))

    async def close(self, request: Request) -> Response:
        """Close a workspace: its services stop; nothing is deleted."""
        return await self._response(await self._operations.workspaces.close(await self._workspace(request)))

    async def prepare(self, request: Request) -> Response:
        """Prepare a workspace again after a failure; with `wait`, returns when the preparation has ended."""
        body = await read_body(request, PrepareWorkspace)
        return await self._response(await self._operations.prepare(await self._workspace(request), wait=body.wait), 202)

    async def _workspace(self, request: Request) -> Workspace:
        return await self._operations.workspaces.get(request.path_params["project"], request.path_params["name"])

    async def _response(self, workspace: Workspace, status: int = 200) -> Response:
        return json_response(self._with_state(await self._operations.overview.summary(workspace)), status)

    def _with_state(self, workspace: JsonObject) -> JsonObject:
        return {**workspace, "mcp": self._endpoints().state(workspace)}
