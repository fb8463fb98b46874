"""The handshake era: a client says hello once, and the server remembers it by a session."""

import asyncio
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from rookery.system.clock import SYSTEM_CLOCK, Clock
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
)
from rookery.wire.provider import Ask, Client, Provider
from rookery.wire.streams import Stream

_ENDED_STREAMS_KEPT = 8

Sender = Callable[[bytes], Awaitable[None]]


class Session:
    """One handshake client. Ids of its requests are its own; ids of our requests to it are ours."""

    __slots__ = (
        "_asked",
        "_numbers",
        "_stop_listening",
        "calls",
        "client",
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
        self.log_level: str | None = "debug"
        self.calls: dict[Id, asyncio.Task[Any]] = {}
        self.subscriptions: set[str] = set()
        self.standing: Stream | None = None
        self.streams: dict[str, Stream] = {}
        self._asked: dict[Id, asyncio.Future[Response]] = {}
        self._numbers = itertools.count(1)
        self._stop_listening = provider.changes.listen(self._changed)

    @property
    def busy(self) -> bool:
        return bool(self.calls) or self.standing is not None

    def new_stream(self) -> Stream:
        """A stream that can be resumed; of those that have ended, only the newest few."""
        ended = [name for name, stream in self.streams.items() if stream.ended]
        for name in ended[:-_ENDED_STREAMS_KEPT]:
            del self.streams[name]
        name = f"s{next(self._numbers)}"
        self.streams[name] = made = Stream(name)
        return made

    def found_stream(self, event_id: str) -> tuple[Stream, int]:
        """The stream that an event id belongs to, and the place in it."""
        name, _, number = event_id.rpartition("-")
        stream = self.streams.get(name)
        if stream is None or not number.isdigit():
            raise WireError(INVALID_PARAMS, "Last-Event-ID belongs to no stream that is still known")
        return stream, int(number)

    async def question(self, send: Sender, asks: Mapping[str, Ask]) -> Mapping[str, Any]:
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
            for number in numbers:
                self._asked.pop(number, None)

    def take(self, message: Notification | Response) -> None:
        """A message that gets no answer. One for what has ended already is ignored: clients send such."""
        if isinstance(message, Response):
            waiting = self._asked.get(message.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif message.method == "notifications/cancelled":
            params = object_of(message.params)
            number = msgspec.json.decode(params.get("requestId", Raw(b"null")))
            task = self.calls.get(number) if isinstance(number, int | str) else None
            if task is not None:
                task.cancel("cancelled by the client")

    def set_log_level(self, params: Params) -> None:
        level = text_of(params, "level")
        if level not in revisions.LOG_LEVELS:
            raise WireError(INVALID_PARAMS, f"there is no log level {level!r}")
        self.log_level = level

    def subscribe(self, params: Params, wanted: bool) -> None:
        uri = text_of(params, "uri")
        if wanted:
            self.subscriptions.add(uri)
        else:
            self.subscriptions.discard(uri)

    def _changed(self, method: str, uri: str | None) -> None:
        if self.standing is None or (uri is not None and uri not in self.subscriptions):
            return
        params = {"uri": uri} if uri is not None else {}
        self.standing.push(encode_notification(method, msgspec.json.encode(params)))

    def end(self) -> None:
        self._stop_listening()
        for task in list(self.calls.values()):
            task.cancel("the session has ended")
        for future in self._asked.values():
            future.cancel()
        for stream in self.streams.values():
            stream.end()
        if self.standing is not None:
            self.standing.end()


class _Error(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "the client refused"


def _answered(response: Response) -> Any:
    if response.error is None:
        return msgspec.json.decode(response.result)
    try:
        error = msgspec.json.decode(response.error, type=_Error)
    except msgspec.DecodeError:
        error = _Error()
    raise WireError(error.code, error.message)


class Sessions:
    """All sessions of one endpoint: capped in number, and forgotten when idle for long, but never while busy."""

    def __init__(
        self, provider: Provider, *, cap: int = 10_000, idle_seconds: float = 1800.0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._provider = provider
        self._cap = cap
        self._idle_seconds = idle_seconds
        self._clock = clock
        # The one used longest ago first.
        self._known: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def open(self, params: Params, owner: str) -> tuple[Session, dict[str, Any]]:
        """Answer `initialize`: the session, and the result."""
        self.expire()
        if len(self._known) >= self._cap:
            raise WireError(CONNECTION_CLOSED, f"there are {self._cap} sessions already; end one, or try again later")
        wanted = text_of(params, "protocolVersion")
        revision = wanted if wanted in revisions.HANDSHAKE else revisions.LATEST_HANDSHAKE
        try:
            capabilities = msgspec.json.decode(params.get("capabilities", b"{}"), type=dict[str, Any])
            info = msgspec.json.decode(params.get("clientInfo", b"{}"), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise WireError(INVALID_PARAMS, f"initialize does not fit: {error}") from None
        session = Session(Client(revision, capabilities, info), owner, self._provider, self._clock.monotonic())
        self._known[session.id] = session
        return session, hello(self._provider, revision)

    def find(self, id_: str, owner: str) -> Session | None:
        """A session by its id, which is worth nothing without the credential it was opened with."""
        self.expire()
        session = self._known.get(id_)
        if session is None or session.owner != owner:
            return None
        session.used = self._clock.monotonic()
        self._known.move_to_end(id_)
        return session

    def close(self, session: Session) -> None:
        self._known.pop(session.id, None)
        session.end()

    def expire(self) -> None:
        """Forget what has been idle for too long; a look at the oldest is enough in most cases."""
        now = self._clock.monotonic()
        while self._known:
            session = next(iter(self._known.values()))
            if session.used + self._idle_seconds > now:
                return
            if session.busy:
                session.used = now
                self._known.move_to_end(session.id)
            else:
                self.close(session)

    def close_all(self) -> None:
        for session in list(self._known.values()):
            self.close(session)


def hello(provider: Provider, revision: str) -> dict[str, Any]:
    """The result of `initialize`."""
    found: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": provider.capabilities,
        "serverInfo": provider.info,
    }
    return found | ({"instructions": provider.instructions} if provider.instructions else {})
