"""The MCP endpoints: each serves the view that a path, a header and a query choose."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Raw
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.api.choosing import Choice, Chooser, address
from rookery.api.known import Known, chosen_by, head_of, lane_to, mark_of
from rookery.api.rooms import Rooms
from rookery.api.usage import Usages
from rookery.gateway.finding import FindingView, SearchView, Sight
from rookery.gateway.nowhere import Nowhere
from rookery.gateway.view import View
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.upstreams.fleet import Fleet
from rookery.upstreams.membership import FleetMembers
from rookery.wire.endpoint import Endpoint
from rookery.wire.http_server import Http
from rookery.wire.jsonrpc import INVALID_REQUEST, WireError
from rookery.wire.lane import Lane

_ENDS = frozenset({"mcp", "sse", "messages", "ws"})
_MOST_ENDPOINTS = 1000
# Fewer, so that they are forgotten first: what is asked for after that is known to be in use.
_MOST_CHOICES = 500
# How long calls may go on in a workspace that is closed; a deletion that its own client waits for is one of them.
_DRAIN_SECONDS = 60.0

Made = tuple[Endpoint, View | Nowhere]
# The path of an endpoint without its last part, as it is now: a workspace may be called otherwise tomorrow.
Place = Callable[[], Awaitable[str]]


class Doors:
    """An ASGI app in front of the REST routes."""

    def __init__(self, rooms: Rooms, chooser: Chooser, rest: ASGIApp) -> None:
        self._rooms = rooms
        self._chooser = chooser
        self._rest = rest
        # Most of them are asked for again and again; the one used longest ago first.
        self._endpoints: OrderedDict[tuple[Choice, str], Made] = OrderedDict()
        # What was chosen before, by all that chooses: path, query, token and header.
        self._chosen: dict[tuple[object, ...], Known] = {}
        self._closing: set[Endpoint] = set()
        self.usages = Usages()
        self._tasks = TaskSet("doors")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        # Where a port of a workspace's own leads to.
        place: Place | None = scope["state"].get("place")
        chosen = chosen_by(scope)
        known = self._chosen.get(chosen)
        if known is None or not known.holds():
            beside, _, end = raw.decode("latin-1").rpartition("/")
            if end not in _ENDS or (beside and not beside.startswith("/w/")):
                await self._rest(scope, receive, send)
                return
            try:
                # The same place however its name is encoded: clients differ in what they escape.
                beside = address(beside.split("/")) if place is None else await place()
                known = await self._find(scope, chosen, beside, end)
            except RookeryError as error:
                status = 403 if error.code == "forbidden" else 404 if error.code.endswith("-not-found") else 400
                await Http(scope, receive, send).refuse(status, WireError(INVALID_REQUEST, error.message))
                return
        scope["raw_path"] = known.path
        await known.endpoint(scope, receive, send)

    def lane(self, scope: Scope) -> Lane | None:
        return lane_to(self._chosen, scope)

    async def _find(self, scope: Scope, chosen: tuple[object, ...], beside: str, end: str) -> Known:
        if (before := self._chosen.pop(chosen, None)) is not None and before.link is not None:
            if before.gone:
                # And nobody told us.
                self.retire(gone := before.link.parent, "the workspace is gone")
                await self._rooms.hub.let_go(gone)
            elif not await self._chooser.is_taken(beside):
                self._chosen[chosen] = before.keep()
                return before
        choice = await self._chooser.choose(scope, beside)
        link = choice.directory / ".git" if choice.directory is not None else None
        mark = mark_of(link) if link is not None else None
        # A port of its own is not found by a name.
        head = head_of(choice.directory) if beside and "place" not in scope["state"] else None
        branch = mark_of(head) if head is not None else None
        endpoint, _ = await self._endpoint(choice, beside)
        known = Known(endpoint, f"{beside}/{end}".encode(), link, mark, head, branch)
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
        self.usages.forget(directory)
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

    async def tools(self, directory: Path, beside: str) -> Raw:
        """What a workspace's endpoint lists, as far as it is known: no server is started for it."""
        _, view = await self._endpoint(self._chooser.usual(directory), beside)
        assert isinstance(view, View)
        return view.table(None).lists["tools/list"]

    async def _endpoint(self, choice: Choice, beside: str) -> Made:
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
        return self._endpoints[key]

    def _make(self, choice: Choice, beside: str, fleet: Fleet) -> Made:
        rooms, sight = self._rooms, Sight()
        toolsets = [one for one in rooms.toolsets(choice.directory, choice.scope, sight) if one.name in choice.toolsets]
        if choice.missing is not None:
            nowhere = Nowhere(toolsets, rooms.info, choice.missing)
            return Endpoint(nowhere, f"{beside}/mcp"), nowhere
        members = FleetMembers(fleet, rooms.judge, toolsets, choice.server, choice.servers)
        kind = SearchView if choice.search else FindingView
        view = sight.view = kind(members, choice.style, rooms.info, rooms.hooks, rooms.parking)
        if isinstance(view, SearchView):
            view.finder = rooms.finder(sight)
        # The workspace's own endpoint; an agent comes to the app-wide one, and to those of single servers.
        usage = self.usages.of(choice.directory) if choice.directory and beside and not choice.server else None
        made = Endpoint(
            view,
            f"{beside}/mcp",
            on_session_end=lambda one: rooms.hub.end_session(one.id),
            traffic=usage.traffic if usage is not None else None,
        )
        if usage is not None:
            usage.add(made.service)
        return made, view

    def _forget_oldest(self) -> None:
        """One that somebody uses stays, however many there are: that costs less than a client that is cut off."""
        unused = [key for key, (endpoint, _) in self._endpoints.items() if endpoint.service.idle]
        for key in unused[: max(0, len(self._endpoints) - _MOST_ENDPOINTS)]:
            endpoint, view = self._endpoints.pop(key)
            self._chosen.clear()
            endpoint.close()
            view.close()
