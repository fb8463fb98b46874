"""The interface of a client's transports, and the responses that are pending on one of them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, runtime_checkable

from rookery.wire.protocol.messages import Message, Notification, Request, RequestId, Response

# Called with a message that the server sends on its own initiative, and the id of our request on whose stream it came,
# if any. Raises nothing.
HandleMessage = Callable[[Request | Notification, RequestId | None], None]
# Called with the reason as soon as the connection is lost. Raises nothing.
HandleLoss = Callable[[str], None]


class TransportClosed(Exception):
    """The connection is closed, and pending responses are lost. The message says why."""


class AuthenticationRequired(TransportClosed):
    """The server requires credentials, or those that were sent do not allow the request."""


class SessionLost(Exception):
    """The server no longer knows the session. It did nothing of the request."""


class TransportUnsupported(Exception):
    """The server does not speak this transport."""


class ResponseWaiter(Protocol):
    """Receives a response: a future, or an object with the same methods."""

    def done(self) -> bool: ...
    def set_result(self, result: Response, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


@runtime_checkable
class PostingTransport(Protocol):
    """A transport that can send a request without a task that waits for the response."""

    def post(self, id_: RequestId, message: bytes, waiter: ResponseWaiter, headers: Mapping[str, str]) -> bool:
        """Send a request now, and pass its response to `waiter` until `forget` is called.

        Return False if the request cannot be sent now.
        """
        ...

    def forget(self, id_: RequestId) -> None:
        """Stop waiting for the response of a request that was posted."""
        ...


class ClientTransport(Protocol):
    """A connection to one server."""

    async def open(self, on_message: HandleMessage, on_lost: HandleLoss) -> None: ...

    def request(self, id_: RequestId, message: bytes, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        """Send a request and wait for the response with its id."""
        ...

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that gets no response."""
        ...

    async def on_revision_agreed(self, revision: str) -> None:
        """Handle the end of the handshake on this revision. Return when the server can send messages on its own."""
        ...

    @property
    def close_reason(self) -> str | None:
        """Why the connection is closed, or None while it is open."""
        ...

    @property
    def challenge(self) -> str | None:
        """The last WWW-Authenticate of the server, or None if it required no credentials."""
        ...

    @property
    def cancels_by_closing(self) -> bool:
        """Whether closing the stream of a request cancels it, so that no notification is needed."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Whether messages are sent with headers."""
        ...

    @property
    def strays(self) -> int:
        """How many messages arrived that nothing waits for."""
        ...

    def list_problems(self) -> list[str]:
        """Return what went wrong on this connection without ending it, for people."""
        ...

    def diagnosis(self) -> str:
        """Return everything that may explain why this connection failed, for people."""
        ...

    async def close(self) -> None: ...


class PendingResponses:
    """The responses that are waited for on one connection.

    `strays` counts responses that nothing waits for: late, duplicate, or with an id that was never used.
    """

    def __init__(self) -> None:
        self.strays = 0
        self._waiting: dict[RequestId, ResponseWaiter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __bool__(self) -> bool:
        """Return whether any response is waited for."""
        return bool(self._waiting)

    async def wait_for_response(self, id_: RequestId, sending: Awaitable[None] | None) -> Response:
        """Wait until a request is sent, if it is not yet, and for the response with its id."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[id_] = future
        try:
            if sending is not None:
                await sending
            return await future
        finally:
            self._waiting.pop(id_, None)
            if future.done() and not future.cancelled():
                future.exception()  # Marks it as retrieved: it was reported elsewhere.

    def add_waiter(self, id_: RequestId, waiter: ResponseWaiter) -> None:
        """Pass the response with this id to `waiter`, until `remove_waiter` is called."""
        self._waiting[id_] = waiter

    def remove_waiter(self, id_: RequestId) -> None:
        self._waiting.pop(id_, None)

    def dispatch(self, messages: list[Message], on_message: HandleMessage) -> None:
        """Dispatch messages: responses to their waiters, all others to `on_message`."""
        for message in messages:
            if not isinstance(message, Response):
                on_message(message, None)
            elif (waiter := self._waiting.get(message.id)) is not None and not waiter.done():
                waiter.set_result(message)
            else:
                self.strays += 1

    def fail(self, error: Exception) -> None:
        """Fail all pending responses: none will arrive any more."""
        for waiter in list(self._waiting.values()):
            if not waiter.done():
                waiter.set_exception(error)
