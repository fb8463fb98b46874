"""The MCP endpoints: each serves the view that a path, a header and a query choose."""

import asyncio
import stat
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.api.choosing import HEADER, Choice, Chooser
from rookery.gateway.hooks import Hooks
from rookery.gateway.member import Member
from rookery.gateway.nowhere import Nowhere
from rookery.gateway.rules import Judge
from rookery.gateway.view import View
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.hub import Hub
from rookery.upstreams.membership import FleetMembers
from rookery.upstreams.permissions import Permissions
from rookery.wire.endpoint import Endpoint
from rookery.wire.head import Head
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError

_ENDS = frozenset({"mcp", "sse", "messages", "ws"})
_MOST_ENDPOINTS = 1000
# Fewer, so that they are forgotten first: what is asked for after that is known to be in use.
_MOST_CHOICES = 500
# How long calls may go on in a workspace that is closed; a deletion that its own client waits for is one of them.
_DRAIN_SECONDS = 60.0
# How long a choice is taken for what it was without a look at the folder.
LOOK_SECONDS = 0.5

Made = tuple[Endpoint, View | Nowhere]


@dataclass(frozen=True)
class Rooms:
    """What the doors lead to."""

    hub: Hub
    hooks: Hooks
    judge: Callable[[Permissions], Judge]
    # For the workspace that a view acts in, if any, and for the one that its client may see no more than, if any.
    toolsets: Callable[[Path | None, Path | None], Sequence[Member]]
    info: dict[str, Any]


@dataclass(slots=True)
class _Known:
    """What was chosen before. It holds while the folder is the same worktree, by its link to the repository."""

    endpoint: Endpoint
    path: bytes
    link: Path | None
    mark: tuple[int, ...] | None
    looked: float = 0.0

    def holds(self) -> bool:
        """Looked at now and then only: a worktree that goes by our hands is forgotten at once."""
        if self.link is None or (now := SYSTEM_CLOCK.monotonic()) < self.looked + LOOK_SECONDS:
            return True
        self.looked = now
        return _mark_of(self.link) == self.mark


class Doors:
    """An ASGI app in front of the REST routes."""

    def __init__(self, rooms: Rooms, chooser: Chooser, rest: ASGIApp) -> None:
        self._rooms = rooms
        self._chooser = chooser
        self._rest = rest
        # Most of them are asked for again and again; the one used longest ago first.
        self._endpoints: OrderedDict[tuple[Choice, str], Made] = OrderedDict()
        # What was chosen before, by all that chooses: path, query, token and header.
        self._chosen: dict[tuple[object, ...], _Known] = {}
        self._closing: set[Endpoint] = set()
        self._tasks = TaskSet("doors")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        headers = Head.of(scope["headers"]).all(HEADER)
        chosen = (raw, scope["query_string"], scope["state"]["principal"].workspace, *headers)
        known = self._chosen.get(chosen)
        if known is None or not known.holds():
            beside, _, end = raw.decode("latin-1").rpartition("/")
            if end not in _ENDS or (beside and not beside.startswith("/w/")):
                await self._rest(scope, receive, send)
                return
            # The same place however its name is encoded: clients differ in what they escape.
            beside = "/".join(quote(unquote(part), safe="@") for part in beside.split("/"))
            try:
                known = await self._find(scope, chosen, beside, end)
            except RookeryError as error:
                status = 403 if error.code == "forbidden" else 404 if error.code.endswith("-not-found") else 400
                await Http(scope, receive, send).refuse(status, WireError(INVALID_REQUEST, error.message))
                return
        scope["raw_path"] = known.path
        await known.endpoint(scope, receive, send)

    async def _find(self, scope: Scope, chosen: tuple[object, ...], beside: str, end: str) -> _Known:
        if (before := self._chosen.pop(chosen, None)) is not None and before.link is not None:
            # It is gone, or another one has come to its place, and nobody told us.
            self.retire(gone := before.link.parent, "the workspace is gone")
            await self._rooms.hub.let_go(gone)
        choice = await self._chooser.choose(scope, beside)
        link = choice.directory / ".git" if choice.directory is not None else None
        mark = _mark_of(link) if link is not None else None
        endpoint = await self._endpoint(choice, beside)
        known = _Known(endpoint, f"{beside}/{end}".encode(), link, mark)
        if len(self._chosen) >= _MOST_CHOICES:
            self._chosen.clear()
        # What is nowhere now may be somewhere the next time.
        if choice.missing is None:
            self._chosen[chosen] = known
        return known

    def knows_session(self, session: str) -> bool:
        return any(session in endpoint.service.sessions for endpoint, _ in self._endpoints.values())

    def retire(self, directory: Path, reason: str) -> bool:
        """Close the endpoints of a workspace, once the calls there have ended or had their time; whether any were used.

        Whoever comes from now on finds what there is then.
        """
        gone = [key for key in self._endpoints if key[0].directory == directory]
        self._chosen.clear()
        used = False
        for key in gone:
            endpoint, view = self._endpoints.pop(key)
            used = used or not endpoint.service.idle
            self._closing.add(endpoint)
            self._tasks.start(self._drain(endpoint, view, reason), "drain")
        return used

    async def _drain(self, endpoint: Endpoint, view: View | Nowhere, reason: str) -> None:
        if calls := endpoint.service.under_way():
            await asyncio.wait(calls, timeout=_DRAIN_SECONDS)
        endpoint.close(reason)
        view.close()
        self._closing.discard(endpoint)

    def close(self) -> None:
        """End every call and every stream; the listener is stopped after this."""
        for endpoint in self._closing:
            endpoint.close()
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

    def _make(self, choice: Choice, beside: str, fleet: Fleet) -> Made:
        rooms = self._rooms
        toolsets = [one for one in rooms.toolsets(choice.directory, choice.scope) if one.name in choice.toolsets]
        if choice.missing is not None:
            nowhere = Nowhere(toolsets, rooms.info, choice.missing)
            return Endpoint(nowhere, f"{beside}/mcp"), nowhere
        members = FleetMembers(fleet, rooms.judge, toolsets, choice.server, choice.servers)
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


def _mark_of(link: Path) -> tuple[int, ...] | None:
    """What tells one `.git` from another; a main checkout's is a folder, in which things come and go."""
    try:
        found = link.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_mtime_ns
