"""The client role: one server's lists and calls, the answers to its questions, and news of its changes."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire.asking import CALL_BOUND, CONNECTION_WIDE, Answerer, Listener, Notified, Ourselves
from rookery.wire.channel import Channel
from rookery.wire.jsonrpc import METHOD_NOT_FOUND, Id, Notification, Params, Request, WireError, object_of
from rookery.wire.listing import Listed, all_pages
from rookery.wire.questions import Questions, answer_inputs, inputs_asked
from rookery.wire.requester import Requester
from rookery.wire.sent import Sent
from rookery.wire.watching import Watch, subscription_of
from rookery.wire.writing import Identity

logger = logging.getLogger("rookery.mcp.client")

_ROUNDS = 10


@dataclass(frozen=True)
class Timeouts:
    """Seconds: to connect, for a list, for a call, anew with each progress, and for an answer to what a server asks."""

    startup: float = 30.0
    catalog: float = 5.0
    execution: float = 300.0
    question: float = 600.0


async def _answer_nothing(method: str, params: Params) -> Mapping[str, Any]:
    raise WireError(METHOD_NOT_FOUND, f"there is nobody here to answer {method}")


def _hear_nothing(notification: Notification) -> None:
    """Nobody here wants to know."""


class Client(Requester):
    """A connected server. Made by `connect.connect`, which finds out what it speaks.

    `notified` hears what concerns everybody on this connection. `answerer` is asked where no call has a listener.
    """

    def __init__(
        self,
        channel: Channel,
        identity: Identity,
        timeouts: Timeouts,
        answerer: Answerer = _answer_nothing,
        notified: Notified = _hear_nothing,
    ) -> None:
        self._ourselves = Ourselves(answerer, notified)
        super().__init__(channel, identity, self._ourselves)
        self.timeouts = timeouts
        self.capabilities: Mapping[str, Any] = {}
        self.info: Mapping[str, Any] = {}
        self.instructions: str | None = None
        # Told as soon as the connection is dead, unless we closed it.
        self.on_gone: Callable[[str], None] | None = None
        self._questions = Questions(self.in_flight, self._reply, timeouts.question)
        self._watch = Watch(self, notified)
        self._strays = 0

    @property
    def strays(self) -> int:
        """Messages that nobody waits for."""
        return self._strays + self._questions.strays

    @property
    def unplaced(self) -> Mapping[str, int]:
        """How many messages could not be given to anybody, because it was not said to whose call they belong."""
        return self.in_flight.unplaced

    @property
    def gone(self) -> str | None:
        """Why the connection is dead, None while it is not."""
        return "closed" if self._closed else self.channel.gone

    def diagnosis(self) -> str:
        """What is known about troubles with this server, for people."""
        return "; ".join(filter(None, (self.channel.diagnosis(), self.in_flight.diagnosis())))

    async def open(self) -> None:
        await self.channel.open(self.heard, self._lost)

    async def close(self) -> None:
        """Ends every request that still runs."""
        self._closed = True
        self.in_flight.end_all()
        await self._watch.close()
        await self._questions.close()
        await self.channel.close()

    # ---- asking

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        listener: Listener | None = None,
        *,
        rounds: bool = True,
        capabilities: Mapping[str, Any] | None = None,
        sent: Sent | None = None,
    ) -> Raw:
        """A request that may take long and, in the modern era, ask back before it answers. It may be `sent` already.

        Without `rounds` such a question is the result: whoever called answers it, and calls again.
        """
        listener, given = listener or self._ourselves, params
        for _ in range(_ROUNDS):
            result = await self.request(
                method,
                given,
                seconds=self.timeouts.execution,
                what="execution",
                listener=listener,
                capabilities=capabilities,
                sent=sent,
            )
            asked = inputs_asked(result) if rounds and self.modern else None
            if asked is None:
                return result
            sent = None
            given = {**params, **await answer_inputs(asked, listener, self.timeouts.question)}
        raise RookeryError("upstream-failed", f"{method} asked for input more than {_ROUNDS} times")

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | Raw, listener: Listener | None = None) -> Raw:
        return await self.call("tools/call", {"name": name, "arguments": arguments}, listener)

    async def list_all(self, method: str, key: str) -> Listed:
        """All pages of a list, within the catalog time-out."""
        seconds = self.timeouts.catalog

        def ask(params: Mapping[str, Any], left: float) -> Awaitable[Raw]:
            return self.request(method, params, seconds=seconds, what="catalog", left=left)

        found = await all_pages(ask, method, key, seconds)
        if method == "tools/list":
            found[:] = self._writer.usable(found)
        return found

    async def watch(self, resources: Collection[str]) -> None:
        """Have `notified` told when these resources or any list change, or may have changed while nobody told us."""
        await self._watch.set(frozenset(resources))

    # ---- hearing

    def _renewed(self) -> None:
        self._watch.renewed()

    def _lost(self, reason: str) -> None:
        if not self._closed and self.on_gone is not None:
            self.on_gone(reason)

    def heard(self, message: Request | Notification, of: Id | None) -> None:
        """Something that the server says of its own accord. Nothing in it may end the reading."""
        try:
            if of is not None and of not in self.in_flight.running:
                self._strays += 1
            elif isinstance(message, Request):
                self._questions.take(message, of)
            else:
                self._hear(message, of)
        except (WireError, msgspec.DecodeError):
            self._strays += 1
        except Exception:
            logger.exception("%s was not taken in", message.method)

    def _hear(self, message: Notification, of: Id | None) -> None:
        method = message.method
        if method == "notifications/progress":
            params = object_of(message.params)
            token = msgspec.json.decode(params.get("progressToken", Raw(b"null")))
            running = self.in_flight.running.get(token) if isinstance(token, int | str) else None
            if running is None:
                self._strays += 1
            else:
                running.progressed(params)
        elif method == "notifications/cancelled":
            self._questions.take_back(msgspec.json.decode(object_of(message.params).get("requestId", Raw(b"null"))))
        elif method in CONNECTION_WIDE:
            self._ourselves.notified(message)
        else:
            self._give(message, subscription_of(message) if of is None else of)

    def _give(self, message: Notification, of: Id | None) -> None:
        if of is None and message.method not in CALL_BOUND:
            self._ourselves.notified(message)
        elif of is not None and of not in self.in_flight.running:
            self._strays += 1
        elif (place := self.in_flight.place(message.method, of)) is not None:
            place[0].notified(message)
