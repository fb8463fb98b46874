"""The routes about MCP servers. `?workspace=` names a workspace by its path or as `<project>/<name>`, else app-wide."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rookery.api import outsiders
from rookery.api.answers import answer, body_of
from rookery.gateway.switches import Level
from rookery.system.errors import RookeryError
from rookery.upstreams.definition import Place
from rookery.upstreams.hub import Hub
from rookery.upstreams.showing import shown
from rookery.upstreams.slots import Record
from rookery.upstreams.writing import file_at, file_for


@dataclass(frozen=True)
class Mcp:
    hub: Hub
    workspace: Callable[[str], Awaitable[Path]]
    search_tokens: int = 0


class Add(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    config: dict[str, Any]
    workspace: str | None = None
    session: str | None = None


class Define(msgspec.Struct, forbid_unknown_fields=True):
    """`file` is any file; without it `place` and `client` choose the one that such a server belongs in."""

    config: dict[str, Any]
    place: Place = "user"
    client: Literal["rookery", "opencode", "claude"] = "rookery"
    file: str | None = None
    force: bool = False


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """`tool` is a wildcard over the server's own names; `level` says for whom it is switched."""

    tool: str | None = None
    level: Level | None = None


def routes(mcp: Mcp) -> list[Route]:
    made = McpRoutes(mcp)
    return [
        Route("/api/mcp", made.list),
        Route("/api/mcp", made.add, methods=["POST"]),
        Route("/api/tools", made.tools),
        Route("/api/problems", made.problems),
        Route("/api/mcp/{name}", made.get),
        Route("/api/mcp/{name}", made.write, methods=["PUT"]),
        Route("/api/mcp/{name}", made.remove, methods=["DELETE"]),
        *(Route(f"/api/mcp/{{name}}/{verb}", getattr(made, verb), methods=["POST"]) for verb in _VERBS),
    ]


_VERBS = ("connect", "disconnect", "enable", "disable", "debug")


class McpRoutes:
    def __init__(self, mcp: Mcp) -> None:
        self._hub = mcp.hub
        self._workspace = mcp.workspace

    async def list(self, request: Request) -> Response:
        """Every configured server by its name: status, error, and what else is known of it."""
        return answer(await self._record_of_all(await self._where(request), _session(request)))

    async def add(self, request: Request) -> Response:
        """Define a server until Rookery stops, and connect it; answers the updated record of all servers."""
        asked = await body_of(request, Add)
        await require_outsider()
        directory = await self._workspace(asked.workspace) if asked.workspace is not None else None
        await self._hub.add(directory, asked.session, asked.name, asked.config)
        return answer(await self._record_of_all(directory, asked.session), status=201)

    async def get(self, request: Request) -> Response:
        """One server: its record, its definition with secrets left out, and what it last wrote to stderr."""
        where, session, name = await self._asked(request)
        slot = (await self._hub.fleet(where, session)).find(name, session)
        return answer(await self._record(where, session, name) | {"definition": shown(slot.definition)})

    async def write(self, request: Request) -> Response:
        """Write a server into a file, for good; answers the file, and the record of what has its name then."""
        where, _, name = await self._asked(request)
        asked = await body_of(request, Define)
        await require_outsider()
        if asked.file is not None and not Path(asked.file).is_absolute():
            raise RookeryError("invalid-input", f"{asked.file!r} is not an absolute path", "send the whole path")
        file = file_at(where, Path(asked.file)) if asked.file else file_for(where, asked.place, asked.client)
        await self._hub.write(file, name, asked.config, asked.force)
        counts = (await self._record_of_all(where, None)).get(name)
        told = {"name": name, "file": str(file.path), "dialect": file.dialect, "place": file.place}
        return answer(told | {"record": counts}, status=201)

    async def remove(self, request: Request) -> Response:
        """Remove a server: one that was added while running, or its entry in the file that defines it."""
        where, session, name = await self._asked(request)
        await require_outsider()
        definition = await self._hub.remove(where, session, name)
        return answer({"removed": name, "source": str(definition.source)})

    async def connect(self, request: Request) -> Response:
        """Connect now, whatever failed before; answers the server's record."""
        where, session, name = await self._asked(request)
        await self._hub.connect(where, session, name)
        return answer(await self._record(where, session, name))

    async def disconnect(self, request: Request) -> Response:
        """Stop a server until it is connected again; answers its record."""
        where, session, name = await self._asked(request)
        await require_outsider()
        await self._hub.disconnect(where, session, name)
        return answer(await self._record(where, session, name))

    async def enable(self, request: Request) -> Response:
        """Switch a server on, or those of its tools that match `tool`; kept over restarts."""
        return await self._switch(request, enabled=True)

    async def disable(self, request: Request) -> Response:
        """Switch a server off, or those of its tools that match `tool`; kept over restarts."""
        return await self._switch(request, enabled=False)

    async def debug(self, request: Request) -> Response:
        """Try a server on a connection of its own; answers each step with its time, without any secret."""
        await require_outsider()
        return answer(await self._hub.debug(*await self._asked(request)))

    async def tools(self, request: Request) -> Response:
        """The tools of all servers, or of `?server=`, with what each costs a model to read; waits for all."""
        where, session = await self._where(request), _session(request)
        return answer(await self._hub.tools(where, session, request.query_params.get("server")))

    async def problems(self, request: Request) -> Response:
        """What is wrong in the files that define servers, with file and line."""
        fleet = await self._hub.fleet(await self._where(request))
        return answer(fleet.found.problems)

    # ---- what a request is about

    async def _switch(self, request: Request, *, enabled: bool) -> Response:
        where, session, name = await self._asked(request)
        asked = await body_of(request, Change)
        await require_outsider()
        level = asked.level or ("session" if session else "workspace" if where else "app")
        await self._hub.switch(where, session, name, tool=asked.tool, level=level, enabled=enabled)
        return answer(await self._record(where, session, name))

    async def _asked(self, request: Request) -> tuple[Path | None, str | None, str]:
        return await self._where(request), _session(request), request.path_params["name"]

    async def _where(self, request: Request) -> Path | None:
        """The directory that a request is about, of which the files count as they are now."""
        given = request.query_params.get("workspace")
        directory = await self._workspace(given) if given is not None else None
        await self._hub.files.catch_up(directory)
        return directory

    async def _record(self, where: Path | None, session: str | None, name: str) -> dict[str, Any]:
        fleet = await self._hub.fleet(where, session)
        fleet.find(name, session)
        return _by_name(fleet.records(session))[name]

    async def _record_of_all(self, where: Path | None, session: str | None) -> Mapping[str, Any]:
        return _by_name(await self._hub.records(where, session))


def _by_name(records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    """`shadows` are the places of those that a server stands before."""
    found: dict[str, dict[str, Any]] = {}
    shadows: dict[str, list[str]] = {}
    for one in records:
        if one.shadowed:
            shadows.setdefault(one.name, []).append(one.source)
        else:
            found[one.name] = msgspec.to_builtins(one)
    return {name: {**record, "shadows": shadows.get(name, [])} for name, record in found.items()}


def _session(request: Request) -> str | None:
    return request.query_params.get("session")


async def require_outsider() -> None:
    """What Rookery started must neither give itself tools nor take others' away."""
    await outsiders.require_outsider("MCP servers are for the user to look after", "do it yourself: rookery mcp")
