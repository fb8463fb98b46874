"""The connected Socket.IO clients: runs their requests, and sends events to them."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from rookery.api.socketio.events import SocketCaller, WorkspaceEvents
from rookery.api.socketio.server import refuse_connection
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.wire.http.auth import Principal
from rookery.workspaces.model import format_path

logger = logging.getLogger("rookery.socketio")
EVENTS = metrics.counter("rookery_socketio_events_total", "Events of Socket.IO clients, by how they ended.", "outcome")

_MAX_EVENTS = 32
_MAX_UNREAD = 1000
_DISCONNECT_TIMEOUT_SECONDS = 1.0
_PUSHED_PREFIX = "workspace."
_DELETED_EVENT = "workspace.deleted"
_INTERNAL_ERROR = RookeryError("internal-error", "an internal error occurred; see the log of the daemon")


class SocketClients:
    """Handles the connections of all clients. `server` is the server of the Socket.IO library."""

    def __init__(self, server: Any, events: WorkspaceEvents) -> None:
        self.server = server
        self.closed = False
        self._events = events
        self._callers: dict[str, SocketCaller] = {}
        self._running: dict[str, int] = {}
        server.on("connect", self._on_connect)
        server.on("disconnect", self._on_disconnect)
        server.on("*", self._on_event)

    async def _on_connect(self, sid: str, _: object, auth: object = None) -> None:
        """Accept a client, or refuse the connection with an error."""
        principal = read_principal(self.server.get_environ(sid))
        try:
            self._callers[sid] = await self._events.make_caller(principal, auth)
        except RookeryError as error:
            raise refuse_connection(error.message, error.as_dict()) from None
        except Exception:
            logger.exception("a Socket.IO client could not be accepted")
            raise refuse_connection(_INTERNAL_ERROR.message, _INTERNAL_ERROR.as_dict()) from None

    async def _on_disconnect(self, sid: str, _: object) -> None:
        self._callers.pop(sid, None)

    async def _on_event(self, event: str, sid: str, *arguments: object) -> Mapping[str, Any]:
        """Run one event of a client, and return its acknowledgement."""
        caller = self._callers.get(sid)
        running = self._running.get(sid, 0)
        if caller is None:
            return _error_response(RookeryError("invalid-input", "this client is not connected", "connect first"))
        if running >= _MAX_EVENTS:
            return _error_response(
                RookeryError(
                    "too-many-events",
                    f"{_MAX_EVENTS} events of this client are still running",
                    "wait for their acknowledgements",
                )
            )
        self._running[sid] = running + 1
        try:
            result = await self._events.run(caller, event, arguments)
        except RookeryError as error:
            return _error_response(error)
        except Exception:
            logger.exception("the event %s crashed", event[:100])
            return _error_response(_INTERNAL_ERROR)
        finally:
            self._running[sid] -= 1
            if not self._running[sid]:
                del self._running[sid]
        EVENTS.add("ok")
        return {"success": True, "data": result}

    # Events to clients

    async def forward_events(self, bus: Bus) -> None:
        """Send the events of workspaces to clients until the daemon stops, then end all connections."""
        reader = bus.subscribe()
        while reader.ended is None or reader.ended == "slow-reader":
            if reader.ended is not None:
                reader = bus.subscribe()
            for event in await reader.next_batch():
                await self._push(event)
        self.closed = True
        await self.server.emit("shutdown")
        await asyncio.gather(*map(self._disconnect, list(self._callers)))
        await self.server.shutdown()

    async def _push(self, event: Event) -> None:
        """Send an event to every client that it concerns."""
        if not event.type.startswith(_PUSHED_PREFIX):
            return
        for sid, caller in list(self._callers.items()):
            if sid not in self._callers or caller.is_deleted:
                continue
            if caller.path is not None and event.data.get("path") != format_path(caller.path):
                continue
            if event.type == _DELETED_EVENT and caller.principal.workspace is not None:
                # Another workspace may be created at the same path, and this token must not give access to it.
                self._callers[sid] = replace(caller, is_deleted=True)
            try:
                await self._send(sid, event)
            except Exception:
                logger.exception("the event %s could not be sent to a Socket.IO client", event.type)

    async def _send(self, sid: str, event: Event) -> None:
        if (session := self._session(sid)) is not None and session.queue.qsize() > _MAX_UNREAD:
            logger.warning("disconnected a Socket.IO client that does not read")
            await self._disconnect(sid)
        elif sid in self._callers:
            await self.server.emit(event.type.replace(".", ":"), event.data, to=sid)

    def _session(self, sid: str) -> Any:
        """Return the library's object for a connection."""
        return self.server.eio.sockets.get(self.server.manager.eio_sid_from_sid(sid, "/"))

    async def _disconnect(self, sid: str) -> None:
        """End the connection of a client. Do not wait for a client that does not read."""
        session = self.server.manager.eio_sid_from_sid(sid, "/")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCONNECT_TIMEOUT_SECONDS):
                await self.server.disconnect(sid)
                await self.server.eio.disconnect(session)


def read_principal(environ: Any) -> Principal:
    return cast(Principal, environ["asgi.scope"]["state"]["principal"])


def _error_response(error: RookeryError) -> Mapping[str, Any]:
    """Count an error and return its acknowledgement."""
    EVENTS.add(error.code)
    return {"success": False, "error": error.as_dict()}
