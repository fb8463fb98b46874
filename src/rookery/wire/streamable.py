"""Streamable HTTP: one path that serves both eras. Plain JSON unless a call has something to say before its answer."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.wire import modern, revisions
from rookery.wire.calls import CANCELLED, RunningCall, answer, finish, params_of
from rookery.wire.http_server import Http, Outlet
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    Request,
    WireError,
    decode,
    encode_notification,
    encode_result,
    object_of,
)
from rookery.wire.provider import Ask, Client, Provider
from rookery.wire.sealing import Seal
from rookery.wire.sessions import Session, Sessions
from rookery.wire.streams import Stream, event


class StreamableHttp:
    """An ASGI app for one provider."""

    def __init__(self, provider: Provider, sessions: Sessions | None = None) -> None:
        self._provider = provider
        self.sessions = sessions or Sessions(provider)
        self._seal = Seal()
        self._listeners: set[Stream] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Http(scope, receive, send)
        method: str = scope["method"]
        try:
            if self._closing:
                await http.refuse(503, WireError(CONNECTION_CLOSED, "shutting down"))
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
            cast(asyncio.Task[Any], asyncio.current_task()).uncancel()

    def close(self) -> None:
        """End every call with an error and close every stream."""
        self._closing = True
        self.sessions.close_all()
        for stream in self._listeners:
            stream.end()

    # ---- POST

    async def _post(self, http: Http) -> None:
        messages = decode(await http.body())
        first = messages[0]
        version = http.header(b"mcp-protocol-version")
        if version in revisions.HANDSHAKE or (version is None and not _has_envelope(first)):
            await self._post_handshake(http, messages)
        elif len(messages) > 1:
            raise WireError(INVALID_REQUEST, "only 2025-03-26 has batches")
        elif isinstance(first, Request):
            await self._post_modern(http, first)
        else:
            modern.refuse_unknown(version or "")
            await http.empty(202)

    async def _post_modern(self, http: Http, request: Request) -> None:
        outlet = Outlet(http, None)
        try:
            client, params, meta = modern.classify(request, http.headers, self._provider)
            level = modern.log_level(meta)
            if request.method == "server/discover":
                result = finish(modern.discovered(self._provider), request.method, client, self._provider)
                await http.json(200, encode_result(request.id, result))
                return
            if request.method == "subscriptions/listen":
                asked = modern.filter_of(params, self._provider)
                await self._listen(http, request, client, *asked)
                return
        except WireError as error:
            await http.json(modern.STATUS.get(error.code, 200), error.encoded(request.id))
            return
        call = RunningCall(request.id, request.method, params, meta, client, level, outlet.send)
        # Closing the connection is how a modern client cancels.
        http.on_lost(_current_task().cancel)
        message, code = await answer(self._provider, call, self._seal, http.owner)
        await outlet.finish(message, modern.STATUS.get(code, 200))

    async def _listen(
        self, http: Http, request: Request, client: Client, asked: modern.Filter, honoured: Mapping[str, Any]
    ) -> None:
        """A subscription: acknowledged first, then every change that was asked for, until one side ends it."""
        stream = Stream(None)
        tag = {"_meta": {revisions.META_SUBSCRIPTION: request.id}}

        def tell(method: str, params: Mapping[str, Any]) -> None:
            stream.push(encode_notification(method, msgspec.json.encode({**params, **tag})))

        def changed(method: str, uri: str | None) -> None:
            if asked.wants(method, uri):
                tell(method, {"uri": uri} if uri is not None else {})

        tell("notifications/subscriptions/acknowledged", {"notifications": honoured})
        stop = self._provider.changes.listen(changed)
        self._listeners.add(stream)
        http.on_lost(_current_task().cancel)
        try:
            await http.start_stream()
            await http.follow(stream, 0)
            done = finish(tag, request.method, client, self._provider)
            await http.end_stream(event(encode_result(request.id, done)))
        finally:
            stop()
            self._listeners.discard(stream)

    async def _post_handshake(self, http: Http, messages: list[Message]) -> None:
        first = messages[0]
        if isinstance(first, Request) and first.method == "initialize":
            await self._initialize(http, messages, first)
            return
        session = await self._session(http)
        if session is None:
            return
        if len(messages) > 1 and session.client.revision not in revisions.WITH_BATCHES:
            raise WireError(INVALID_REQUEST, f"{session.client.revision} has no batches")
        requests = [message for message in messages if isinstance(message, Request)]
        for message in messages:
            if not isinstance(message, Request):
                session.take(message)
        outlet = Outlet(http, session)
        if not requests:
            await http.empty(202)
        elif len(messages) == 1:
            await outlet.finish(await self._run(http, session, outlet, requests[0]), 200)
        else:
            running = (self._run(http, session, outlet, request) for request in requests)
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
        await http.json(200, made, (b"mcp-session-id", session.id.encode()))

    async def _run(self, http: Http, session: Session, outlet: Outlet, request: Request) -> bytes:
        """One call of a handshake client; its answer, whatever happens to it."""
        if request.id in session.calls:
            return WireError(INVALID_REQUEST, f"id {request.id!r} is in use by another request").encoded(request.id)
        task = _current_task()
        session.calls[request.id] = task
        http.on_lost(lambda: outlet.lose(task))
        try:
            if self._connection_answers(session, request):
                return encode_result(request.id, b"{}")
            params, meta = params_of(request.params)

            async def question(asks: Mapping[str, Ask]) -> Mapping[str, Any]:
                return await session.question(outlet.send, asks)

            level = session.log_level
            call = RunningCall(request.id, request.method, params, meta, session.client, level, outlet.send, question)
            return (await answer(self._provider, call, self._seal, http.owner))[0]
        except WireError as error:
            return error.encoded(request.id)
        except asyncio.CancelledError:
            if http.lost or task.uncancel() > 0:
                raise
            return WireError(CANCELLED, "cancelled").encoded(request.id)
        finally:
            session.calls.pop(request.id, None)

    def _connection_answers(self, session: Session, request: Request) -> bool:
        """Do what belongs to the connection and not to the provider."""
        if request.method in revisions.ONLY_MODERN:
            raise WireError(METHOD_NOT_FOUND, f"{session.client.revision} has no method {request.method}")
        if request.method == "logging/setLevel":
            session.set_log_level(object_of(request.params))
        elif request.method in ("resources/subscribe", "resources/unsubscribe"):
            session.subscribe(object_of(request.params), request.method == "resources/subscribe")
        return request.method in revisions.ONLY_HANDSHAKE

    async def _session(self, http: Http) -> Session | None:
        """The session that a request names; None after a refusal has been sent."""
        id_ = http.header(b"mcp-session-id")
        if id_ is None:
            await http.refuse(400, WireError(INVALID_REQUEST, "Mcp-Session-Id is missing; begin with initialize"))
            return None
        session = self.sessions.find(id_, http.owner)
        if session is None:
            await http.refuse(404, WireError(INVALID_REQUEST, "there is no such session; begin with initialize"))
        return session

    # ---- GET and DELETE

    async def _get(self, http: Http) -> None:
        if not http.accepts(b"text/event-stream"):
            await http.refuse(406, WireError(INVALID_REQUEST, "accept text/event-stream"))
            return
        session = await self._session(http)
        if session is None:
            return
        last = http.header(b"last-event-id")
        if last is not None:
            stream, position = session.found_stream(last)
        elif session.standing is not None:
            await http.refuse(409, WireError(INVALID_REQUEST, "this session has a stream already"))
            return
        else:
            stream, position = session.new_stream(), 0
            session.standing = stream
        http.on_lost(_current_task().cancel)
        try:
            await http.start_stream()
            await http.follow(stream, position)
            await http.end_stream()
        finally:
            if session.standing is stream:
                session.standing = None

    async def _delete(self, http: Http) -> None:
        session = await self._session(http)
        if session is not None:
            self.sessions.close(session)
            await http.empty(204)


def _has_envelope(message: Message) -> bool:
    """Whether a request without the header carries what only a modern one does."""
    return isinstance(message, Request) and revisions.META_VERSION.encode() in bytes(message.params)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
