"""What a client's transport has to do, so that one client can speak over all of them."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, runtime_checkable

from rookery.wire.jsonrpc import Id, Notification, Request, Response

# What the server says of its own accord, and the id of our request on whose own stream it came, where there is one.
# Raises nothing.
Heard = Callable[[Request | Notification, Id | None], None]
# Told why, as soon as the connection is dead. Raises nothing.
Lost = Callable[[str], None]


class ChannelClosed(Exception):
    """The connection is gone, and with it every answer that was still to come; says why."""


class NotSignedIn(ChannelClosed):
    """The server wants to know who asks, or lets that one do less than was asked for."""


class SessionLost(Exception):
    """The server does not know the session any more; nothing of the request was done."""


class NoSuchTransport(Exception):
    """Whoever answers there does not speak this way."""


class Waiting(Protocol):
    """Who waits for an answer: a future, or whoever is told as one is."""

    def done(self) -> bool: ...
    def set_result(self, result: Response, /) -> None: ...
    def set_exception(self, exception: Exception, /) -> None: ...


@runtime_checkable
class Posting(Protocol):
    """A channel over which a request can be sent without a task that waits for its answer."""

    def post(self, id_: Id, message: bytes, waiting: Waiting) -> bool:
        """Send a request now, and have `waiting` told of its answer until `forget`; False if it cannot be sent now."""
        ...

    def forget(self, id_: Id) -> None: ...


class Channel(Protocol):
    """A connection to one server."""

    async def open(self, heard: Heard, lost: Lost) -> None: ...

    def request(self, id_: Id, message: bytes, headers: Mapping[str, str]) -> Coroutine[Any, Any, Response]:
        """Send a request and wait for the answer with its id."""
        ...

    async def send(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send what gets no answer."""
        ...

    async def agreed(self, revision: str) -> None:
        """The handshake is done, on this revision; returns when the server can speak of its own accord."""
        ...

    @property
    def gone(self) -> str | None:
        """Why the connection is dead, None while it is not."""
        ...

    @property
    def challenge(self) -> str | None:
        """What the server said when it last asked who we are (WWW-Authenticate); None if it did not ask."""
        ...

    @property
    def cancels_by_closing(self) -> bool:
        """Whether giving up a request closes it, so that no word about it is needed."""
        ...

    @property
    def uses_headers(self) -> bool:
        """Whether there is any use in writing headers for it."""
        ...

    def diagnosis(self) -> str:
        """What is known about this connection's troubles, for people."""
        ...

    async def close(self) -> None: ...
