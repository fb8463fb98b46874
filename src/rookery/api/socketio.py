"""Socket.IO for editor extensions, at `/socket.io/`. Who may call has been judged before (`wire/gate`)."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.api.socketio_clients import Clients, principal_of
from rookery.api.socketio_events import WorkspaceEvents
from rookery.api.socketio_server import MESSAGE_BYTES, make_server
from rookery.system.bus import Bus
from rookery.system.tasks import TaskSet
from rookery.wire.gate import Principal
from rookery.wire.websocket_asgi import asks_for_websocket, serve_websocket

logger = logging.getLogger("rookery.socketio")

_MOST_CLIENTS = 100


class SocketIo:
    """Socket.IO: events about workspaces, each with its acknowledgement; changes of workspaces are pushed."""

    def __init__(self, events: WorkspaceEvents, bus: Bus) -> None:
        self._events, self._bus = events, bus
        self._tasks = TaskSet("socket.io")
        self._making = asyncio.Lock()
        self._clients: Clients | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        clients = await self._made()
        asked = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        sid = asked["sid"][0] if "sid" in asked else None
        if (refusal := _refusal(clients, scope["state"]["principal"], asked, sid)) is not None:
            await _refuse(send, *refusal)
        elif asks_for_websocket(scope):
            await _serve_websocket(clients.server, sid, scope, receive, send)
        else:
            await _serve_poll(clients.server, sid, scope, receive, send)

    async def _made(self) -> Clients:
        """The library comes with the first client."""
        async with self._making:
            if self._clients is None:
                self._clients = Clients(await asyncio.to_thread(make_server), self._events)
                self._tasks.start(self._clients.follow(self._bus), "events")
        return self._clients


def _refusal(
    clients: Clients, who: Principal, asked: Mapping[str, Any], sid: str | None
) -> tuple[int, str, str] | None:
    """What is said before the library hears of it."""
    if clients.closed:
        return 503, "daemon-unreachable", "the daemon is stopping"
    if "j" in asked:
        # A web page may run any script, and so read an answer that is one.
        return 400, "invalid-input", "JSONP is not served"
    sessions = clients.server.eio.sockets
    if sid is None:
        if sum(not one.closed for one in sessions.values()) >= _MOST_CLIENTS:
            return 503, "too-many-connections", f"there are {_MOST_CLIENTS} clients of Socket.IO already"
        return None
    opened = clients.server.environ.get(sid)
    if opened is None or sid not in sessions or sessions[sid].closed:
        return 400, "invalid-input", "there is no such session, or not any more"
    if principal_of(opened) != who:
        return 403, "forbidden", "this session was opened with another token"
    return None


async def _serve_poll(server: Any, sid: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    task, session = asyncio.current_task(), server.eio.sockets.get(sid)
    assert task is not None
    # Who polls and goes away has gone for good, and nothing is kept waiting for it.
    scope["extensions"]["rookery.on_lost"](task.cancel)
    await server.handle_request(scope, receive, send)
    if session is not None and session.closed:
        # The library would let the last poll of a client that has taken its leave wait for nothing.
        session.queue.put_nowait(None)


async def _serve_websocket(server: Any, sid: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    """With `sid` an upgrade, which may also fail without an end to the session."""
    try:
        await serve_websocket(server.handle_request, scope, receive, send, message_bytes=MESSAGE_BYTES)
    except ValueError as error:
        # The library's word for a packet that it cannot read.
        logger.debug("cut off a client of Socket.IO: %s", error)
    finally:
        # However it ended: the library closes its session only if that was in order.
        for one, environ in list(server.environ.items()):
            session = server.eio.sockets.get(one)
            ours = one == sid or environ["asgi.scope"]["state"] is scope["state"]
            if ours and session is not None and session.upgraded:
                await session.close(wait=False, abort=True)


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    await send({"type": "http.response.body", "body": body})
