"""Whoever asks a server something, and whose the messages are that it sends of its own accord."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Raw

from rookery.wire import revisions
from rookery.wire.jsonrpc import Id, Notification, Params

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


class Running:
    """A request that is waited for."""

    __slots__ = ("_questions", "limit", "listener", "seconds")

    def __init__(self, limit: asyncio.Timeout, seconds: float | None, listener: Listener | None) -> None:
        self.limit = limit
        self.seconds = seconds
        self.listener = listener
        self._questions = 0

    def end(self) -> None:
        """Its time is over."""
        self._allow(0)

    def progressed(self, params: Params) -> None:
        if not self._questions:
            self._allow(self.seconds)
        if self.listener is not None:
            self.listener.progressed(params)

    def pause(self) -> None:
        """A question of the server is being answered; as long as that takes, no time runs."""
        self._questions += 1
        self._allow(None)

    def resume(self) -> None:
        self._questions -= 1
        if not self._questions:
            self._allow(self.seconds)

    def _allow(self, seconds: float | None) -> None:
        """End it in so many seconds from now, unless it is ending already."""
        if not self.limit.expired():
            when = None if seconds is None else asyncio.get_running_loop().time() + seconds
            self.limit.reschedule(when)


Place = tuple[Listener, list[Running]]


class InFlight:
    """The requests that are under way on one connection."""

    def __init__(self, ourselves: Ourselves) -> None:
        self.running: dict[Id, Running] = {}
        # What could not be given to anybody, by method.
        self.unplaced: Counter[str] = Counter()
        self._ourselves = ourselves

    def place(self, method: str, of: Id | None) -> Place | None:
        """To whom a message of the server belongs, and the calls that it may concern.

        Where it is not said with which request it came, all calls in flight must be of one client.
        """
        one = self.running.get(of) if of is not None else None
        if one is not None:
            return one.listener or self._ourselves, [one]
        calls = [one for one in self.running.values() if one.listener is not None and one.listener.caller]
        if not calls:
            return self._ourselves, []
        listeners = {one.listener.caller: one.listener for one in calls if one.listener is not None}
        if len(listeners) == 1:
            return listeners.popitem()[1], calls
        self.unplaced[method if method in revisions.CAPABILITY_OF or method in CALL_BOUND else "others"] += 1
        return None

    def diagnosis(self) -> str:
        """What people should know about messages that could not be placed."""
        if not self.unplaced:
            return ""
        told = ", ".join(f"{method} {count} times" for method, count in self.unplaced.most_common())
        return f"it did not say to which of several clients' calls these belong: {told}"
