"""Socket.IO for editor extensions, at `/socket.io/`. The caller has been authenticated before."""

import asyncio
import functools
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from rookery.api.socketio.clients import SocketClients, read_principal
from rookery.api.socketio.events import WorkspaceEvents
from rookery.api.socketio.server import MESSAGE_BYTES, make_server
from rookery.system.bus import Bus
from rookery.system.tasks import TaskSet
from rookery.wire.http.auth import OWNER, Principal, Refusal
from rookery.wire.server.websocket import is_upgrade_request, serve_websocket
from rookery.wire.shares import Shares, compute_workspace_share

logger = logging.getLogger("rookery.socketio")

_MAX_CLIENTS = 100


class SocketIo:
    """Socket.IO: events about workspaces, each with an acknowledgement; changes of workspaces are pushed.

    The token of one workspace may have at most half of the clients.
    """

    def __init__(self, events: WorkspaceEvents, bus: Bus, shares: Shares | None = None) -> None:
        self._events = events
        self._bus = bus
        self._shares = shares if shares is not None else Shares()
        self._tasks = TaskSet("socket.io")
        self._creation_lock = asyncio.Lock()
        self._clients: SocketClients | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        clients = await self._get_clients()
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        sid = query["sid"][0] if "sid" in query else None
        if (refusal := self._find_refusal(clients, scope["state"]["principal"], query, sid)) is not None:
            await _refuse(send, refusal)
        elif is_upgrade_request(scope):
            await _serve_websocket(clients.server, sid, scope, receive, send)
        else:
            await _serve_poll(clients.server, sid, scope, receive, send)

    def _find_refusal(
        self, clients: SocketClients, principal: Principal, query: Mapping[str, Any], sid: str | None
    ) -> Refusal | None:
        """Return why a request is refused before the library processes it; None if it is allowed."""
        if clients.closed:
            return Refusal(503, "daemon-unreachable", "the daemon is stopping")
        if "j" in query:
            # A web page may run any script, so it could read a response that is a script.
            return Refusal(400, "invalid-input", "JSONP is not served")
        sessions = clients.server.eio.sockets
        if sid is None:
            return self._check_client_count(clients, principal)
        environ = clients.server.environ.get(sid)
        if environ is None or sid not in sessions or sessions[sid].closed:
            return Refusal(400, "invalid-input", "the session does not exist or has ended")
        if read_principal(environ) != principal:
            return Refusal(403, "forbidden", "this session was opened with another token")
        return None

    def _check_client_count(self, clients: SocketClients, principal: Principal) -> Refusal | None:
        """Return a refusal if there are too many clients, in total or with this token."""
        environ = clients.server.environ
        names = [
            read_principal(environ[sid]).name
            for sid, session in clients.server.eio.sockets.items()
            if not session.closed and sid in environ
        ]
        limit = min(self._shares.limits.streams, _MAX_CLIENTS // 2)
        if principal.name != OWNER.name and names.count(principal.name) >= limit:
            return Refusal(
                429,
                "too-many-streams",
                f"this workspace's token has reached its limit of {limit} Socket.IO clients",
                remedy="close some of them, or raise limits.streams_each",
            )
        owner_count = names.count(OWNER.name)
        maximum = _MAX_CLIENTS if principal.name == OWNER.name else compute_workspace_share(_MAX_CLIENTS)
        if len(names) < _MAX_CLIENTS and (principal.name == OWNER.name or len(names) - owner_count < maximum):
            return None
        message = f"there are already {maximum} Socket.IO clients"
        return Refusal(429, "too-many-connections", message, remedy="close some of them")

    async def _get_clients(self) -> SocketClients:
        """Return the clients, and load the library at the first request."""
        async with self._creation_lock:
            if self._clients is None:
                self._clients = SocketClients(await asyncio.to_thread(make_server), self._events)
                self._tasks.keep_running(functools.partial(self._clients.forward_events, self._bus), "events")
        return self._clients


async def _serve_poll(server: Any, sid: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    task = asyncio.current_task()
    session = server.eio.sockets.get(sid)
    assert task is not None
    # A client that polls and disconnects does not return, so nothing must wait for it.
    scope["extensions"]["rookery.on_lost"](task.cancel)
    await server.handle_request(scope, receive, send)
    if session is not None and session.closed:
        # Without this, the library would keep the last poll of a disconnected client waiting.
        session.queue.put_nowait(None)


async def _serve_websocket(server: Any, sid: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a WebSocket. With `sid` it is an upgrade, which may fail without ending the session."""
    try:
        await serve_websocket(server.handle_request, scope, receive, send, message_bytes=MESSAGE_BYTES)
    except ValueError as error:
        # The library raises ValueError for a packet that it cannot read.
        logger.debug("disconnected a Socket.IO client: %s", error)
    finally:
        # Always close the session: the library closes it only after a regular end.
        for session_id, environ in list(server.environ.items()):
            session = server.eio.sockets.get(session_id)
            is_same = session_id == sid or environ["asgi.scope"]["state"] is scope["state"]
            if is_same and session is not None and session.upgraded:
                await session.close(wait=False, abort=True)


async def _refuse(send: Send, refusal: Refusal) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})
