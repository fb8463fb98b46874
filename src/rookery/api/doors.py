"""The MCP endpoints: which view a path, a header and a query choose. Who may call has been judged before."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.gateway.hooks import Hooks
from rookery.gateway.member import Member
from rookery.gateway.names import BARE, Style
from rookery.gateway.nowhere import Nowhere
from rookery.gateway.rules import Judge
from rookery.gateway.view import View
from rookery.system.errors import RookeryError
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.hub import Hub
from rookery.upstreams.membership import FleetMembers
from rookery.upstreams.permissions import Permissions
from rookery.wire.endpoint import Endpoint
from rookery.wire.head import Head
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError

_ENDS = frozenset({"mcp", "sse", "messages", "ws"})
_HEADER = b"x-workspace-path"
_LONGEST_PATH = 4096
_MOST_ENDPOINTS = 1000
# Fewer, so that they are forgotten first: what is asked for after that is known to be in use.
_MOST_CHOICES = 500
_STYLES = {"prefix": ("always", "conflict", "never"), "names": ("rookery", "opencode")}


@dataclass(frozen=True)
class Choice:
    """What chooses a view."""

    directory: Path | None
    server: str | None
    style: Style = field(default_factory=Style)
    toolsets: frozenset[str] | None = None


# A workspace that was named, but is not registered.
_NOWHERE = Choice(None, "")


@dataclass(frozen=True)
class Rooms:
    """What the doors lead to."""

    hub: Hub
    hooks: Hooks
    judge: Callable[[Permissions], Judge]
    toolsets: Callable[[Path | None], Sequence[Member]]
    # A workspace by project and name, or by its path; None where there is none.
    named: Callable[[str, str], Awaitable[Path | None]]
    at: Callable[[str], Awaitable[Path | None]]
    info: dict[str, Any]


class Doors:
    """An ASGI app in front of the REST routes."""

    def __init__(self, rooms: Rooms, rest: ASGIApp) -> None:
        self._rooms = rooms
        self._rest = rest
        # Most of them are asked for again and again; the one used longest ago first.
        self._endpoints: OrderedDict[tuple[Choice, str], tuple[Endpoint, View | Nowhere]] = OrderedDict()
        # What was chosen before, by all that chooses: path, query and header.
        self._chosen: dict[tuple[bytes, ...], tuple[Endpoint, bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        chosen = (raw, scope["query_string"], *Head.of(scope["headers"]).all(_HEADER))
        known = self._chosen.get(chosen)
        if known is None:
            beside, _, end = raw.decode("latin-1").rpartition("/")
            if end not in _ENDS or (beside and not beside.startswith("/w/")):
                await self._rest(scope, receive, send)
                return
            # The same place however its name is encoded: clients differ in what they escape.
            beside = "/".join(quote(unquote(part), safe="@") for part in beside.split("/"))
            try:
                choice = await self._choose(scope, beside)
                endpoint = await self._endpoint(choice, beside)
            except RookeryError as error:
                status = 404 if error.code.endswith("-not-found") else 400
                await Http(scope, receive, send).refuse(status, WireError(INVALID_REQUEST, error.message))
                return
            if len(self._chosen) >= _MOST_CHOICES:
                self._chosen.clear()
            # What is nowhere now may be somewhere the next time.
            known = endpoint, f"{beside}/{end}".encode()
            if choice is not _NOWHERE:
                self._chosen[chosen] = known
        endpoint, scope["raw_path"] = known
        await endpoint(scope, receive, send)

    def knows_session(self, session: str) -> bool:
        return any(session in endpoint.service.sessions for endpoint, _ in self._endpoints.values())

    def close(self) -> None:
        """End every call and every stream; the listener is stopped after this."""
        for endpoint, view in self._endpoints.values():
            endpoint.close()
            view.close()

    async def _endpoint(self, choice: Choice, beside: str) -> Endpoint:
        key = choice, beside
        if key not in self._endpoints:
            fleet = await self._rooms.hub.fleet(choice.directory)
            if choice.server:
                fleet.find(choice.server)
            # Others may have come for the same one meanwhile.
            if key not in self._endpoints:
                self._endpoints[key] = self._make(choice, beside, fleet)
                self._forget_oldest()
        self._endpoints.move_to_end(key)
        return self._endpoints[key][0]

    def _make(self, choice: Choice, beside: str, fleet: Fleet) -> tuple[Endpoint, View | Nowhere]:
        rooms = self._rooms
        if choice is _NOWHERE:
            nowhere = Nowhere(rooms.toolsets(None), rooms.info)
            return Endpoint(nowhere, f"{beside}/mcp"), nowhere
        toolsets: Sequence[Member] = () if choice.server is not None else rooms.toolsets(choice.directory)
        if choice.toolsets is not None:
            toolsets = [one for one in toolsets if one.name in choice.toolsets]
        members = FleetMembers(fleet, rooms.judge, toolsets, choice.server)
        view = View(members, choice.style, rooms.info, rooms.hooks)
        return Endpoint(view, f"{beside}/mcp", on_session_end=lambda one: rooms.hub.end_session(one.id)), view

    def _forget_oldest(self) -> None:
        """One that somebody uses stays, however many there are: that costs less than a client that is cut off."""
        unused = [key for key, (endpoint, _) in self._endpoints.items() if endpoint.service.idle]
        for key in unused[: max(0, len(self._endpoints) - _MOST_ENDPOINTS)]:
            endpoint, view = self._endpoints.pop(key)
            self._chosen.clear()
            endpoint.close()
            view.close()

    # ---- what a request says

    async def _choose(self, scope: Scope, beside: str) -> Choice:
        style, toolsets = _asked(scope["query_string"])
        if toolsets is not None:
            toolsets &= {one.name for one in self._rooms.toolsets(None)}
        if not beside:
            given = _path_in(Head.of(scope["headers"]).all(_HEADER))
            if given is None:
                return Choice(None, None, style, toolsets)
            directory = await self._rooms.at(given) or await self._rooms.at(unquote(given))
            return Choice(directory, None, style, toolsets) if directory is not None else _NOWHERE
        # Every name is one percent-encoded segment.
        match beside.split("/")[2:]:
            case [project, workspace]:
                server = None
            case [project, workspace, "s", server] if server:
                server, style = unquote(server), BARE
            case _:
                raise RookeryError("route-not-found", "there is no endpoint at this path")
        directory = await self._rooms.named(unquote(project), unquote(workspace))
        if directory is None:
            raise RookeryError("workspace-not-found", f"there is no workspace {project}/{workspace}")
        return Choice(directory, server, style, toolsets)


def _path_in(sent: Sequence[bytes]) -> str | None:
    """What `X-Workspace-Path` selects, which may be percent-encoded. It authorises nothing."""
    if not sent:
        return None
    if len(sent) > 1 or len(sent[0]) > _LONGEST_PATH:
        raise RookeryError("invalid-input", f"send X-Workspace-Path once, with at most {_LONGEST_PATH} bytes")
    try:
        given = sent[0].decode()
        decoded = unquote(given, errors="strict")
    except UnicodeDecodeError:
        raise RookeryError("invalid-input", "X-Workspace-Path is not valid UTF-8") from None
    if not decoded.startswith("/") or "\0" in decoded:
        raise RookeryError("invalid-input", "X-Workspace-Path must be an absolute path")
    return given


def _asked(query: bytes) -> tuple[Style, frozenset[str] | None]:
    """`?prefix=` and `?names=` choose how tools are named, `?toolsets=` narrows what of ours is shown."""
    if not query:
        return Style(), None
    given = {key: values[-1] for key, values in parse_qs(query.decode("latin-1")).items()}
    for key, allowed in _STYLES.items():
        if key in given and given[key] not in allowed:
            raise RookeryError("invalid-input", f"?{key}= is one of {', '.join(allowed)}, not {given[key]!r}")
    prefix: Any = given.get("prefix", "always")
    style = Style(prefix, "_" if given.get("names") == "opencode" else "__")
    return style, frozenset(given["toolsets"].split(",")) if "toolsets" in given else None
