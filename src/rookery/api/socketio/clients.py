"""The clients of Socket.IO that are connected: what they ask is answered, what happens is told, and at last goodbye."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from rookery.api.socketio_events import Caller, WorkspaceEvents
from rookery.api.socketio_server import refused
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.wire.gate import Principal
from rookery.workspaces.record import as_text

logger = logging.getLogger("rookery.socketio")
EVENTS = metrics.counter("rookery_socketio_events_total", "Events of Socket.IO clients, by how they ended.", "outcome")

_MOST_EVENTS = 32
_MOST_UNREAD = 1000
_GOODBYE_SECONDS = 1.0
_PUSHED = "workspace."
_GONE = "workspace.deleted"
_FAULT = RookeryError("internal-error", "something went wrong here; the daemon's log tells what")


class Clients:
    """`server` is the library's."""

    def __init__(self, server: Any, events: WorkspaceEvents) -> None:
        self.server = server
        self.closed = False
        self._events = events
        self._callers: dict[str, Caller] = {}
        self._under_way: dict[str, int] = {}
        server.on("connect", self._connected)
        server.on("disconnect", self._disconnected)
        server.on("*", self._event)

    async def _connected(self, sid: str, _: object, auth: object = None) -> None:
        principal = principal_of(self.server.get_environ(sid))
        try:
            self._callers[sid] = await self._events.caller(principal, auth)
        except RookeryError as error:
            raise refused(error.message, error.as_dict()) from None
        except Exception:
            logger.exception("a client of Socket.IO could not be let in")
            raise refused(_FAULT.message, _FAULT.as_dict()) from None

    async def _disconnected(self, sid: str, _: object) -> None:
        self._callers.pop(sid, None)

    async def _event(self, event: str, sid: str, *given: object) -> Mapping[str, Any]:
        """One event; what it returns is its acknowledgement."""
        caller = self._callers.get(sid)
        running = self._under_way.get(sid, 0)
        if caller is None:
            return _failed(RookeryError("invalid-input", "this client is not connected", "connect first"))
        if running >= _MOST_EVENTS:
            return _failed(RookeryError("too-many-events", f"{_MOST_EVENTS} events are under way", "wait for answers"))
        self._under_way[sid] = running + 1
        try:
            answer = await self._events.run(caller, event, given)
        except RookeryError as error:
            return _failed(error)
        except Exception:
            logger.exception("the event %s crashed", event[:100])
            return _failed(_FAULT)
        finally:
            self._under_way[sid] -= 1
            if not self._under_way[sid]:
                del self._under_way[sid]
        EVENTS.add("ok")
        return {"success": True, "data": answer}

    # ---- what goes out by itself

    async def follow(self, bus: Bus) -> None:
        """Push what happens to workspaces until the daemon stops, and then say goodbye."""
        reader = bus.subscribe()
        while reader.ended is None or reader.ended == "slow-reader":
            if reader.ended is not None:
                reader = bus.subscribe()
            for event in await reader.next_batch():
                await self._push(event)
        self.closed = True
        await self.server.emit("shutdown")
        await asyncio.gather(*map(self._part, list(self._callers)))
        await self.server.shutdown()

    async def _push(self, event: Event) -> None:
        """To everybody whom it concerns."""
        if not event.type.startswith(_PUSHED):
            return
        for sid, caller in list(self._callers.items()):
            if sid not in self._callers or caller.gone:
                continue
            if caller.path is not None and event.data.get("path") != as_text(caller.path):
                continue
            if event.type == _GONE and caller.principal.workspace is not None:
                # Another one may come to lie in its place, which this token must not open.
                self._callers[sid] = replace(caller, gone=True)
            try:
                await self._tell(sid, event)
            except Exception:
                logger.exception("a client of Socket.IO could not be told of %s", event.type)

    async def _tell(self, sid: str, event: Event) -> None:
        if (session := self._session(sid)) is not None and session.queue.qsize() > _MOST_UNREAD:
            logger.warning("cut off a client of Socket.IO that does not read")
            await self._part(sid)
        elif sid in self._callers:
            await self.server.emit(event.type.replace(".", ":"), event.data, to=sid)

    def _session(self, sid: str) -> Any:
        """What the library keeps of a connection."""
        return self.server.eio.sockets.get(self.server.manager.eio_sid_from_sid(sid, "/"))

    async def _part(self, sid: str) -> None:
        """Tell a client that it is over, and end its connection; one that does not listen is not waited for."""
        session = self.server.manager.eio_sid_from_sid(sid, "/")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self.server.disconnect(sid)
                await self.server.eio.disconnect(session)


def principal_of(environ: Any) -> Principal:
    return cast(Principal, environ["asgi.scope"]["state"]["principal"])


def _failed(error: RookeryError) -> Mapping[str, Any]:
    EVENTS.add(error.code)
    return {"success": False, "error": error.as_dict()}
