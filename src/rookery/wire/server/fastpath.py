"""The fast path: repeated tool calls that are forwarded and answered without a task.

A `FastPathMatcher` recognizes calls that differ only in their id and arguments. A `FastRoute` forwards them to a server
as long as nothing about them changes. A `FastCall` goes from the HTTP request to the server and back. A task continues
it only if something other than a result arrives.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Raw
from starlette.types import ASGIApp

from rookery.wire.client.inflight import FastChannel, PostedRequest
from rookery.wire.client.questions import decode_input_required
from rookery.wire.http.exchange import Exchange
from rookery.wire.http.head import RequestHead
from rookery.wire.protocol import revisions
from rookery.wire.protocol.headers import CONVERSATION_HEADER
from rookery.wire.protocol.messages import (
    Request,
    RequestId,
    WireError,
    check_message,
    decode_messages,
    decode_object,
    encode_result,
)
from rookery.wire.protocol.provider import Call, ClientProfile
from rookery.wire.server import stateless
from rookery.wire.server.call import finish_result, to_handshake_result
from rookery.wire.server.http_request import JSON_HEADERS
from rookery.wire.server.service import Service
from rookery.wire.server.session import Session
from rookery.wire.server.stateless import RequestEnvelope
from rookery.wire.server.traffic import ReceivedMessage, Traffic

logger = logging.getLogger("rookery.mcp.wire")

# The most calls that pass before a route is looked up again after a failed look-up. The number doubles each time.
_MAX_CALLS_BETWEEN_LOOKUPS = 1024
_MAX_MATCHES = 256
# Calls with a longer name or `_meta` take the normal path: these are kept as long as the connection.
_MAX_KEY_BYTES = 4096


class FastRoute(FastChannel, Protocol):
    """The fast path of an endpoint to one tool."""

    def on_result(self, sent: PostedRequest, arguments: Raw, result: Raw) -> None:
        """Note that a call that was sent has its result."""
        ...

    def handle(self, call: Call, posted: PostedRequest) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        """Wait for a call that was sent, and return its result as a provider does."""
        ...


@runtime_checkable
class FastRouteProvider(Protocol):
    """A provider that has fast routes."""

    def find_route(self, call: Call) -> FastRoute | None:
        """Return a route for calls like this one. It has not been checked whether the call is allowed."""
        ...


class FastPathMatch:
    """What calls of the same kind have in common. `envelope` is set for those of the modern era."""

    __slots__ = ("client", "envelope", "owner", "route")

    def __init__(self, route: FastRoute, owner: str, client: ClientProfile, envelope: RequestEnvelope | None) -> None:
        self.route = route
        self.owner = owner
        self.client = client
        self.envelope = envelope


class FastCall(PostedRequest):
    """A call on the fast path. `app_for` returns an app that answers it in a task, if that becomes necessary."""

    __slots__ = ("_app_for", "_arguments", "_exchange", "_id", "_match", "_service", "body", "received", "session")

    def __init__(
        self,
        app_for: Callable[["FastCall"], ASGIApp],
        service: Service,
        match: FastPathMatch,
        session: Session | None,
        id_: RequestId,
        body: bytes,
        exchange: Exchange,
    ) -> None:
        self._app_for = app_for
        self._service = service
        self._match = match
        self.session = session
        self._id = id_
        self.body = body
        self._exchange = exchange

    def send(self, arguments: Raw) -> bool:
        """Forward the call to its server. Return False, without any effect, if that is not possible."""
        if not self._match.route.send(arguments, self):
            return False
        self._arguments = arguments
        if self.session is not None:
            self.session.calls[self._id] = self
        else:
            self._service.calls.add(self)
        traffic = self._service.traffic
        self.received = self._record(traffic) if traffic is not None else None
        self._exchange.set_on_lost(self.continue_in_task)
        return True

    def request(self) -> Request:
        """Return the decoded request."""
        (request,) = decode_messages(self.body)
        assert isinstance(request, Request)
        return request

    def _record(self, traffic: Traffic) -> ReceivedMessage:
        if self.session is None:
            traffic.record_client((self._match.owner, self.envelope.client_info))
        request = self.request()
        return traffic.record_request(request, decode_object(request.params))

    @property
    def caller(self) -> str:
        """The id of the session. Each modern request has its own value."""
        return self.session.id if self.session is not None else f"brief {self.number}"

    @property
    def envelope(self) -> RequestEnvelope:
        assert self._match.envelope is not None
        return self._match.envelope

    def handle(self, call: Call) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        return self._match.route.handle(call, self)

    def unregister(self) -> None:
        """Remove the call from those that can be cancelled."""
        if self.session is not None:
            self.session.calls.pop(self._id, None)
        else:
            self._service.calls.discard(self)

    def try_finish(self, result: Raw) -> bool:
        match = self._match
        try:
            if match.route.answers_questions:
                if decode_input_required(result) is not None:
                    return False
                result = to_handshake_result(result)
            message = encode_result(self._id, finish_result(result, "tools/call", match.client, self._service.provider))
        except Exception:  # a task reports the error better
            return False
        self.release()
        self.unregister()
        match.route.on_result(self, self._arguments, result)
        if self.received is not None and self._service.traffic is not None:
            self._service.traffic.record_response(self.received, message, 0)
        try:
            self._exchange.respond(200, JSON_HEADERS, message)
        except Exception:  # other responses on the connection must still be read
            logger.exception("a response could not be written")
            self._exchange.connection.abort()
        return True

    def start_task(self) -> None:
        self._exchange.app = self._app_for(self)
        self._exchange.connection.start(self._exchange)


# The tool, its raw `_meta`, and the log level of the session.
_MatchKey = tuple[str, bytes, str | None]


class _CallParams(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: Raw
    meta: Raw = msgspec.field(default=Raw(), name="_meta")


class _CallMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The usual form of a call. A call with other members does not match."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["tools/call"]
    params: _CallParams


_decode_call = msgspec.json.Decoder(_CallMessage).decode


class FastPathMatcher:
    """Recognizes calls with the same head. `is_valid` returns whether they still lead to this endpoint."""

    __slots__ = (
        *(
            "_app_for",
            "_conversation",
            "_head",
            "_is_valid",
            "_lookup_pauses",
            "_matches",
            "_owner",
            "_provider",
            "_service",
            "_session",
        ),
        *("_version", "is_expired"),
    )

    def __init__(
        self,
        app_for: Callable[[FastCall], ASGIApp],
        service: Service,
        provider: FastRouteProvider,
        head: RequestHead,
        owner: str,
        is_valid: Callable[[], bool],
    ) -> None:
        self.is_expired = False
        self._app_for = app_for
        self._service = service
        self._provider = provider
        self._head = head
        self._owner = owner
        self._is_valid = is_valid
        self._version, session = (
            _decode_head_value(head, name) for name in (b"mcp-protocol-version", b"mcp-session-id")
        )
        self._session = None if self._version in revisions.MODERN else session or ""
        self._conversation = _decode_head_value(head, CONVERSATION_HEADER)
        self._matches: dict[_MatchKey, FastPathMatch] = {}
        # How many calls have to pass before the next look-up, and how many passed before the last one.
        self._lookup_pauses: dict[_MatchKey, tuple[int, int]] = {}

    def try_serve(self, body: bytes, exchange: Exchange) -> bool:
        """Start a call on the fast path and return True, or return False without any effect."""
        service = self._service
        if service.is_closing or not self._is_valid():
            self.is_expired = True
            return False
        try:
            check_message(body)
            message = _decode_call(body)
        except (WireError, msgspec.DecodeError, RecursionError):
            return False
        session = None
        level = None
        if self._session is not None:
            session = service.sessions.find(self._session, self._owner)
            if session is None or message.id in session.calls:
                return False
            level = session.log_level
        params = message.params
        if len(params.name) + len(params.meta) > _MAX_KEY_BYTES:
            return False
        key = params.name, bytes(params.meta), level
        match = self._matches.get(key)
        if match is None or not match.route.is_valid():
            match = self._look_up(key, body, session)
            if match is None:
                return False
        return FastCall(self._app_for, service, match, session, message.id, body, exchange).send(params.arguments)

    def _look_up(self, key: _MatchKey, body: bytes, session: Session | None) -> FastPathMatch | None:
        """Look up a route, but not for the first call: no other may be like it."""
        remaining, interval = self._lookup_pauses.get(key, (1, 1)) if key not in self._matches else (0, 1)
        if remaining:
            if len(self._lookup_pauses) >= _MAX_MATCHES:
                self._lookup_pauses.clear()
            self._lookup_pauses[key] = remaining - 1, interval
            return None
        try:
            match = self._make_match(key[0], body, session)
        except Exception:  # a task reports the error better
            match = None
        if match is None:
            self._matches.pop(key, None)
            next_interval = min(2 * interval, _MAX_CALLS_BETWEEN_LOOKUPS)
            self._lookup_pauses[key] = next_interval, next_interval
            return None
        self._lookup_pauses.pop(key, None)
        if len(self._matches) >= _MAX_MATCHES:
            self._matches.clear()
        self._matches[key] = match
        return match

    def _make_match(self, name: str, body: bytes, session: Session | None) -> FastPathMatch | None:
        """Return what the fast path needs for calls like this one, or None if it cannot serve them."""
        (request,) = decode_messages(body)
        if not isinstance(request, Request) or not self._has_clear_era(request):
            return None
        service = self._service
        envelope = None
        if session is not None:
            call = service.handshake_call(session, request, _send_nothing, conversation=self._conversation)
        else:
            envelope, params = stateless.classify_request(request, self._head, service.provider, service.declarations)
            call = service.modern_call(request, envelope, params, self._owner, _send_nothing)
            call.conversation = self._conversation
            schema = service.provider.input_schema(name)
            if schema is not None and service.declarations.get(name, schema):
                return None  # some arguments are repeated in headers
        # A client that wants progress is served by a task from the start.
        route = self._provider.find_route(call) if "progressToken" not in call.meta else None
        return FastPathMatch(route, self._owner, call.client, envelope) if route is not None else None

    def _has_clear_era(self, request: Request) -> bool:
        """Return whether the head alone determines the era, and the body does not contradict it."""
        if self._version is None:
            return not stateless.has_envelope(request)
        return self._version in revisions.ALL


async def _send_nothing(message: bytes) -> None:
    """Send nothing: the call is only inspected, and never made."""


def _decode_head_value(head: RequestHead, name: bytes) -> str | None:
    value = head.first(name)
    return value.decode("latin-1").strip() if value is not None else None
