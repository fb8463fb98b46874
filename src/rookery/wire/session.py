"""One client of the handshake era, as the server remembers it."""

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from rookery.wire import revisions
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Id,
    Notification,
    Params,
    Response,
    WireError,
    encode_notification,
    encode_request,
    object_of,
    text_of,
    value_of,
)
from rookery.wire.provider import Ask, Client, Provider
from rookery.wire.resuming import Streams
from rookery.wire.streams import Sender, Stream

if TYPE_CHECKING:
    from rookery.wire.sent import Sent

MAX_SUBSCRIPTIONS = 1_000


class Standing(Protocol):
    """Where messages go that belong to no call: the stream of a GET, or the connection itself."""

    @property
    def attended(self) -> bool: ...

    def push(self, data: bytes, /) -> object: ...
    def end(self) -> None: ...


def cancelled_id(message: Notification) -> Id | None:
    """The request that notifications/cancelled is about."""
    found = value_of(object_of(message.params).get("requestId", Raw(b"null")), "requestId")
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


class Session:
    """One handshake client. Ids of its requests are its own; ids of our requests to it are ours."""

    __slots__ = (
        "_asked",
        "_changes",
        "_numbers",
        "_stop_listening",
        "calls",
        "client",
        "ended",
        "id",
        "log_level",
        "owner",
        "standing",
        "streams",
        "subscriptions",
        "used",
    )

    def __init__(self, client: Client, owner: str, provider: Provider, now: float) -> None:
        self.id = secrets.token_urlsafe(24)
        self.client = client
        self.owner = owner
        self.used = now
        self.ended = False
        self.log_level: str | None = "debug"
        self.calls: dict[Id, asyncio.Task[Any] | Sent] = {}
        self.subscriptions: set[str] = set()
        self.standing: Standing | None = None
        self.streams = Streams()
        self._asked: dict[Id, asyncio.Future[Response]] = {}
        self._numbers = itertools.count(1)
        self._changes = provider.changes
        self._stop_listening = self._changes.listen(self._changed)

    @property
    def busy(self) -> bool:
        return bool(self.calls) or self.attended

    @property
    def attended(self) -> bool:
        """Whether anybody reads what belongs to no call."""
        return self.standing is not None and self.standing.attended

    def new_standing(self) -> Stream:
        """A stream for what belongs to no call. It outlasts its reader, who may come back for what it missed."""
        if self.standing is not None:
            self.standing.end()
        self.standing = made = self.streams.new()
        return made

    async def question(self, send: Sender, asks: Mapping[str, Ask]) -> Mapping[str, Raw]:
        """Ask the client on the stream of the call that needs it; answers come in requests of their own."""
        waiting: dict[str, asyncio.Future[Response]] = {}
        numbers: list[Id] = []
        try:
            for key, ask in asks.items():
                number = f"rk-{next(self._numbers)}"
                numbers.append(number)
                self._asked[number] = waiting[key] = asyncio.get_running_loop().create_future()
                await send(encode_request(number, ask.method, msgspec.json.encode(ask.params)))
            return {key: _answered(await future) for key, future in waiting.items()}
        finally:
            # Nobody waits for these answers any more: the client need not trouble its user for them.
            left = [number for number in numbers if _unanswered(self._asked.pop(number))]
            for number in left:
                await send(encode_notification("notifications/cancelled", msgspec.json.encode({"requestId": number})))

    def take(self, message: Notification | Response) -> None:
        """A message that gets no answer. One for what has ended already is ignored: clients send such."""
        if isinstance(message, Response):
            waiting = self._asked.get(message.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif message.method == "notifications/cancelled":
            number = cancelled_id(message)
            task = self.calls.get(number) if number is not None else None
            if task is not None:
                task.cancel("cancelled by the client")

    def set_log_level(self, params: Params) -> None:
        level = text_of(params, "level")
        if level not in revisions.LOG_LEVELS:
            raise WireError(INVALID_PARAMS, f"there is no log level {level!r}")
        self.log_level = level

    def subscribe(self, params: Params, wanted: bool) -> None:
        uri = text_of(params, "uri")
        if wanted == (uri in self.subscriptions):
            return
        if not wanted:
            self.subscriptions.discard(uri)
            self._changes.unwatch(uri)
        elif len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            words = f"this session watches {MAX_SUBSCRIPTIONS} resources already; unsubscribe from one first"
            raise WireError(CONNECTION_CLOSED, words)
        else:
            self.subscriptions.add(uri)
            self._changes.watch(uri)

    def _changed(self, method: str, uri: str | None) -> None:
        if self.standing is None or (uri is not None and uri not in self.subscriptions):
            return
        params = {"uri": uri} if uri is not None else {}
        self.standing.push(encode_notification(method, msgspec.json.encode(params)))

    def end(self) -> None:
        self.ended = True
        self._stop_listening()
        self._changes.unwatch(*self.subscriptions)
        for task in list(self.calls.values()):
            task.cancel("the session has ended")
        for future in self._asked.values():
            future.cancel()
        self.streams.end()
        if self.standing is not None:
            self.standing.end()


def _unanswered(future: asyncio.Future[Response]) -> bool:
    return not future.done() or future.cancelled()


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "the client refused"
    data: Raw = Raw()


def _answered(response: Response) -> Raw:
    if response.error is None:
        return response.result
    try:
        error = msgspec.json.decode(response.error, type=_Error)
    except msgspec.DecodeError:
        error = _Error()
    raise WireError(error.code, error.message, error.data if bytes(error.data) else None)
