"""Socket.IO for editor extensions, at `/socket.io/`. Who may call has been judged before (`wire/gate`)."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.api.socketio_events import Caller, WorkspaceEvents
from rookery.api.socketio_server import MESSAGE_BYTES, make_server, refused
from rookery.system import metrics
from rookery.system.bus import Bus, Event
from rookery.system.errors import RookeryError
from rookery.system.tasks import TaskSet
from rookery.wire.gate import Principal
from rookery.wire.websocket_asgi import asks_for_websocket, serve_websocket
from rookery.workspaces.record import as_text

logger = logging.getLogger("rookery.socketio")
EVENTS = metrics.counter("rookery_socketio_events_total", "Events of Socket.IO clients, by how they ended.", "outcome")

_MOST_CLIENTS = 100
_MOST_EVENTS = 32
_MOST_UNREAD = 1000
_GOODBYE_SECONDS = 1.0
_PUSHED = "workspace."
_GONE = "workspace.deleted"


class SocketIo:
    """Socket.IO: events about workspaces, each with its acknowledgement; changes of workspaces are pushed."""

    def __init__(self, events: WorkspaceEvents, bus: Bus) -> None:
        self._events, self._bus = events, bus
        self._tasks = TaskSet("socket.io")
        self._making = asyncio.Lock()
        self._server: Any = None
        self._closed = False
        self._callers: dict[str, Caller] = {}
        self._under_way: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = await self._made()
        if (refusal := self._refusal(server, scope)) is not None:
            await _refuse(send, *refusal)
            return
        if asks_for_websocket(scope):
            await self._serve_websocket(server, scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        # Who polls and goes away has gone for good, and nothing is kept waiting for it.
        scope["extensions"]["rookery.on_lost"](task.cancel)
        await server.handle_request(scope, receive, send)

    async def _serve_websocket(self, server: Any, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await serve_websocket(server.handle_request, scope, receive, send, message_bytes=MESSAGE_BYTES)
        except ValueError as error:
            # The library's word for a packet that it cannot read.
            logger.debug("cut off a client of Socket.IO: %s", error)
        finally:
            # However it ended: the library closes its session only if that was in order.
            for session, environ in list(server.environ.items()):
                if environ["asgi.scope"]["state"] is scope["state"] and session in server.eio.sockets:
                    await server.eio.sockets[session].close(wait=False, abort=True)

    async def _made(self) -> Any:
        """The library comes with the first client."""
        async with self._making:
            if self._server is None:
                self._server = await asyncio.to_thread(make_server)
                self._server.on("connect", self._connected)
                self._server.on("disconnect", self._disconnected)
                self._server.on("*", self._event)
                self._tasks.start(self._follow(), "events")
        return self._server

    def _refusal(self, server: Any, scope: Scope) -> tuple[int, str, str] | None:
        """What is said before the library hears of it."""
        asked = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._closed:
            return 503, "server-busy", "the daemon is stopping"
        if "j" in asked:
            # A web page may run any script, and so read an answer that is one.
            return 400, "invalid-input", "JSONP is not served"
        session = asked.get("sid", [None])[0]
        if session is None:
            clients = sum(not one.closed for one in server.eio.sockets.values())
            if clients >= _MOST_CLIENTS:
                return 503, "too-many-connections", f"there are {_MOST_CLIENTS} clients of Socket.IO already"
        elif (opened := server.environ.get(session)) and _principal(opened) != scope["state"]["principal"]:
            return 403, "forbidden", "this session was opened by another token"
        return None

    # ---- the library's callbacks

    async def _connected(self, sid: str, _: object, auth: object = None) -> None:
        principal = _principal(self._server.get_environ(sid))
        try:
            self._callers[sid] = await self._events.caller(principal, auth)
        except RookeryError as error:
            raise refused(error.message, error.as_dict()) from None

    async def _disconnected(self, sid: str, reason: str) -> None:
        self._callers.pop(sid, None)
        if reason == self._server.reason.CLIENT_DISCONNECT and (session := self._session(sid)) is not None:
            # The library would let the last poll of a client that has taken its leave wait for a ping.
            session.queue.put_nowait(None)

    async def _event(self, event: str, sid: str, *given: object) -> Mapping[str, Any]:
        """One event; what it returns is its acknowledgement."""
        caller = self._callers.get(sid)
        running = self._under_way.get(sid, 0)
        if caller is None:
            return _failed(RookeryError("invalid-input", "this client is not connected", "connect first"))
        if running >= _MOST_EVENTS:
            return _failed(RookeryError("server-busy", f"{_MOST_EVENTS} events are under way", "wait for answers"))
        self._under_way[sid] = running + 1
        try:
            answer = await self._events.run(caller, event, given)
        except RookeryError as error:
            return _failed(error)
        except Exception:
            logger.exception("the event %s crashed", event[:100])
            return _failed(RookeryError("internal-error", "something went wrong here; the daemon's log tells what"))
        finally:
            self._under_way[sid] -= 1
            if not self._under_way[sid]:
                del self._under_way[sid]
        EVENTS.add("ok")
        return {"success": True, "data": answer}

    # ---- what goes out by itself

    async def _follow(self) -> None:
        """Push what happens to workspaces until the daemon stops, and then say goodbye."""
        reader = self._bus.subscribe()
        while reader.ended is None or reader.ended == "slow-reader":
            if reader.ended is not None:
                reader = self._bus.subscribe()
            for event in await reader.next_batch():
                if event.type.startswith(_PUSHED):
                    await self._push(event)
        self._closed = True
        await self._server.emit("shutdown")
        await asyncio.gather(*map(self._part, list(self._callers)))
        await self._server.shutdown()

    async def _push(self, event: Event) -> None:
        name = event.type.replace(".", ":")
        for sid, caller in list(self._callers.items()):
            if caller.path is not None and event.data.get("path") != as_text(caller.path):
                continue
            if (session := self._session(sid)) is not None and session.queue.qsize() > _MOST_UNREAD:
                logger.warning("cut off a client of Socket.IO that does not read")
                await self._part(sid)
                continue
            await self._server.emit(name, event.data, to=sid)
            if event.type == _GONE and caller.principal.workspace is not None:
                # Another one may come to lie in its place, which this token must not open.
                await self._part(sid)

    def _session(self, sid: str) -> Any:
        """What the library keeps of a connection."""
        return self._server.eio.sockets.get(self._server.manager.eio_sid_from_sid(sid, "/"))

    async def _part(self, sid: str) -> None:
        """Tell a client that it is over, and end its connection; one that does not listen is not waited for."""
        session = self._server.manager.eio_sid_from_sid(sid, "/")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._server.disconnect(sid)
                await self._server.eio.disconnect(session)


def _principal(environ: Any) -> Principal:
    return cast(Principal, environ["asgi.scope"]["state"]["principal"])


def _failed(error: RookeryError) -> Mapping[str, Any]:
    EVENTS.add(error.code)
    return {"success": False, "error": error.as_dict()}


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    await send({"type": "http.response.body", "body": body})
