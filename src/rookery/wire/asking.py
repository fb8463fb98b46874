"""Whoever asks a server something, and wants to hear what belongs to it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Raw

from rookery.wire.jsonrpc import Notification, Params

# What concerns everybody on a connection, even where it comes with the answer to one call.
CONNECTION_WIDE = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
# What belongs to a call, even where it does not say to which.
CALL_BOUND = frozenset({"notifications/message", "notifications/elicitation/complete"})

Answer = Mapping[str, Any] | Raw
Answerer = Callable[[str, Params], Awaitable[Answer]]
Notified = Callable[[Notification], None]


class Listener(Protocol):
    """Whoever made a request and wants to hear what belongs to it."""

    @property
    def caller(self) -> str:
        """Equal for requests of one and the same client; empty where a request is nobody's call."""
        ...

    def progressed(self, params: Params) -> None:
        """The progress token inside is ours; the listener puts in its own."""
        ...

    def notified(self, message: Notification) -> None:
        """Log messages, and what else belongs to the call."""
        ...

    async def answer(self, method: str, params: Params) -> Answer:
        """roots/list, sampling/createMessage or elicitation/create. May raise WireError."""
        ...


@dataclass(frozen=True)
class Ourselves:
    """The listener of calls that have no other, and of what a server says while there are none."""

    answerer: Answerer
    hear: Notified
    caller: str = "ourselves"

    def progressed(self, params: Params) -> None:
        """It is enough that the call may go on."""

    def notified(self, message: Notification) -> None:
        self.hear(message)

    async def answer(self, method: str, params: Params) -> Answer:
        return await self.answerer(method, params)
