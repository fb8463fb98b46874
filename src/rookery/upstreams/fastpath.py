"""The fast path of calls to a connected server that need not wait for anything."""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from rookery.gateway.relay import add_caller_meta
from rookery.wire.client.client import Client
from rookery.wire.client.inflight import PostedRequest
from rookery.wire.client.transport import PostingTransport
from rookery.wire.protocol.provider import Call

if TYPE_CHECKING:
    from rookery.upstreams.server import Server

# The client over which a call has been sent already, and the request.
StartedCall = tuple[Client, PostedRequest] | tuple[None, None]
NOT_STARTED: StartedCall = None, None

# The caller matters only to exclusive servers, and these have no fast path.
_ANY_CALLER = ""


class ServerFastPath:
    """The fast path of calls that differ only in id and arguments. Valid for the lifetime of one connection."""

    __slots__ = ("_channel", "_client", "_encode", "_headers", "_server", "answers_questions")

    def __init__(
        self, server: "Server", client: Client, channel: PostingTransport, call: Call, params: Mapping[str, Any]
    ) -> None:
        self._server = server
        self._client = client
        self._channel = channel
        self._encode = client.template(call.method, add_caller_meta(call, params, client), call.client.capabilities)
        self._headers = client.headers(call.method, params)
        self.answers_questions = client.modern and not call.client.modern

    def is_valid(self) -> bool:
        return self._server.has_client(self._client) and not self._server.is_disconnected

    def send(self, arguments: Raw, sent: PostedRequest) -> bool:
        if not self._server.limiter.try_enter(_ANY_CALLER):
            return False
        client = self._client
        number = next(client.request_numbers)
        message = self._encode((number, arguments, number))
        if sent.post(self._channel, client.in_flight, number, message, self._headers, client.timeouts.execution):
            return True
        self._server.limiter.leave(_ANY_CALLER)
        return False

    def on_result(self) -> None:
        self._server.limiter.leave(_ANY_CALLER)
        self._server.touch()

    def handle(
        self, call: Call, params: Mapping[str, Any], sent: PostedRequest
    ) -> Coroutine[Any, Any, Raw | Mapping[str, Any]]:
        return self._server.handle(call, params, (self._client, sent))


def find_fast_path(
    server: "Server", client: Client | None, call: Call, params: Mapping[str, Any]
) -> ServerFastPath | None:
    """Return the fast path to a server, or None if calls have to wait or might have to."""
    if (
        client is None
        or server.is_disconnected
        or server.limiter.exclusive
        or not isinstance(client.transport, PostingTransport)
        or client.mirrors_arguments(call.method, params)
    ):
        return None
    return ServerFastPath(server, client, client.transport, call, params)
