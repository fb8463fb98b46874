"""The routes about MCP servers: list, add, change, check and sign in.

`?workspace=` names a workspace by its path or as `<project>/<name>`; without it a server is app-wide. Signing in is for
the owner, and not for processes that Rookery started.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api.requests import json_response, read_body
from rookery.gateway.rules import Level
from rookery.system.errors import RookeryError
from rookery.upstreams.check import check_servers
from rookery.upstreams.config.definition import ConfigLevel, Definition
from rookery.upstreams.config.edit import choose_file, find_file
from rookery.upstreams.config.redact import redact_definition
from rookery.upstreams.hub import Hub
from rookery.upstreams.oauth.manager import LOGIN_SECONDS
from rookery.upstreams.server_set import ServerRecord

_VERBS = ("connect", "disconnect", "enable", "disable", "debug")
_MAX_SECONDS = 3600.0


@dataclass(frozen=True)
class McpServices:
    """The services behind these routes."""

    hub: Hub
    workspace: Callable[[str], Awaitable[Path]]
    search_tokens: int = 0


class AddServer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    config: dict[str, Any]
    workspace: str | None = None
    session: str | None = None


class DefineServer(msgspec.Struct, forbid_unknown_fields=True):
    """A server to write. `file` is any file; without it, `place` and `client` select the file."""

    config: dict[str, Any]
    place: ConfigLevel = "user"
    client: Literal["rookery", "opencode", "claude"] = "rookery"
    file: str | None = None
    force: bool = False


class ChangeServer(msgspec.Struct, forbid_unknown_fields=True):
    """What to switch: `tool` is a wildcard over the server's own tool names, `level` says for whom."""

    tool: str | None = None
    level: Level | None = None


def mcp_routes(mcp: McpServices) -> list[Route]:
    routes = McpRoutes(mcp)
    return [
        Route("/api/mcp", routes.list),
        Route("/api/mcp", routes.add, methods=["POST"]),
        Route("/api/tools", routes.tools),
        Route("/api/problems", routes.problems),
        Route("/api/mcp/{name}", routes.get),
        Route("/api/mcp/{name}", routes.write, methods=["PUT"]),
        Route("/api/mcp/{name}", routes.remove, methods=["DELETE"]),
        *(Route(f"/api/mcp/{{name}}/{verb}", getattr(routes, verb), methods=["POST"]) for verb in _VERBS),
    ]


class McpRoutes:
    def __init__(self, mcp: McpServices) -> None:
        self._hub = mcp.hub
        self._workspace = mcp.workspace

    async def list(self, request: Request) -> Response:
        """All configured servers by name: status, error and other details."""
        return json_response(await self._records(await self._directory(request), _session(request)))

    async def add(self, request: Request) -> Response:
        """Add a server until Rookery stops, and connect it; returns the records of all servers."""
        body = await read_body(request, AddServer)
        directory = await self._workspace(body.workspace) if body.workspace is not None else None
        await self._hub.add(directory, body.session, body.name, body.config)
        return json_response(await self._records(directory, body.session), status=201)

    async def get(self, request: Request) -> Response:
        """One server: its record, its definition without secrets, and its last output to stderr."""
        directory, session, name = await self._parameters(request)
        slot = (await self._hub.server_set(directory, session)).find(name, session)
        return json_response(
            await self._record(directory, session, name) | {"definition": redact_definition(slot.definition)}
        )

    async def write(self, request: Request) -> Response:
        """Write a server to a file permanently; returns the file, and the record of the server with this name."""
        directory, _, name = await self._parameters(request)
        body = await read_body(request, DefineServer)
        if body.file is not None and not Path(body.file).is_absolute():
            raise RookeryError("invalid-input", f"{body.file!r} is not an absolute path", "send an absolute path")
        file = find_file(directory, Path(body.file)) if body.file else choose_file(directory, body.place, body.client)
        await self._hub.write(file, name, body.config, body.force)
        record = (await self._records(directory, None)).get(name)
        result = {"name": name, "file": str(file.path), "dialect": file.dialect, "place": file.place}
        return json_response(result | {"record": record}, status=201)

    async def remove(self, request: Request) -> Response:
        """Remove a server: one that was added while running, or its entry in the file that defines it."""
        directory, session, name = await self._parameters(request)
        definition = await self._hub.remove(directory, session, name)
        return json_response({"removed": name, "source": str(definition.source)})

    async def connect(self, request: Request) -> Response:
        """Connect now, regardless of earlier failures; returns the server's record."""
        directory, session, name = await self._parameters(request)
        await self._hub.connect(directory, session, name)
        return json_response(await self._record(directory, session, name))

    async def disconnect(self, request: Request) -> Response:
        """Disconnect a server until it is connected again; returns its record."""
        directory, session, name = await self._parameters(request)
        await self._hub.disconnect(directory, session, name)
        return json_response(await self._record(directory, session, name))

    async def enable(self, request: Request) -> Response:
        """Enable a server, or those of its tools that match `tool`; survives restarts."""
        return await self._switch(request, enabled=True)

    async def disable(self, request: Request) -> Response:
        """Disable a server, or those of its tools that match `tool`; survives restarts."""
        return await self._switch(request, enabled=False)

    async def debug(self, request: Request) -> Response:
        """Test a server on a separate connection; returns each step with its time, without secrets."""
        return json_response(await self._hub.debug(*await self._parameters(request)))

    async def tools(self, request: Request) -> Response:
        """The tools of all servers, or of `?server=`, with their cost in tokens for a model; waits for all servers."""
        directory, session = await self._directory(request), _session(request)
        return json_response(await self._hub.tools(directory, session, request.query_params.get("server")))

    async def problems(self, request: Request) -> Response:
        """The problems in the files that define servers, with file and line."""
        server_set = await self._hub.server_set(await self._directory(request))
        return json_response(server_set.config.problems)

    # Parameters of requests

    async def _switch(self, request: Request, *, enabled: bool) -> Response:
        directory, session, name = await self._parameters(request)
        body = await read_body(request, ChangeServer)
        level = body.level or ("session" if session else "workspace" if directory else "app")
        await self._hub.switch(directory, session, name, tool=body.tool, level=level, enabled=enabled)
        return json_response(await self._record(directory, session, name))

    async def _parameters(self, request: Request) -> tuple[Path | None, str | None, str]:
        return await self._directory(request), _session(request), request.path_params["name"]

    async def _directory(self, request: Request) -> Path | None:
        """Return the directory of a request, after its configuration files were read again."""
        workspace = request.query_params.get("workspace")
        directory = await self._workspace(workspace) if workspace is not None else None
        await self._hub.config_watcher.catch_up(directory)
        return directory

    async def _record(self, directory: Path | None, session: str | None, name: str) -> dict[str, Any]:
        server_set = await self._hub.server_set(directory, session)
        server_set.find(name, session)
        return _by_name(server_set.records(session))[name]

    async def _records(self, directory: Path | None, session: str | None) -> Mapping[str, Any]:
        return _by_name(await self._hub.records(directory, session))


def _by_name(records: Iterable[ServerRecord]) -> dict[str, dict[str, Any]]:
    """Return the records by name. `shadows` are the sources of servers with the same name that are not used."""
    by_name: dict[str, dict[str, Any]] = {}
    shadows: dict[str, list[str]] = {}
    for record in records:
        if record.shadowed:
            shadows.setdefault(record.name, []).append(record.source)
        else:
            by_name[record.name] = msgspec.to_builtins(record)
    return {name: {**record, "shadows": shadows.get(name, [])} for name, record in by_name.items()}


def _session(request: Request) -> str | None:
    return request.query_params.get("session")


class CheckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The names of the servers to check; empty for all."""

    servers: list[str] = []


def check_routes(mcp: McpServices) -> list[Route]:
    routes = CheckRoutes(mcp)
    return [
        Route("/api/check", routes.check, methods=["POST"]),
        Route("/api/costs", routes.costs),
    ]


class CheckRoutes(McpRoutes):
    def __init__(self, mcp: McpServices) -> None:
        super().__init__(mcp)
        # The cost of a view in search mode.
        self._search_tokens = mcp.search_tokens

    async def check(self, request: Request) -> Response:
        """Start all configured servers once, or the named ones, and check them; returns the results."""
        body = await read_body(request, CheckRequest)
        server_set = await self._hub.server_set(await self._directory(request))
        return json_response(await check_servers(server_set, self._hub.pool, body.servers, self._search_tokens))

    async def costs(self, request: Request) -> Response:
        """The cost of all tools in a list for a model, and the cost of the two tools that search them."""
        tools = await self._hub.tools(await self._directory(request), None, None)
        costs = {"list_tokens": sum(tool.tokens for tool in tools if tool.shown), "search_tokens": self._search_tokens}
        return json_response(costs)


class SignInRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A sign-in. `seconds` is how long the person has."""

    seconds: float = LOGIN_SECONDS


class PastedAddress(msgspec.Struct, forbid_unknown_fields=True):
    """The address that the browser was redirected to."""

    url: str


def sign_in_routes(mcp: McpServices) -> list[Route]:
    routes = SignInRoutes(mcp)
    return [
        Route("/api/mcp/{name}/login", routes.begin, methods=["POST"]),
        Route("/api/mcp/{name}/login", routes.wait),
        Route("/api/mcp/{name}/login", routes.cancel, methods=["DELETE"]),
        Route("/api/mcp/{name}/login/redirect", routes.redirect, methods=["POST"]),
        Route("/api/mcp/{name}/logout", routes.logout, methods=["POST"]),
    ]


class SignInRoutes(McpRoutes):
    async def begin(self, request: Request) -> Response:
        """Start to sign in to a server; returns the address for a person to open, and the redirect address."""
        body = await read_body(request, SignInRequest)
        if not 0 < body.seconds <= _MAX_SECONDS:
            message = f"seconds must be greater than 0 and at most {_MAX_SECONDS:g}"
            raise RookeryError("invalid-input", message, "send a number in that range as seconds")
        definition = await self._definition(request)
        directory, session, name = await self._parameters(request)
        # Whether the server requires a sign-in is known only after a connection.
        await self._hub.connect(directory, session, name)
        status = (await self._record(directory, session, name))["status"]
        signins = self._hub.signins
        if (
            status == "connected"
            and not signins.is_sign_in_required(definition)
            and signins.find_issuer(definition) is None
        ):
            message = f'MCP server "{name}" is connected and requires no sign-in'
            raise RookeryError("invalid-input", message, "nothing has to be done")
        if status in ("failed", "backoff"):
            raise (await self._hub.server_set(directory, session)).server(name, session).failure()
        prompt = await (await signins.login(definition, body.seconds)).wait_for_prompt()
        return json_response({"name": name, **msgspec.to_builtins(prompt), "seconds": body.seconds}, status=202)

    async def wait(self, request: Request) -> Response:
        """Wait for the end of a sign-in; returns the server's record, and the issuer whose token is used."""
        definition = await self._definition(request)
        await self._hub.signins.attempt(definition).wait()
        directory, session, name = await self._parameters(request)
        await self._hub.connect(directory, session, name)
        record = await self._record(directory, session, name)
        return json_response(record | {"issuer": self._hub.signins.find_issuer(definition)})

    async def redirect(self, request: Request) -> Response:
        """Accept the address that the browser was redirected to, if the browser is on another machine."""
        body = await read_body(request, PastedAddress)
        await self._hub.signins.attempt(await self._definition(request)).send_redirect(body.url)
        return json_response({"taken": True}, status=202)

    async def cancel(self, request: Request) -> Response:
        """Cancel a sign-in."""
        definition = await self._definition(request)
        await self._hub.signins.cancel_login(definition)
        return json_response({"name": definition.name})

    async def logout(self, request: Request) -> Response:
        """Sign out: delete the tokens, and revoke them if the issuer supports that."""
        definition = await self._definition(request)
        removed, revoked = await self._hub.signins.logout(definition)
        return json_response({"name": definition.name, "removed": removed, "revoked": revoked})

    async def _definition(self, request: Request) -> Definition:
        """Return the definition of the server. Raise if the caller may not use it, or if nobody may."""
        directory, session, name = await self._parameters(request)
        return (await self._hub.server_set(directory, session)).server(name, session).definition
