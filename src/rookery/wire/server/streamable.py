"""Streamable HTTP: one path that serves both eras.

Responses are plain JSON unless a call sends a message before its result.
"""

import asyncio

import msgspec
from starlette.types import Receive, Scope, Send

from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    INVALID_REQUEST,
    Message,
    Notification,
    Request,
    WireError,
    decode_messages,
    decode_object,
    encode_result,
)
from rookery.wire.protocol.provider import Provider
from rookery.wire.server import stateless
from rookery.wire.server.fastpath import FastCall
from rookery.wire.server.http_request import CallResponse, HttpRequest
from rookery.wire.server.service import SHUTTING_DOWN, Service, find_conversation, get_current_task
from rookery.wire.server.session import Session, SessionRefused, Sessions

_NO_SESSION = "Mcp-Session-Id is missing; send initialize first. The older HTTP+SSE transport is at /sse"
_NO_STREAM = WireError(INVALID_REQUEST, "the Accept header must include text/event-stream")


class StreamableHttp:
    """An ASGI app that serves one provider over Streamable HTTP."""

    def __init__(self, provider: Provider, sessions: Sessions | None = None, *, service: Service | None = None) -> None:
        self.service = service or Service(provider, sessions)
        self.sessions = self.service.sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send, fast_call: FastCall | None = None) -> None:
        http = HttpRequest(scope, receive, send)
        method: str = scope["method"]
        try:
            if fast_call is not None:
                await self._continue_fast_call(http, fast_call)
            elif self.service.is_closing:
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
            # A client that is gone needs no response, and its task does not count as cancelled.
            if not http.lost:
                raise
            get_current_task().uncancel()
        finally:
            http.clear_callbacks()
            if fast_call is not None:
                fast_call.release()

    def close(self) -> None:
        """End every call with an error and close every stream."""
        self.service.close()

    # POST

    async def _post(self, http: HttpRequest) -> None:
        body = http.whole_body()
        messages = decode_messages(body if body is not None else await http.body())
        first = messages[0]
        version = http.header(b"mcp-protocol-version")
        if version in revisions.HANDSHAKE or (version is None and not stateless.has_envelope(first)):
            await self._post_handshake(http, messages)
        elif len(messages) > 1:
            raise WireError(INVALID_REQUEST, "only 2025-03-26 supports batches")
        elif isinstance(first, Request):
            await self._post_modern(http, first)
        else:
            stateless.check_revision(version or "")
            await http.empty(202)

    async def _continue_fast_call(self, http: HttpRequest, fast_call: FastCall) -> None:
        """Continue a call of the fast path in a task."""
        request = fast_call.request()
        fast_call.unregister()
        if fast_call.session is None:
            await self._post_modern(http, request, fast_call)
        else:
            response = CallResponse(http, fast_call.session, self.service.shares)
            await response.finish(await self._handshake(http, fast_call.session, response, request, fast_call), 200)

    async def _post_modern(self, http: HttpRequest, request: Request, fast_call: FastCall | None = None) -> None:
        if request.method == "subscriptions/listen" and not http.accepts(b"text/event-stream"):
            await http.json(406, _NO_STREAM.encode(request.id))
            return
        response = CallResponse(http, None, self.service.shares)
        task = get_current_task()
        # A modern client cancels by closing the connection.
        http.add_lost_callback(task.cancel)
        arguments = http.headers, http.owner, response.send
        message, code = await self.service.modern(
            request,
            *arguments,
            is_lost=http.is_lost,
            send_keep_alive=http.send_keep_alive,
            task=task,
            fast_call=fast_call,
        )
        await response.finish(message, stateless.HTTP_STATUSES.get(code, 200))

    async def _post_handshake(self, http: HttpRequest, messages: list[Message]) -> None:
        first = messages[0]
        if isinstance(first, Request) and first.method == "initialize":
            await self._initialize(http, messages, first)
            return
        session = self._find_session(http) or await self._require_session(http)
        if session is None:
            return
        if len(messages) > 1 and session.client.revision not in revisions.BATCH_REVISIONS:
            raise WireError(INVALID_REQUEST, f"{session.client.revision} does not support batches")
        response = CallResponse(http, session, self.service.shares)
        if len(messages) == 1 and isinstance(first, Request):
            await response.finish(await self._handshake(http, session, response, first), 200)
            return
        requests = [message for message in messages if isinstance(message, Request)]
        for message in messages:
            if isinstance(message, Notification):
                self.service.record(message)
            if not isinstance(message, Request):
                session.handle(message)
        if not requests:
            await http.empty(202)
        else:
            calls = (self._handshake(http, session, response, request) for request in requests)
            await response.finish_all(await asyncio.gather(*calls))

    async def _initialize(self, http: HttpRequest, messages: list[Message], request: Request) -> None:
        if len(messages) > 1:
            raise WireError(INVALID_REQUEST, "initialize must not be part of a batch")
        try:
            session, result = self.sessions.open(decode_object(request.params), http.owner)
        except WireError as error:
            await http.json(error.status if isinstance(error, SessionRefused) else 200, error.encode(request.id))
            return
        response = encode_result(request.id, msgspec.json.encode(result))
        self.service.record(request, response)
        await http.json(200, response, (b"mcp-session-id", session.id.encode()))

    async def _handshake(
        self,
        http: HttpRequest,
        session: Session,
        response: CallResponse,
        request: Request,
        fast_call: FastCall | None = None,
    ) -> bytes:
        task = get_current_task()
        http.add_lost_callback(lambda: response.on_client_lost(task))
        return await self.service.handshake(
            session,
            request,
            response.send,
            response.ask,
            http.is_lost,
            task,
            fast_call,
            find_conversation(http.headers),
        )

    def _find_session(self, http: HttpRequest) -> Session | None:
        """Return the session that a request names, or None."""
        id_ = http.header(b"mcp-session-id")
        return self.sessions.find(id_, http.owner) if id_ is not None else None

    async def _require_session(self, http: HttpRequest) -> Session | None:
        """Return the session that a request names. Send a refusal and return None if there is none."""
        session = self._find_session(http)
        if http.header(b"mcp-session-id") is None:
            await http.refuse(400, WireError(INVALID_REQUEST, _NO_SESSION))
        elif session is None:
            await http.refuse(404, WireError(INVALID_REQUEST, "there is no such session; send initialize first"))
        return session

    # GET and DELETE

    async def _get(self, http: HttpRequest) -> None:
        if not http.accepts(b"text/event-stream"):
            await http.refuse(406, _NO_STREAM)
            return
        session = await self._require_session(http)
        if session is None:
            return
        last_event_id = http.header(b"last-event-id")
        if last_event_id is not None:
            stream, position = session.streams.find(last_event_id)
        elif session.has_reader:
            await http.refuse(409, WireError(INVALID_REQUEST, "this session has an open stream already"))
            return
        else:
            stream = session.open_notification_stream()
            position = 0
        http.add_lost_callback(get_current_task().cancel)
        with stream.count_reader():
            await http.start_stream()
            await http.follow(stream, position)
            await http.end_stream()

    async def _delete(self, http: HttpRequest) -> None:
        session = await self._require_session(http)
        if session is not None:
            self.sessions.close(session)
            self.service.notify_changed()
            await http.empty(204)
