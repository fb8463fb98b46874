"""Sessions of the handshake era, and their event streams.

A client initializes once, and the server keeps its state in a session. Events of a stream are numbered and kept for a
while, so that a client that was disconnected can resume.
"""

import asyncio
import itertools
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire.client.inflight import PostedRequest
from rookery.wire.http.auth import Refusal
from rookery.wire.protocol import revisions
from rookery.wire.protocol.framing import join_lines
from rookery.wire.protocol.messages import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Notification,
    Params,
    RequestId,
    Response,
    WireError,
    decode_object,
    decode_text,
    decode_value,
    encode_notification,
    encode_request,
)
from rookery.wire.protocol.provider import ClientProfile, ClientQuestion, Provider
from rookery.wire.shares import HeldBytes, Shares

# What a client may say about itself. It is kept for as long as the session, decoded, which takes many times its bytes.
MAX_PROFILE_BYTES = 16_384
# The longest URI of a subscription.
_MAX_URI_LENGTH = 4096
_EVENTS_KEPT = 256
STREAM_BYTES_KEPT = 4 * 1024 * 1024
_SMALL_EVENT_BYTES = 4096
KEEP_ALIVE_COMMENT = b": still here\r\n\r\n"
_KEEP_ALIVE_SECONDS = 15.0

SendMessage = Callable[[bytes], Awaitable[None]]
SendKeepAlive = Callable[[], Awaitable[None]]

_ENDED_STREAMS_KEPT = 8
# More digits than the number of any event has.
_EVENT_NUMBER_DIGITS = 18
MAX_SUBSCRIPTIONS = 1_000

_object_decoder = msgspec.json.Decoder(dict[str, Any])


def encode_event(data: bytes, id_: str | None = None, kind: bytes = b"message") -> bytes:
    """Return a server-sent event as bytes."""
    head = b"id: %b\r\n" % id_.encode() if id_ is not None else b""
    return b"%bevent: %b\r\ndata: %b\r\n\r\n" % (head, kind, join_lines(data))


class NotificationQueue:
    """Messages that wait for a reader. Duplicates are dropped, which limits the memory of a slow reader."""

    # The connection reads the queue as long as it exists.
    has_reader = True

    def __init__(self) -> None:
        self._waiting: dict[bytes, None] = {}
        self._wake = asyncio.Event()
        self._ended = False

    def push(self, message: bytes) -> None:
        self._waiting[message] = None
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def next(self) -> list[bytes]:
        """Wait for messages and return all of them. Return an empty list after the end."""
        while not self._waiting and not self._ended:
            self._wake.clear()
            await self._wake.wait()
        messages = list(self._waiting)
        self._waiting.clear()
        return messages


async def relay_notifications(
    queue: NotificationQueue, send: SendMessage, send_keep_alive: SendKeepAlive | None = None
) -> None:
    """Send messages until the queue ends, and call `send_keep_alive` when there are none for a while."""
    while True:
        try:
            async with asyncio.timeout(_KEEP_ALIVE_SECONDS if send_keep_alive is not None else None):
                messages = await queue.next()
        except TimeoutError:
            assert send_keep_alive is not None
            await send_keep_alive()
            continue
        if not messages:
            return
        for message in messages:
            await send(message)


class EventStream:
    """The events that were sent on one stream. They have ids only if the stream has a name."""

    __slots__ = ("_count", "_events", "_fits_budget", "_readers", "_wake", "ended", "name", "size")

    def __init__(self, name: str | None, fits_budget: Callable[[], bool] = lambda: True) -> None:
        self.name = name
        # Called when an event is added. If it returns False, the kept events are dropped.
        self._fits_budget = fits_budget
        self.ended = False
        self._count = 0
        self._readers = 0
        self._events: deque[bytes] = deque()
        # Bytes of the kept events.
        self.size = 0
        self._wake = asyncio.Event()

    def push(self, data: bytes) -> bytes:
        """Keep a message, and return it as an encoded event."""
        self._count += 1
        event = encode_event(data, f"{self.name}-{self._count}" if self.name else None)
        self._events.append(event)
        self.size += len(event)
        # The newest event is kept whatever its size: it may be the response.
        while len(self._events) > _EVENTS_KEPT or (self.size > STREAM_BYTES_KEPT and len(self._events) > 1):
            self.size = max(0, self.size - len(self._events.popleft()))
        if not self._fits_budget():
            # A small event is kept nevertheless: a reader may be waiting for it.
            self._events = deque([event] if len(event) <= _SMALL_EVENT_BYTES else [])
            self.size = 0
        self._wake.set()
        return event

    def prime(self) -> bytes:
        """Return an event without a message, which only gives the client an id to resume from."""
        return b"id: %b-0\r\ndata: \r\n\r\n" % (self.name or "").encode()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    @property
    def has_reader(self) -> bool:
        """Whether the stream has a reader."""
        return self._readers > 0

    @contextmanager
    def count_reader(self) -> Generator[None]:
        """Count a reader inside a `with` block."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    def has_reached(self, position: int) -> bool:
        """Return whether the stream has reached this position."""
        return position <= self._count

    def has_kept_after(self, position: int) -> bool:
        """Return whether all events after this position are still kept."""
        return position >= self._count - len(self._events)

    async def wait_after(self, position: int) -> tuple[list[bytes], int]:
        """Wait for events after `position`, and return them with the new position.

        Return no events once the stream has ended, or if some of them are no longer kept.
        """
        while True:
            if not self.has_kept_after(position):
                return [], self._count
            if position < self._count:
                return list(self._events)[position - self._count :], self._count
            if self.ended:
                return [], self._count
            self._wake.clear()
            await self._wake.wait()


class ResumableStreams:
    """The streams of one session that a client can resume.

    All open streams are kept, and the newest few that have ended, within the size limit of one stream.
    """

    __slots__ = ("_held_bytes", "_numbers", "_streams")

    def __init__(self, held_bytes: HeldBytes) -> None:
        self._streams: dict[str, EventStream] = {}
        self._numbers = itertools.count(1)
        self._held_bytes = held_bytes

    def new(self) -> EventStream:
        """Add a stream and return it."""
        self._forget_ended()
        name = f"s{next(self._numbers)}"
        self._streams[name] = stream = EventStream(name, self._fits_budget)
        return stream

    def find(self, event_id: str) -> tuple[EventStream, int]:
        """Return the stream of an event id, and the position in it. Raise WireError if it cannot be resumed."""
        name, _, number = event_id.rpartition("-")
        stream = self._streams.get(name)
        position = int(number) if number.isdecimal() and len(number) <= _EVENT_NUMBER_DIGITS else None
        if stream is None or position is None or not stream.has_reached(position):
            raise WireError(INVALID_PARAMS, "Last-Event-ID belongs to no stream that is still known")
        if not stream.has_kept_after(position):
            raise WireError(INVALID_PARAMS, "events after Last-Event-ID are no longer kept; open a new stream")
        return stream, position

    def end(self) -> None:
        for stream in self._streams.values():
            stream.end()
        self._streams.clear()
        self._held_bytes.release()

    def _fits_budget(self) -> bool:
        """Count the bytes of all streams. Return whether they are within the share of the token."""
        return self._held_bytes.resize(sum(stream.size for stream in self._streams.values())) is None

    def _forget_ended(self) -> None:
        ended = [(name, stream.size) for name, stream in self._streams.items() if stream.ended]
        size = 0
        for index, (name, stream_size) in enumerate(reversed(ended)):
            size += stream_size
            if index >= _ENDED_STREAMS_KEPT or (index and size > STREAM_BYTES_KEPT):
                del self._streams[name]
        self._fits_budget()


class NotificationSink(Protocol):
    """Receives messages that belong to no call: the stream of a GET, or the connection itself."""

    @property
    def has_reader(self) -> bool: ...

    def push(self, data: bytes, /) -> object: ...
    def end(self) -> None: ...


def decode_cancelled_id(message: Notification) -> RequestId | None:
    """Return the id of the request that notifications/cancelled is about."""
    value = decode_value(decode_object(message.params).get("requestId", Raw(b"null")), "requestId")
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


class Session:
    """The session of one handshake client. Ids of its requests, and of our requests to it, are separate."""

    __slots__ = (
        "_changes",
        "_held_bytes",
        "_numbers",
        "_pending_questions",
        "_stop_listening",
        "calls",
        "client",
        "ended",
        "id",
        "last_used",
        "log_level",
        "notification_sink",
        "opened_at",
        "owner",
        "streams",
        "subscriptions",
    )

    def __init__(self, client: ClientProfile, owner: str, provider: Provider, now: float, shares: Shares) -> None:
        self.id = secrets.token_urlsafe(24)
        self.client = client
        self.owner = owner
        # Equal until a second request arrives.
        self.opened_at = self.last_used = now
        self.ended = False
        self.log_level: str | None = "debug"
        self.calls: dict[RequestId, asyncio.Task[Any] | PostedRequest] = {}
        self.subscriptions: set[str] = set()
        self.notification_sink: NotificationSink | None = None
        self.streams = ResumableStreams(HeldBytes(shares.replay_bytes, owner))
        # The URIs of the subscriptions.
        self._held_bytes = HeldBytes(shares.kept_bytes, owner)
        self._pending_questions: dict[RequestId, asyncio.Future[Response]] = {}
        self._numbers = itertools.count(1)
        self._changes = provider.changes
        self._stop_listening = self._changes.listen(self._changed)

    @property
    def is_busy(self) -> bool:
        """Whether the session has calls in progress or a reader."""
        return bool(self.calls) or self.has_reader

    @property
    def has_reader(self) -> bool:
        """Whether anything reads the messages that belong to no call."""
        return self.notification_sink is not None and self.notification_sink.has_reader

    def open_notification_stream(self) -> EventStream:
        """Open a stream for messages that belong to no call. It outlives its reader, which can resume it."""
        if self.notification_sink is not None:
            self.notification_sink.end()
        self.notification_sink = stream = self.streams.new()
        return stream

    async def ask_client(self, send: SendMessage, questions: Mapping[str, ClientQuestion]) -> Mapping[str, Raw]:
        """Ask the client on the stream of the call that needs it. The answers arrive in separate requests."""
        futures: dict[str, asyncio.Future[Response]] = {}
        numbers: list[RequestId] = []
        try:
            for key, question in questions.items():
                number = f"rk-{next(self._numbers)}"
                numbers.append(number)
                self._pending_questions[number] = futures[key] = asyncio.get_running_loop().create_future()
                await send(encode_request(number, question.method, msgspec.json.encode(question.params)))
            return {key: _get_answer(await future) for key, future in futures.items()}
        finally:
            # Nothing waits for these answers any more, so the client need not ask its user.
            unanswered = [number for number in numbers if _is_unanswered(self._pending_questions.pop(number))]
            for number in unanswered:
                await send(encode_notification("notifications/cancelled", msgspec.json.encode({"requestId": number})))

    def handle(self, message: Notification | Response) -> None:
        """Handle a message that gets no response. One for a request that has ended is ignored: clients send such."""
        if isinstance(message, Response):
            future = self._pending_questions.get(message.id)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.method == "notifications/cancelled":
            number = decode_cancelled_id(message)
            task = self.calls.get(number) if number is not None else None
            if task is not None:
                task.cancel("cancelled by the client")

    def set_log_level(self, params: Params) -> None:
        level = decode_text(params, "level")
        if level not in revisions.LOG_LEVELS:
            raise WireError(INVALID_PARAMS, f"there is no log level {level!r}")
        self.log_level = level

    def subscribe(self, params: Params, subscribed: bool) -> None:
        """Add or remove the subscription to one resource."""
        uri = decode_text(params, "uri")
        if subscribed == (uri in self.subscriptions):
            return
        size = self._held_bytes.size
        if not subscribed:
            self.subscriptions.discard(uri)
            self._changes.unwatch(uri)
            self._held_bytes.resize(size - len(uri))
        elif len(uri) > _MAX_URI_LENGTH:
            raise WireError(INVALID_PARAMS, f"the uri is longer than {_MAX_URI_LENGTH} characters")
        elif len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            message = f"this session has {MAX_SUBSCRIPTIONS} subscriptions already; unsubscribe from a resource first"
            raise WireError(CONNECTION_CLOSED, message)
        elif (refusal := self._held_bytes.resize(size + len(uri))) is not None:
            raise WireError(CONNECTION_CLOSED, f"{refusal.code}: {refusal.message}; {refusal.remedy}")
        else:
            self.subscriptions.add(uri)
            self._changes.watch(uri)

    def _changed(self, method: str, uri: str | None) -> None:
        if self.notification_sink is None or (uri is not None and uri not in self.subscriptions):
            return
        params = {"uri": uri} if uri is not None else {}
        self.notification_sink.push(encode_notification(method, msgspec.json.encode(params)))

    def end(self) -> None:
        """End all calls, questions and streams of the session."""
        self.ended = True
        self._stop_listening()
        self._changes.unwatch(*self.subscriptions)
        self._held_bytes.release()
        for task in list(self.calls.values()):
            task.cancel("the session has ended")
        for future in self._pending_questions.values():
            future.cancel()
        self.streams.end()
        if self.notification_sink is not None:
            self.notification_sink.end()


def _is_unanswered(future: asyncio.Future[Response]) -> bool:
    return not future.done() or future.cancelled()


class _ClientError(msgspec.Struct):
    code: int = INTERNAL_ERROR
    message: str = "the client refused"
    data: Raw = Raw()


def _get_answer(response: Response) -> Raw:
    if response.error is None:
        return response.result
    try:
        error = msgspec.json.decode(response.error, type=_ClientError)
    except msgspec.DecodeError:
        error = _ClientError()
    raise WireError(error.code, error.message, error.data if bytes(error.data) else None)


def check_profile_size(value: Raw | bytes, name: str) -> Raw | bytes:
    """Return what a client says about itself. Raise WireError if it is too large to be kept."""
    if len(value) > MAX_PROFILE_BYTES:
        raise WireError(INVALID_PARAMS, f"{name} is larger than {MAX_PROFILE_BYTES} bytes")
    return value


class SessionRefused(WireError):
    """There are as many sessions as allowed, and all are in use. `status` is that of the HTTP response."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(CONNECTION_CLOSED, f"{refusal.message}; {refusal.remedy}", {"code": refusal.code})
        self.status = refusal.status


class Sessions:
    """All sessions of one endpoint. Their number is limited, and idle ones expire, but never while they are busy.

    When there are too many, at this endpoint or of one workspace token, an idle session is closed: first those that
    were opened and never used, then the one used longest ago.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        cap: int = 10_000,
        idle_seconds: float = 1800.0,
        clock: Clock = SYSTEM_CLOCK,
        on_end: Callable[[Session], None] | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._shares = shares if shares is not None else Shares()
        # Called once for each session, whatever ended it. An idle one ends when the next client connects, or by
        # `expire`.
        self.on_end = on_end
        self._provider = provider
        self._cap = cap
        self._idle_seconds = idle_seconds
        self._clock = clock
        # The session used longest ago comes first.
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._sessions

    def list_current(self) -> list[Session]:
        """Return the current sessions, the one used longest ago first."""
        self.expire()
        return list(self._sessions.values())

    @property
    def count_on_connections(self) -> int:
        """The number of sessions that belong to a duplex connection, and end with it."""
        return sum(isinstance(session.notification_sink, NotificationQueue) for session in self._sessions.values())

    def calls(self) -> set[asyncio.Task[Any] | PostedRequest]:
        """Return the calls in progress of all sessions."""
        return {task for session in self._sessions.values() for task in session.calls.values()}

    def open(self, params: Params, owner: str) -> tuple[Session, dict[str, Any]]:
        """Handle `initialize`: open a session, and return it with the result."""
        self.expire()
        self._evict_idle(owner)
        requested = decode_text(params, "protocolVersion")
        revision = requested if requested in revisions.HANDSHAKE else revisions.LATEST_HANDSHAKE
        try:
            capabilities = _object_decoder.decode(check_profile_size(params.get("capabilities", b"{}"), "capabilities"))
            info = _object_decoder.decode(check_profile_size(params.get("clientInfo", b"{}"), "clientInfo"))
        except msgspec.DecodeError as error:
            raise WireError(INVALID_PARAMS, f"the parameters of initialize are invalid: {error}") from None
        session = Session(
            ClientProfile(revision, capabilities, info), owner, self._provider, self._clock.monotonic(), self._shares
        )
        self._sessions[session.id] = session
        self._shares.add_session(owner, session, self)
        return session, make_initialize_result(self._provider, revision)

    def find(self, id_: str, owner: str) -> Session | None:
        """Return a session by its id, but only to the principal that opened it."""
        now = self.expire()
        session = self._sessions.get(id_)
        if session is None or session.owner != owner:
            return None
        session.last_used = now
        self._sessions.move_to_end(id_)
        return session

    def close(self, session: Session) -> None:
        """End a session, unless it has ended already."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._shares.remove_session(session.owner, session)
        session.end()
        if self.on_end is not None:
            self.on_end(session)

    def expire(self) -> float:
        """End sessions that were idle for too long, and return the time. Mostly only the oldest is checked."""
        now = self._clock.monotonic()
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.last_used + self._idle_seconds > now:
                break
            if session.is_busy:
                session.last_used = now
                self._sessions.move_to_end(session.id)
            else:
                self.close(session)
        return now

    def _evict_idle(self, owner: str) -> None:
        """End an idle session if there are too many for a new one. Raise SessionRefused if none is idle."""
        if (most := self._shares.get_max_sessions(owner)) is not None:
            sessions = self._shares.sessions.get(owner, {})
            if len(sessions) >= most:
                idlest = find_idlest(sessions)
                if idlest is None:
                    raise SessionRefused(self._shares.refuse_session())
                sessions[idlest].close(idlest)
        if len(self._sessions) >= self._cap:
            idlest = find_idlest(self._sessions.values())
            if idlest is None:
                message = f"there are {self._cap} sessions already, and all are in use"
                raise SessionRefused(Refusal(503, "too-many-sessions", message, remedy="end one, or try again later"))
            self.close(idlest)

    def close_all(self) -> None:
        for session in list(self._sessions.values()):
            self.close(session)


def find_idlest(sessions: Iterable[Session]) -> Session | None:
    """Return the idle session to close first: one that was never used, else the one used longest ago."""
    idle = [session for session in sessions if not session.is_busy]
    return min(idle, key=lambda session: (session.last_used != session.opened_at, session.last_used), default=None)


def make_initialize_result(provider: Provider, revision: str) -> dict[str, Any]:
    """Return the result of `initialize`."""
    result: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": provider.capabilities,
        "serverInfo": provider.info,
    }
    return result | ({"instructions": provider.instructions} if provider.instructions else {})
