"""The client role: requests to one server, with time-outs, progress, cancellation and answers to its questions."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.errors import RookeryError
from rookery.wire import revisions
from rookery.wire.asking import CALL_BOUND, CONNECTION_WIDE, Answerer, Listener, Notified, Ourselves
from rookery.wire.channel import Channel, ChannelClosed, NoSuchTransport, SessionLost
from rookery.wire.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Id,
    Notification,
    Params,
    Request,
    WireError,
    encode_notification,
    object_of,
)
from rookery.wire.listing import all_pages
from rookery.wire.questions import Questions, answer_inputs
from rookery.wire.running import InFlight
from rookery.wire.watching import Watch
from rookery.wire.writing import Identity, Writer

logger = logging.getLogger("rookery.mcp.client")

_ROUNDS = 10
_CANCEL_SECONDS = 2.0
_SAY_SECONDS = 30.0
_NO_HEADERS: Mapping[str, str] = {}
_SUBSCRIPTION = revisions.META_SUBSCRIPTION.encode()


@dataclass(frozen=True)
class Timeouts:
    """Seconds. `startup` is for connecting, `catalog` for a list, `execution` for a call; progress resets the last."""

    startup: float = 30.0
    catalog: float = 5.0
    execution: float = 300.0


async def _answer_nothing(method: str, params: Params) -> Mapping[str, Any]:
    raise WireError(METHOD_NOT_FOUND, f"there is nobody here to answer {method}")


def _hear_nothing(notification: Notification) -> None:
    """Nobody here wants to know."""


class Client:
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
        self.channel = channel
        self.identity = identity
        self.timeouts = timeouts
        self.capabilities: Mapping[str, Any] = {}
        self.info: Mapping[str, Any] = {}
        self.instructions: str | None = None
        # Makes a lost session anew.
        self.renew: Callable[[], Awaitable[None]] | None = None
        # Told as soon as the connection is dead, unless we closed it.
        self.on_gone: Callable[[str], None] | None = None
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._notified = notified
        self._numbers = itertools.count(1)
        self._writer = Writer(identity)
        self._ourselves = Ourselves(answerer, notified)
        self._in_flight = InFlight(self._ourselves)
        self._questions = Questions(self._in_flight, self._reply)
        self._watch = Watch(self, notified)
        self._strays = 0
        self._closed = False

    @property
    def revision(self) -> str:
        return self._writer.revision

    @revision.setter
    def revision(self, revision: str) -> None:
        self._writer.speak(revision)

    @property
    def modern(self) -> bool:
        return self._writer.modern

    @property
    def strays(self) -> int:
        """Messages that nobody waits for."""
        return self._strays + self._questions.strays

    @property
    def unplaced(self) -> Mapping[str, int]:
        """How many messages could not be given to anybody, because it was not said to whose call they belong."""
        return self._in_flight.unplaced

    @property
    def gone(self) -> str | None:
        """Why the connection is dead, None while it is not."""
        return "closed" if self._closed else self.channel.gone

    def diagnosis(self) -> str:
        """What is known about troubles with this server, for people."""
        return "; ".join(filter(None, (self.channel.diagnosis(), self._in_flight.diagnosis())))

    async def open(self) -> None:
        await self.channel.open(self.heard, self._lost)

    async def close(self) -> None:
        """Ends every request that still runs."""
        self._closed = True
        self._in_flight.end_all()
        await self._watch.close()
        await self._questions.close()
        await self.channel.close()

    # ---- asking

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float | None,
        what: str,
        listener: Listener | None = None,
        capabilities: Mapping[str, Any] | None = None,
        left: float | None = None,
    ) -> Raw:
        """The result, as it came. Raises WireError for an error answer, RookeryError for anything else that fails.

        `capabilities` is what a modern server is told instead of our own. `left` is what is left of `seconds`.
        """
        renewals = self._renewals
        asked = method, params, seconds, what, listener, capabilities, seconds if left is None else left
        try:
            return await self._request(*asked)
        except SessionLost:
            # Nothing of it was done, so that it can be said again; anything else that breaks is not repeated.
            pass
        await self._make_session_anew(method, renewals)
        try:
            return await self._request(*asked)
        except SessionLost:
            raise RookeryError("upstream-failed", f"{method}: the server forgets every session at once") from None

    async def _make_session_anew(self, method: str, renewals: int) -> None:
        """Unless another request has tried since `renewals` was read."""
        async with self._renewing:
            if self._renewals != renewals:
                return
            self._renewals += 1
            try:
                if self.renew is None:
                    raise ChannelClosed("there was no handshake")
                await self.renew()
                self._watch.renewed()
            except (ChannelClosed, NoSuchTransport, WireError, RookeryError) as error:
                raise RookeryError(
                    "upstream-failed", f"{method}: the server forgot the session, and there is no new one: {error}"
                ) from None

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any],
        seconds: float | None,
        what: str,
        listener: Listener | None,
        capabilities: Mapping[str, Any] | None,
        left: float | None,
    ) -> Raw:
        if self._closed:
            raise _closed(method)
        number = next(self._numbers)
        writer = self._writer
        with_progress = listener is not None and bool(listener.caller)
        message = writer.request(number, method, params, with_progress=with_progress, capabilities=capabilities)
        headers = writer.headers(method, params) if self.channel.uses_headers else _NO_HEADERS
        try:
            with self._in_flight.begin(number, seconds, left, listener):
                response = await self.channel.request(number, message, headers)
        except TimeoutError:
            if self._closed:
                raise _closed(method) from None
            await self._give_up(number, method, f"{what} time-out")
            detail = self.channel.diagnosis()
            more = f" ({detail})" if detail else ""
            raise RookeryError(
                "timeout", f"{method}: no answer within the {what} time-out of {seconds:g} s{more}"
            ) from None
        except asyncio.CancelledError:
            await self._give_up(number, method, "cancelled")
            raise
        except ChannelClosed as error:
            raise RookeryError("upstream-failed", f"{method}: {error}") from None
        if response.error is not None:
            raise wire_error(response.error)
        return response.result

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        listener: Listener | None = None,
        *,
        rounds: bool = True,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Raw:
        """A request that may take long and, in the modern era, ask back before it answers.

        Without `rounds` such a question is the result: whoever called answers it, and calls again.
        """
        listener = listener or self._ourselves
        given = params
        for _ in range(_ROUNDS):
            result = await self.request(
                method,
                given,
                seconds=self.timeouts.execution,
                what="execution",
                listener=listener,
                capabilities=capabilities,
            )
            if not rounds or not self.modern or b"input_required" not in bytes(result):
                return result
            members = object_of(result, "result")
            if members.get("resultType") != Raw(b'"input_required"'):
                return result
            given = {**params, "inputResponses": await answer_inputs(members, listener)}
            if "requestState" in members:
                given["requestState"] = members["requestState"]
        raise RookeryError("upstream-failed", f"{method} asked for input more than {_ROUNDS} times")

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | Raw, listener: Listener | None = None) -> Raw:
        return await self.call("tools/call", {"name": name, "arguments": arguments}, listener)

    async def list_all(self, method: str, key: str) -> list[Raw]:
        """All pages of a list, within the catalog time-out."""
        seconds = self.timeouts.catalog

        async def ask(params: Mapping[str, Any], left: float) -> Raw:
            return await self.request(method, params, seconds=seconds, what="catalog", left=left)

        found = await all_pages(ask, method, key, seconds)
        return self._writer.usable(found) if method == "tools/list" else found

    async def watch(self, resources: Collection[str]) -> None:
        """From now on hear of changes of these resources, and of the server's lists; `notified` is told of them.

        Where some may have been missed, it is told as if everything had changed.
        """
        await self._watch.set(frozenset(resources))

    # ---- saying

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._say(encode_notification(method, msgspec.json.encode(params)), self._writer.headers(method, params))

    async def _reply(self, message: bytes) -> None:
        await self._say(message, self._writer.headers("", {}))

    async def _say(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send what gets no answer. Where it does not arrive, the next request finds out why."""
        with contextlib.suppress(TimeoutError, ChannelClosed, SessionLost, NoSuchTransport):
            async with asyncio.timeout(_SAY_SECONDS):
                await self.channel.send(message, headers)

    async def _give_up(self, number: Id, method: str, reason: str) -> None:
        """Tell the server that nobody waits any more, but do not wait for long to do so."""
        # A handshake must not be cancelled.
        if method == "initialize" or (self.channel.cancels_by_closing and self.modern):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.notify("notifications/cancelled", {"requestId": number, "reason": reason})

    # ---- hearing

    def _lost(self, reason: str) -> None:
        if not self._closed and self.on_gone is not None:
            self.on_gone(reason)

    def heard(self, message: Request | Notification, of: Id | None) -> None:
        """Something that the server says of its own accord. Nothing in it may end the reading."""
        try:
            if of is not None and of not in self._in_flight.running:
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
            running = self._in_flight.running.get(token) if isinstance(token, int | str) else None
            if running is None:
                self._strays += 1
            else:
                running.progressed(params)
        elif method == "notifications/cancelled":
            self._questions.take_back(msgspec.json.decode(object_of(message.params).get("requestId", Raw(b"null"))))
        elif method in CONNECTION_WIDE:
            self._notified(message)
        elif method in CALL_BOUND or of is not None or (of := _subscription(message)) is not None:
            if (place := self._in_flight.place(method, of)) is not None:
                place[0].notified(message)
        else:
            self._notified(message)


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "an error without a message"
    data: Any = None


def _subscription(message: Notification) -> Id | None:
    """The request that opened the subscription on which this comes."""
    if _SUBSCRIPTION not in bytes(message.params):
        return None
    meta = object_of(object_of(message.params).get("_meta", Raw(b"{}")), "_meta")
    return msgspec.json.decode(meta.get(revisions.META_SUBSCRIPTION, Raw(b"null")), type=int | str | None)


def _closed(method: str) -> RookeryError:
    return RookeryError("upstream-failed", f"{method}: the connection was closed")


def wire_error(raw: Raw) -> WireError:
    """The error of an answer."""
    try:
        found = msgspec.json.decode(raw, type=_Error)
    except msgspec.DecodeError:
        found = _Error()
    return WireError(found.code, found.message, found.data)
