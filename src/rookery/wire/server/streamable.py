"""Streamable HTTP: one path that serves both eras. Plain JSON unless a call has something to say before its answer."""

import asyncio

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.wire import modern, revisions
from rookery.wire.brief import Brief
from rookery.wire.http_server import Http, Outlet
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    Message,
    Notification,
    Request,
    WireError,
    decode,
    encode_result,
    object_of,
)
from rookery.wire.provider import Provider
from rookery.wire.service import SHUTTING_DOWN, Service, current_task
from rookery.wire.session import Session
from rookery.wire.sessions import Sessions

_NO_SESSION = "Mcp-Session-Id is missing; begin with initialize. A client of the older HTTP+SSE finds that at /sse"
_NO_STREAM = WireError(INVALID_REQUEST, "accept text/event-stream")


class StreamableHttp:
    """An ASGI app for one provider."""

    def __init__(self, provider: Provider, sessions: Sessions | None = None, *, service: Service | None = None) -> None:
        self.service = service or Service(provider, sessions)
        self.sessions = self.service.sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send, brief: Brief | None = None) -> None:
        http = Http(scope, receive, send)
        method: str = scope["method"]
        try:
            if brief is not None:
                await self._go_on(http, brief)
            elif self.service.closing:
                await http.refuse(503, SHUTTING_DOWN)
            elif method == "POST":
                await self._post(http)
            elif method in ("GET", "DELETE") and http.header(b"mcp-protocol-version") not in revisions.MODERN:
                await (self._get(http) if method == "GET" else self._delete(http))
            else:
                await http.empty(405, (b"allow", b"POST"))
        except WireError as error:
            await http.refuse(400, error)
        except asyncio.CancelledError:
            # Whoever has gone needs no answer, and is no reason to make a fuss.
            if not http.lost:
                raise
            current_task().uncancel()
        finally:
            http.forget()
            if brief is not None:
                brief.release()

    def close(self) -> None:
        """End every call with an error and close every stream."""
        self.service.close()

    # ---- POST

    async def _post(self, http: Http) -> None:
        whole = http.whole_body()
        messages = decode(whole if whole is not None else await http.body())
        first = messages[0]
        version = http.header(b"mcp-protocol-version")
        if version in revisions.HANDSHAKE or (version is None and not modern.has_envelope(first)):
            await self._post_handshake(http, messages)
        elif len(messages) > 1:
            raise WireError(INVALID_REQUEST, "only 2025-03-26 has batches")
        elif isinstance(first, Request):
            await self._post_modern(http, first)
        else:
            modern.refuse_unknown(version or "")
            await http.empty(202)

    async def _go_on(self, http: Http, brief: Brief) -> None:
        """A call that was begun without a task needs one."""
        request = brief.request()
        brief.leave()
        if brief.session is None:
            await self._post_modern(http, request, brief)
        else:
            outlet = Outlet(http, brief.session)
            await outlet.finish(await self._handshake(http, brief.session, outlet, request, brief), 200)

    async def _post_modern(self, http: Http, request: Request, brief: Brief | None = None) -> None:
        if request.method == "subscriptions/listen" and not http.accepts(b"text/event-stream"):
            await http.json(406, _NO_STREAM.encoded(request.id))
            return
        outlet = Outlet(http, None)
        task = current_task()
        # Closing the connection is how a modern client cancels.
        http.on_lost(task.cancel)
        about = http.headers, http.owner, outlet.send
        message, code = await self.service.modern(
            request, *about, lost=http.is_lost, still_here=http.still_here, task=task, brief=brief
        )
        await outlet.finish(message, modern.STATUS.get(code, 200))

    async def _post_handshake(self, http: Http, messages: list[Message]) -> None:
        first = messages[0]
        if isinstance(first, Request) and first.method == "initialize":
            await self._initialize(http, messages, first)
            return
        session = self._found(http) or await self._session(http)
        if session is None:
            return
        if len(messages) > 1 and session.client.revision not in revisions.WITH_BATCHES:
            raise WireError(INVALID_REQUEST, f"{session.client.revision} has no batches")
        outlet = Outlet(http, session)
        if len(messages) == 1 and isinstance(first, Request):
            await outlet.finish(await self._handshake(http, session, outlet, first), 200)
            return
        requests = [message for message in messages if isinstance(message, Request)]
        for message in messages:
            if isinstance(message, Notification):
                self.service.mention(message)
            if not isinstance(message, Request):
                session.take(message)
        if not requests:
            await http.empty(202)
        else:
            running = (self._handshake(http, session, outlet, request) for request in requests)
            await outlet.finish_all(await asyncio.gather(*running))

    async def _initialize(self, http: Http, messages: list[Message], request: Request) -> None:
        if len(messages) > 1:
            raise WireError(INVALID_REQUEST, "initialize must not be part of a batch")
        try:
            session, result = self.sessions.open(object_of(request.params), http.owner)
        except WireError as error:
            await http.json(503 if error.code == CONNECTION_CLOSED else 200, error.encoded(request.id))
            return
        made = encode_result(request.id, msgspec.json.encode(result))
        self.service.mention(request, made)
        await http.json(200, made, (b"mcp-session-id", session.id.encode()))

    async def _handshake(
        self, http: Http, session: Session, outlet: Outlet, request: Request, brief: Brief | None = None
    ) -> bytes:
        task = current_task()
        http.on_lost(lambda: outlet.lose(task))
        return await self.service.handshake(session, request, outlet.send, outlet.ask, http.is_lost, task, brief)

    def _found(self, http: Http) -> Session | None:
        id_ = http.header(b"mcp-session-id")
        return self.sessions.find(id_, http.owner) if id_ is not None else None

    async def _session(self, http: Http) -> Session | None:
        """The session that a request names; None after a refusal has been sent."""
        session = self._found(http)
        if http.header(b"mcp-session-id") is None:
            await http.refuse(400, WireError(INVALID_REQUEST, _NO_SESSION))
        elif session is None:
            await http.refuse(404, WireError(INVALID_REQUEST, "there is no such session; begin with initialize"))
        return session

    # ---- GET and DELETE

    async def _get(self, http: Http) -> None:
        if not http.accepts(b"text/event-stream"):
            await http.refuse(406, _NO_STREAM)
            return
        session = await self._session(http)
        if session is None:
            return
        last = http.header(b"last-event-id")
        if last is not None:
            stream, position = session.streams.found(last)
        elif session.attended:
            await http.refuse(409, WireError(INVALID_REQUEST, "this session has a stream already"))
            return
        else:
            stream, position = session.new_standing(), 0
        http.on_lost(current_task().cancel)
        with stream.read():
            await http.start_stream()
            await http.follow(stream, position)
            await http.end_stream()

    async def _delete(self, http: Http) -> None:
        session = await self._session(http)
        if session is not None:
            self.sessions.close(session)
            self.service.changed()
            await http.empty(204)
