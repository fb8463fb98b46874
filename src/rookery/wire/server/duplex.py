"""One client on a connection that carries messages both ways: stdio, WebSocket or HTTP+SSE.

Each frame has one message, or a batch where the revision allows that.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from rookery.system.tasks import TaskSet
from rookery.wire.http.auth import OWNER
from rookery.wire.protocol import revisions
from rookery.wire.protocol.messages import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    WireError,
    decode_messages,
    decode_object,
    encode_result,
)
from rookery.wire.server import stateless
from rookery.wire.server.service import Service, make_id_in_use_error
from rookery.wire.server.session import (
    NotificationQueue,
    SendMessage,
    Session,
    decode_cancelled_id,
    relay_notifications,
)

MAX_CALLS = 1_000
# The approximate memory of a call in addition to its message.
_CALL_BYTES = 8_192
_GOODBYE_SECONDS = 2.0

# Called with the response to a request, or None if the client has cancelled it.
SendReply = Callable[[bytes | None], Awaitable[None]]


class DuplexConnection:
    """Serves both eras on one connection: requests with the modern envelope, and those of a handshake session."""

    def __init__(self, service: Service, owner: str, write: SendMessage, *, modern: bool = True) -> None:
        self.owner = owner
        self._service = service
        self._write = write
        self._modern = modern
        self._session: Session | None = None
        self._calls: dict[RequestId, asyncio.Task[None]] = {}
        self._cancelled_ids: set[RequestId] = set()
        self._tasks = TaskSet("mcp")
        self._lost = False

    async def send(self, message: bytes | None) -> None:
        """Send one message. Discard it if the client is gone."""
        if message is None or self._lost:
            return
        try:
            await self._write(message)
        except ConnectionError:
            self._lost = True

    async def handle_frame(self, data: bytes) -> None:
        """Handle one frame. Responses are sent when they are ready, errors of the frame itself at once."""
        try:
            messages = self.decode(data)
        except WireError as error:
            await self.send(error.encode(None))
        else:
            await self.handle_messages(messages, len(data))

    def decode(self, data: bytes) -> list[Message]:
        """Return the messages of a frame. Raise WireError for a batch, unless the session's revision has batches."""
        messages = decode_messages(data)
        revision = self._session.client.revision if self._session is not None else "a connection without a session"
        if len(messages) > 1 and revision not in revisions.BATCH_REVISIONS:
            raise WireError(INVALID_REQUEST, f"{revision} does not support batches")
        return messages

    async def handle_messages(self, messages: Sequence[Message], size: int) -> None:
        """Handle messages of one frame of `size` bytes. Their responses are sent together."""
        requests = [message for message in messages if isinstance(message, Request)]
        for message in messages:
            if not isinstance(message, Request):
                self._handle_one_way(message)
        reply = self.send if len(messages) == 1 else self._collect_batch(len(requests))
        for request in requests:
            await self._start_request(request, reply, size // len(messages) + _CALL_BYTES)

    async def end(self, *, lost: bool) -> None:
        """End every call and the session.

        If the client is still connected, it first gets the errors with which the closing service ends the calls.
        """
        self._lost |= lost
        if self._calls and not self._lost:
            await asyncio.wait(list(self._calls.values()), timeout=_GOODBYE_SECONDS)
        self._lost = True
        if self._session is not None:
            self._service.sessions.close(self._session)
        await self._tasks.close()
        self._service.on_disconnected(self)

    # Single messages

    def _handle_one_way(self, message: Notification | Response) -> None:
        """Handle a message that gets no response, even if it is invalid."""
        if isinstance(message, Notification):
            self._service.record(message)
        with contextlib.suppress(WireError):
            if isinstance(message, Notification) and message.method == "notifications/cancelled":
                number = decode_cancelled_id(message)
                if number is not None and (task := self._calls.get(number)) is not None:
                    self._cancelled_ids.add(number)
                    task.cancel("cancelled by the client")
            elif self._session is not None:
                self._session.handle(message)

    async def _start_request(self, request: Request, reply: SendReply, size: int) -> None:
        if request.method == "initialize":
            # Without a task, so that the next message finds the session.
            await reply(self._initialize(request))
        elif request.method == "ping" and self._session is None and not stateless.has_envelope(request):
            await reply(encode_result(request.id, b"{}"))
        elif (refusal := self._find_refusal(request)) is not None:
            await reply(refusal.encode(request.id))
        elif (limit := self._service.shares.request_bytes.take(self.owner, size)) is not None:
            message = f"{limit.code}: {limit.message}; {limit.remedy}"
            await reply(WireError(CONNECTION_CLOSED, message).encode(request.id))
        else:
            work = self._serve(request, reply)
            if self.owner != OWNER.name:
                work = self._service.shares.pacer.run(self.owner, work)
            task = self._calls[request.id] = self._tasks.start(work, request.method)
            task.add_done_callback(lambda _: self._on_call_ended(request.id, size))

    def _find_refusal(self, request: Request) -> WireError | None:
        if request.id in self._calls:
            return make_id_in_use_error(request)
        if len(self._calls) >= MAX_CALLS:
            return WireError(CONNECTION_CLOSED, f"{MAX_CALLS} requests are in progress already; try again later")
        if self._session is None and not self._is_modern(request):
            return WireError(INVALID_REQUEST, "there is no session; send initialize first")
        return None

    def _is_modern(self, request: Request) -> bool:
        return self._modern and (request.method in revisions.ONLY_MODERN or stateless.has_envelope(request))

    def _initialize(self, request: Request) -> bytes:
        try:
            if self._session is not None:
                raise WireError(INVALID_REQUEST, "the session is initialized already")
            self._session, result = self._service.sessions.open(decode_object(request.params), self.owner)
        except WireError as error:
            return error.encode(request.id)
        self._session.notification_sink = queue = NotificationQueue()
        self._tasks.start(relay_notifications(queue, self.send), "changes")
        self._service.record(request, response := encode_result(request.id, msgspec.json.encode(result)))
        return response

    async def _serve(self, request: Request, reply: SendReply) -> None:
        if self._is_modern(request):
            arguments = request, None, self.owner, self.send
            message, _ = await self._service.modern(*arguments, is_lost=self._is_lost, connection=self)
        else:
            assert self._session is not None
            message = await self._service.handshake(self._session, request, self.send, self.send, self._is_lost)
        await reply(None if request.id in self._cancelled_ids else message)

    def _on_call_ended(self, id_: RequestId, size: int) -> None:
        self._service.shares.request_bytes.give_back(self.owner, size)
        self._calls.pop(id_, None)
        self._cancelled_ids.discard(id_)

    def _is_lost(self) -> bool:
        return self._lost

    def _collect_batch(self, remaining: int) -> SendReply:
        """Return a function that collects the responses to a batch, and sends them after the last one."""
        responses: list[bytes] = []

        async def collect(message: bytes | None) -> None:
            nonlocal remaining
            remaining -= 1
            responses.extend([message] if message is not None else [])
            if not remaining and responses:
                await self.send(b"[" + b",".join(responses) + b"]")

        return collect
