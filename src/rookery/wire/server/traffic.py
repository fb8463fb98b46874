"""The last messages over the endpoints of one workspace, and its clients without a session."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

import msgspec

from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.wire.protocol.messages import Notification, Params, Request, RequestId

MESSAGES_KEPT = 100
PRESENCE_SECONDS = 60.0
# The most clients that are distinguished, whatever names they send.
_MOST_CLIENTS = 1_000
_LONGEST_TEXT = 256

# The principal of the token, and what the client said about itself.
ClientKey = tuple[str, bytes]
# A message of a client: time, method, name of the tool, id, size of the parameters in bytes, and the server whose own
# endpoint it was sent to. Neither arguments nor results are kept: they may contain anything.
ReceivedMessage = tuple[float, str, str | None, RequestId | None, int, str | None]
# A response: time, the message it answers, size in bytes, and error code.
SentAnswer = tuple[float, ReceivedMessage, int, int]

_text = msgspec.json.Decoder(str)


class TrafficLine(msgspec.Struct):
    """One message as it is reported. `bytes` is the size of the parameters, or of the whole response.

    `server` is set if the message was sent to the endpoint of a single server, as agents do.
    """

    time: float
    direction: str
    method: str
    tool: str | None
    id: RequestId | None
    bytes: int
    error: int | None = None
    ms: float | None = None
    server: str | None = None


class MessageLog:
    """The last messages, numbered from 1, and those who wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._messages: deque[ReceivedMessage | SentAnswer] = deque(maxlen=MESSAGES_KEPT)
        self._waiting: list[asyncio.Future[None]] = []

    def append(self, message: ReceivedMessage | SentAnswer) -> None:
        self.count += 1
        self._messages.append(message)
        if self._waiting:
            self.wake()

    def since(self, number: int) -> list[ReceivedMessage | SentAnswer]:
        """Return the messages that are kept of those with a higher number; all, if there is no such number yet."""
        messages = list(self._messages)
        number = number if number <= self.count else 0
        return messages[max(0, len(messages) - max(0, self.count - number)) :]

    async def wait(self, number: int, seconds: float) -> None:
        """Wait until there is a message with a higher number, for a limited time."""
        if self.count != number:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiting, seconds)
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def wake(self) -> None:
        """Wake all that wait."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Traffic:
    """Records messages and clients. `on_changed` is called when a client without a session appears.

    `server` is the server whose own endpoint is recorded, and `shared` the record of the workspace to which it belongs.
    """

    def __init__(
        self,
        on_changed: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        server: str | None = None,
        shared: "Traffic | None" = None,
    ) -> None:
        self.on_changed = on_changed
        self._server = server
        self._now = clock.monotonic
        self._wall = clock.wall
        self._seen: dict[ClientKey, float] = {} if shared is None else shared._seen
        self.log = MessageLog() if shared is None else shared.log
        self._append = self.log.append

    def record_request(self, request: Request, params: Params) -> ReceivedMessage:
        """Record a call. Every call passes here and through `record_response`, so both have to be very cheap."""
        id_ = request.id
        method = request.method
        name = params.get("name")
        tool = None
        if type(id_) is not int or len(method) > _LONGEST_TEXT:
            id_ = _shorten_id(id_)
            method = method[:_LONGEST_TEXT]
        if name is not None and len(name) < _LONGEST_TEXT:
            # Copied: a slice of a message would keep the whole message alive.
            try:  # noqa: SIM105 - a context manager costs more than all the rest
                tool = _text.decode(name)
            except msgspec.DecodeError:
                pass
        received = self._now(), method, tool, id_, len(request.params), self._server
        self._append(received)
        return received

    def record_response(self, request: ReceivedMessage, answer: bytes, code: int) -> None:
        """Record the response to a call, with its error code or 0."""
        self._append((self._now(), request, len(answer), code))

    def record_message(self, message: Request | Notification, answer: bytes | None, code: int) -> None:
        """Record a message that does not reach the provider, and the response to it, if there is one."""
        id_ = _shorten_id(message.id) if isinstance(message, Request) else None
        received = self._now(), message.method[:_LONGEST_TEXT], None, id_, len(message.params), self._server
        self._append(received)
        if answer is not None:
            self.record_response(received, answer, code)

    def record_client(self, client: ClientKey) -> None:
        """Record that a client without a session is present."""
        if client not in self._seen:
            if len(self._seen) >= _MOST_CLIENTS and len(self.list_present()) >= _MOST_CLIENTS:
                return
            self.on_changed()
        self._seen[client] = self._now()

    def list_present(self) -> set[ClientKey]:
        """Return the clients without a session that were present in the last minute."""
        since = self._now() - PRESENCE_SECONDS
        for client in [client for client, at in self._seen.items() if at <= since]:
            del self._seen[client]
        return set(self._seen)

    def lines(self, since: int = 0) -> list[TrafficLine]:
        """Return the last messages after the one with this number, in the order in which they were recorded."""
        offset = self._wall() - self._now()
        return [_make_line(message, offset) for message in self.log.since(since)]


def _make_line(message: ReceivedMessage | SentAnswer, offset: float) -> TrafficLine:
    if len(message) == 6:
        at, method, tool, id_, size, server = message
        tool = _get_tool_name(method, tool)
        return TrafficLine(round(at + offset, 6), "in", method, tool, id_, size, server=server)
    at, (started, method, tool, id_, _, server), size, code = message
    ms = round((at - started) * 1000, 3)
    tool = _get_tool_name(method, tool)
    return TrafficLine(round(at + offset, 6), "out", "answer", tool, id_, size, code or None, ms, server)


def _shorten_id(id_: RequestId) -> RequestId:
    return id_[:_LONGEST_TEXT] if isinstance(id_, str) else id_


def _get_tool_name(method: str, name: str | None) -> str | None:
    return name if method == "tools/call" else None
