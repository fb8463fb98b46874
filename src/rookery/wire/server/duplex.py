"""One client on a connection that carries messages both ways, one a frame: stdio, WebSocket, HTTP+SSE."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from rookery.system.tasks import TaskSet
from rookery.wire import modern, revisions
from rookery.wire.jsonrpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    Id,
    Message,
    Notification,
    Request,
    Response,
    WireError,
    decode,
    encode_result,
    object_of,
)
from rookery.wire.service import Service, in_use
from rookery.wire.session import Session, cancelled_id
from rookery.wire.streams import News, Sender, relay

MAX_CALLS = 1_000
_GOODBYE_SECONDS = 2.0

# Takes the answer to a request, None if the client wants none any more.
Reply = Callable[[bytes | None], Awaitable[None]]


class Peer:
    """Serves both eras at once: a request with the modern envelope is modern, every other belongs to the session."""

    def __init__(self, service: Service, owner: str, write: Sender, *, modern: bool = True) -> None:
        self.owner = owner
        self._service = service
        self._write = write
        self._modern = modern
        self._session: Session | None = None
        self._calls: dict[Id, asyncio.Task[None]] = {}
        self._unwanted: set[Id] = set()
        self._tasks = TaskSet("mcp")
        self._lost = False

    async def send(self, message: bytes | None) -> None:
        """Send one message. What is for a client that has gone goes nowhere."""
        if message is None or self._lost:
            return
        try:
            await self._write(message)
        except ConnectionError:
            self._lost = True

    async def take(self, data: bytes) -> None:
        """What one frame brought. Answers are written as they come, and faults of the frame itself at once."""
        try:
            messages = self.decode(data)
        except WireError as error:
            await self.send(error.encoded(None))
        else:
            await self.take_all(messages)

    def decode(self, data: bytes) -> list[Message]:
        """The messages of a frame; several only where the session's revision has batches."""
        messages = decode(data)
        revision = self._session.client.revision if self._session is not None else "a connection without a session"
        if len(messages) > 1 and revision not in revisions.WITH_BATCHES:
            raise WireError(INVALID_REQUEST, f"{revision} has no batches")
        return messages

    async def take_all(self, messages: Sequence[Message]) -> None:
        """Messages that came together: their answers go together."""
        requests = [message for message in messages if isinstance(message, Request)]
        for message in messages:
            if not isinstance(message, Request):
                self._hear(message)
        reply = self.send if len(messages) == 1 else self._together(len(requests))
        for request in requests:
            await self._begin(request, reply)

    async def end(self, *, lost: bool) -> None:
        """End every call: of a client that is still there with the errors that the closing service gives them."""
        self._lost |= lost
        if self._calls and not self._lost:
            await asyncio.wait(list(self._calls.values()), timeout=_GOODBYE_SECONDS)
        self._lost = True
        if self._session is not None:
            self._service.sessions.close(self._session)
        await self._tasks.close()
        self._service.forget(self)

    # ---- one message

    def _hear(self, message: Notification | Response) -> None:
        """What gets no answer, not even where it makes no sense."""
        if isinstance(message, Notification):
            self._service.mention(message)
        with contextlib.suppress(WireError):
            if isinstance(message, Notification) and message.method == "notifications/cancelled":
                number = cancelled_id(message)
                if number is not None and (task := self._calls.get(number)) is not None:
                    self._unwanted.add(number)
                    task.cancel("cancelled by the client")
            elif self._session is not None:
                self._session.take(message)

    async def _begin(self, request: Request, reply: Reply) -> None:
        if request.method == "initialize":
            # At once, so that what comes behind it finds the session.
            await reply(self._initialize(request))
        elif request.method == "ping" and self._session is None and not modern.has_envelope(request):
            await reply(encode_result(request.id, b"{}"))
        elif (refusal := self._refusal(request)) is not None:
            await reply(refusal.encoded(request.id))
        else:
            task = self._calls[request.id] = self._tasks.start(self._serve(request, reply), request.method)
            task.add_done_callback(lambda _: self._ended(request.id))

    def _refusal(self, request: Request) -> WireError | None:
        if request.id in self._calls:
            return in_use(request)
        if len(self._calls) >= MAX_CALLS:
            return WireError(CONNECTION_CLOSED, f"{MAX_CALLS} requests are being worked on already; try again")
        if self._session is None and not self._is_modern(request):
            return WireError(INVALID_REQUEST, "there is no session yet; begin with initialize")
        return None

    def _is_modern(self, request: Request) -> bool:
        return self._modern and (request.method in revisions.ONLY_MODERN or modern.has_envelope(request))

    def _initialize(self, request: Request) -> bytes:
        try:
            if self._session is not None:
                raise WireError(INVALID_REQUEST, "initialize has been answered already")
            self._session, result = self._service.sessions.open(object_of(request.params), self.owner)
        except WireError as error:
            return error.encoded(request.id)
        self._session.standing = news = News()
        self._tasks.start(relay(news, self.send), "changes")
        self._service.mention(request, made := encode_result(request.id, msgspec.json.encode(result)))
        return made

    async def _serve(self, request: Request, reply: Reply) -> None:
        if self._is_modern(request):
            about = request, None, self.owner, self.send
            message, _ = await self._service.modern(*about, lost=self._is_lost, connection=self)
        else:
            assert self._session is not None
            message = await self._service.handshake(self._session, request, self.send, self.send, self._is_lost)
        await reply(None if request.id in self._unwanted else message)

    def _ended(self, id_: Id) -> None:
        self._calls.pop(id_, None)
        self._unwanted.discard(id_)

    def _is_lost(self) -> bool:
        return self._lost

    def _together(self, left: int) -> Reply:
        """Collects the answers to a batch; sends them when the last one is there."""
        found: list[bytes] = []

        async def collect(message: bytes | None) -> None:
            nonlocal left
            left -= 1
            found.extend([message] if message is not None else [])
            if not left and found:
                await self.send(b"[" + b",".join(found) + b"]")

        return collect
