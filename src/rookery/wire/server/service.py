"""How one request of either era is served, and the state that all transports of an endpoint share.

That state is the sessions, connections, calls in progress and subscriptions. A subscription of the stateless era is
acknowledged, and then sends every change that was asked for until one side ends it.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from rookery.wire.client.inflight import PostedRequest
from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import headers as mirrored, revisions
from rookery.wire.protocol.messages import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Notification,
    Params,
    Request,
    RequestId,
    WireError,
    decode_object,
    encode_notification,
    encode_result,
)
from rookery.wire.protocol.provider import ClientProfile, Provider
from rookery.wire.protocol.sealed_state import Seal
from rookery.wire.server import stateless
from rookery.wire.server.call import (
    REQUEST_CANCELLED,
    AskClient,
    RunningCall,
    answer_call,
    decode_params,
    finish_result,
)
from rookery.wire.server.session import (
    NotificationQueue,
    SendKeepAlive,
    SendMessage,
    Session,
    Sessions,
    relay_notifications,
)
from rookery.wire.server.stateless import RequestEnvelope
from rookery.wire.server.traffic import ClientKey, ReceivedMessage, Traffic
from rookery.wire.shares import Shares

if TYPE_CHECKING:
    from rookery.wire.server.fastpath import FastCall

SHUTTING_DOWN = WireError(CONNECTION_CLOSED, "shutting down")


class Subscription:
    """A subscription of the stateless era.

    Ending `queue` ends it. The constructor raises WireError for a bad filter.
    """

    def __init__(self, provider: Provider, id_: RequestId, params: Params) -> None:
        self.queue = NotificationQueue()
        self._provider = provider
        self._tag = {"_meta": {revisions.META_SUBSCRIPTION: id_}}
        self._requested, self._supported = stateless.decode_filter(params, provider)

    async def serve(self, send: SendMessage, send_keep_alive: SendKeepAlive | None) -> Mapping[str, Any]:
        """Send notifications until the subscription ends, and return its result."""
        changes = self._provider.changes
        self._push("notifications/subscriptions/acknowledged", {"notifications": self._supported})
        watched = set(self._requested.resource_subscriptions)
        changes.watch(*watched)
        stop = changes.listen(self._changed)
        try:
            await relay_notifications(self.queue, send, send_keep_alive)
            return self._tag
        finally:
            stop()
            changes.unwatch(*watched)

    def _changed(self, method: str, uri: str | None) -> None:
        if self._requested.wants(method, uri):
            self._push(method, {"uri": uri} if uri is not None else {})

    def _push(self, method: str, params: Mapping[str, Any]) -> None:
        self.queue.push(encode_notification(method, msgspec.json.encode({**params, **self._tag})))


Task = asyncio.Task[Any]


@runtime_checkable
class ConnectionObserver(Protocol):
    """A provider that keeps state for clients as long as they are connected."""

    def on_disconnected(self, connection: object) -> None:
        """Handle the end of a connection. Its client does not return over it."""
        ...


# Returns whether the client is lost.
IsLost = Callable[[], bool]


class Service:
    """Serves the requests of one endpoint with one provider. `traffic` records its messages, if set."""

    def __init__(
        self,
        provider: Provider,
        sessions: Sessions | None = None,
        seal: Seal | None = None,
        traffic: Traffic | None = None,
        shares: Shares | None = None,
    ) -> None:
        self.provider = provider
        self.shares = shares if shares is not None else Shares()
        self.sessions = sessions if sessions is not None else Sessions(provider, shares=self.shares)
        self.traffic = traffic
        self.is_closing = False
        self.closing_error = SHUTTING_DOWN
        # Callbacks of connections, called when the endpoint closes.
        self.on_close: set[Callable[[], object]] = set()
        self.calls: set[Task | PostedRequest] = set()
        # Each with its client, if that has neither a session nor a connection.
        self.subscriptions: dict[NotificationQueue, ClientKey | None] = {}
        self._seal = seal or Seal()
        self.declarations = mirrored.HeaderDeclarations()

    # Sessions, calls, subscriptions and connections

    @property
    def is_idle(self) -> bool:
        """Whether nothing uses the endpoint."""
        return not (len(self.sessions) or self.calls or self.subscriptions or self.on_close)

    @property
    def count_connected(self) -> int:
        """The number of sessions, and of connections without one."""
        self.sessions.expire()
        return len(self.sessions) + max(0, len(self.on_close) - self.sessions.count_on_connections)

    def listeners(self) -> set[ClientKey]:
        """Return the clients without a session that have a stream open."""
        return {client for client in self.subscriptions.values() if client is not None}

    def running_calls(self) -> set[asyncio.Future[Any]]:
        """Return a future for every call in progress."""
        return {
            call.get_released_future() if isinstance(call, PostedRequest) else call
            for call in self.calls | self.sessions.calls()
        }

    def add_connection(self, on_close: Callable[[], object]) -> None:
        """Add a connection. `closing_error` is called when the endpoint closes."""
        self.on_close.add(on_close)
        self.notify_changed()

    def remove_connection(self, on_close: Callable[[], object]) -> None:
        """Remove a connection."""
        self.on_close.discard(on_close)
        self.notify_changed()

    def on_disconnected(self, connection: object) -> None:
        """Notify the provider that a connection has ended for good."""
        if isinstance(self.provider, ConnectionObserver):
            self.provider.on_disconnected(connection)

    def notify_changed(self) -> None:
        """Report that the set of connected clients may have changed."""
        if self.traffic is not None:
            self.traffic.on_changed()

    def record(self, message: Request | Notification, response: bytes | None = None, code: int = 0) -> None:
        """Record a message that is not a call of the provider, and its response."""
        if self.traffic is not None:
            self.traffic.record_message(message, response, code)
            self.traffic.on_changed()

    def close(self, reason: str = SHUTTING_DOWN.message) -> None:
        """End every call with the reason as its error, every subscription with its result, and every connection."""
        self.is_closing = True
        self.closing_error = WireError(CONNECTION_CLOSED, reason)
        self.sessions.close_all()
        for call in self.calls:
            call.cancel(reason)
        for queue in self.subscriptions:
            queue.end()
        for callback in list(self.on_close):
            callback()

    # Handshake era

    async def handshake(
        self,
        session: Session,
        request: Request,
        send: SendMessage,
        send_request: SendMessage,
        is_lost: IsLost,
        task: Task | None = None,
        fast_call: "FastCall | None" = None,
        conversation: str | None = None,
    ) -> bytes:
        """Return the response to a request of a handshake client, whatever happens to it.

        Raise CancelledError if the request is cancelled because the client is lost.
        """
        if fast_call is None and request.id in session.calls:
            return make_id_in_use_error(request).encode(request.id)
        if fast_call is None and session.ended:
            return WireError(CONNECTION_CLOSED, "the session has ended").encode(request.id)
        task = session.calls[request.id] = task or get_current_task()
        received: ReceivedMessage | None = None
        try:
            if _serve_connection_method(session, request):
                self.record(request, response := encode_result(request.id, b"{}"))
                return response
            ask_client = functools.partial(session.ask_client, send_request)
            call = self.handshake_call(session, request, send, ask_client, conversation)
            received = self._record_request(request, call.params) if fast_call is None else fast_call.received
            response, code = await answer_call(self.provider, call, fast_call)
        except WireError as error:
            response = error.encode(request.id)
            code = error.code
            self.record(request, response, code)
        except asyncio.CancelledError:
            error = self._make_cancelled_error(task, is_lost())
            response = error.encode(request.id)
            code = error.code
        finally:
            session.calls.pop(request.id, None)
        if received is not None and self.traffic is not None:
            self.traffic.record_response(received, response, code)
        return response

    def handshake_call(
        self,
        session: Session,
        request: Request,
        send: SendMessage,
        question: AskClient | None = None,
        conversation: str | None = None,
    ) -> RunningCall:
        """Return the call of a request in a session."""
        arguments = session.client, session.log_level, send, self._seal, session.owner, session.id, question
        params = decode_params(request.params)
        return RunningCall(request.id, request.method, *params, *arguments, conversation=conversation)

    # Modern era

    async def modern(
        self,
        request: Request,
        head: RequestHead | None,
        owner: str,
        send: SendMessage,
        *,
        is_lost: IsLost,
        send_keep_alive: SendKeepAlive | None = None,
        task: Task | None = None,
        fast_call: "FastCall | None" = None,
        connection: object | None = None,
    ) -> tuple[bytes, int]:
        """Return the response to a modern request, and its error code, which is 0 for none.

        `head` is None on a transport without headers.
        """
        task = task or get_current_task()
        self.calls.add(task)
        received: ReceivedMessage | None = None
        try:
            if fast_call is None:
                envelope, params = stateless.classify_request(request, head, self.provider, self.declarations)
            else:
                envelope = fast_call.envelope
                params = decode_object(request.params)
            client_key = (owner, envelope.client_info) if head is not None else None
            if self.traffic is not None and client_key is not None:
                self.traffic.record_client(client_key)
            if request.method == "server/discover":
                return self._make_response(request, envelope.client, stateless.make_discover_result(self.provider))
            if request.method == "subscriptions/listen":
                self.calls.discard(task)  # it is ended by its queue
                return await self._listen(request, envelope.client, params, send, send_keep_alive, client_key)
            call = self.modern_call(request, envelope, params, owner, send, connection)
            call.conversation = find_conversation(head) if head is not None else None
            received = self._record_request(request, params) if fast_call is None else fast_call.received
            response, code = await answer_call(self.provider, call, fast_call)
        except WireError as error:
            response = error.encode(request.id)
            code = error.code
            self.record(request, response, code)
        except asyncio.CancelledError:
            error = self._make_cancelled_error(task, is_lost())
            response = error.encode(request.id)
            code = error.code
        finally:
            self.calls.discard(task)
        if received is not None and self.traffic is not None:
            self.traffic.record_response(received, response, code)
        return response, code

    def modern_call(
        self,
        request: Request,
        envelope: RequestEnvelope,
        params: Params,
        owner: str,
        send: SendMessage,
        connection: object | None = None,
    ) -> RunningCall:
        """Return the call of a modern request."""
        arguments = (
            envelope.meta.copy(),
            envelope.client,
            envelope.log_level,
        )  # a cached envelope is shared between requests
        return RunningCall(
            request.id, request.method, params, *arguments, send, self._seal, owner, connection=connection
        )

    def _record_request(self, request: Request, params: Params) -> ReceivedMessage | None:
        return self.traffic.record_request(request, params) if self.traffic is not None else None

    async def _listen(
        self,
        request: Request,
        client: ClientProfile,
        params: Params,
        send: SendMessage,
        send_keep_alive: SendKeepAlive | None,
        client_key: ClientKey | None,
    ) -> tuple[bytes, int]:
        subscription = Subscription(self.provider, request.id, params)
        self.subscriptions[subscription.queue] = client_key
        self.notify_changed()
        try:
            return self._make_response(request, client, await subscription.serve(send, send_keep_alive))
        finally:
            del self.subscriptions[subscription.queue]
            self.notify_changed()

    def _make_response(self, request: Request, client: ClientProfile, result: Mapping[str, Any]) -> tuple[bytes, int]:
        response = encode_result(request.id, finish_result(result, request.method, client, self.provider))
        self.record(request, response)
        return response, 0

    def _make_cancelled_error(self, task: Task, lost: bool) -> WireError:
        """Return the error for a cancelled call. Raise CancelledError if nobody is left to receive it."""
        if lost or task.uncancel() > 0:
            raise asyncio.CancelledError
        return self.closing_error if self.is_closing else WireError(REQUEST_CANCELLED, "cancelled")


def find_conversation(head: RequestHead) -> str | None:
    """Return the session of an agent that a request says it belongs to."""
    value = head.first(mirrored.CONVERSATION_HEADER)
    return value.decode("latin-1").strip() if value is not None else None


def make_id_in_use_error(request: Request) -> WireError:
    return WireError(INVALID_REQUEST, f"id {request.id!r} is in use by another request")


def get_current_task() -> Task:
    """Return the current task, which must exist."""
    task = asyncio.current_task()
    assert task is not None
    return task


def _serve_connection_method(session: Session, request: Request) -> bool:
    """Handle a request that belongs to the connection and not to the provider.

    Return whether the request was one of these.
    """
    if request.method in revisions.ONLY_MODERN:
        raise WireError(METHOD_NOT_FOUND, f"{session.client.revision} has no method {request.method}")
    if request.method == "logging/setLevel":
        session.set_log_level(decode_object(request.params))
    elif request.method in ("resources/subscribe", "resources/unsubscribe"):
        session.subscribe(decode_object(request.params), request.method == "resources/subscribe")
    return request.method in revisions.ONLY_HANDSHAKE
