"""The last messages over the endpoints of one workspace, and its clients without a session."""

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
# A message of a client: time, method, name of the tool, id, and size of the parameters in bytes. Neither arguments nor
# results are kept: they may contain anything.
ReceivedMessage = tuple[float, str, str | None, RequestId | None, int]
# A response: time, the message it answers, size in bytes, and error code.
SentAnswer = tuple[float, ReceivedMessage, int, int]

_text = msgspec.json.Decoder(str)


class TrafficLine(msgspec.Struct):
    """One message as it is reported. `bytes` is the size of the parameters, or of the whole response."""

    time: float
    direction: str
    method: str
    tool: str | None
    id: RequestId | None
    bytes: int
    error: int | None = None
    ms: float | None = None


class Traffic:
    """Records messages and clients. `on_changed` is called when a client without a session appears."""

    def __init__(self, on_changed: Callable[[], None] = lambda: None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.on_changed = on_changed
        self._now, self._wall = clock.monotonic, clock.wall
        self._messages: deque[ReceivedMessage | SentAnswer] = deque(maxlen=MESSAGES_KEPT)
        self._seen: dict[ClientKey, float] = {}

    def record_request(self, request: Request, params: Params) -> ReceivedMessage:
        """Record a call. Every call passes here and through `record_response`, so both have to be very cheap."""
        id_, method, name, tool = request.id, request.method, params.get("name"), None
        if type(id_) is not int or len(method) > _LONGEST_TEXT:
            id_, method = _shorten_id(id_), method[:_LONGEST_TEXT]
        if name is not None and len(name) < _LONGEST_TEXT:
            # Copied: a slice of a message would keep the whole message alive.
            try:  # noqa: SIM105 - a context manager costs more than all the rest
                tool = _text.decode(name)
            except msgspec.DecodeError:
                pass
        received = self._now(), method, tool, id_, len(request.params)
        self._messages.append(received)
        return received

    def record_response(self, request: ReceivedMessage, answer: bytes, code: int) -> None:
        """Record the response to a call, with its error code or 0."""
        self._messages.append((self._now(), request, len(answer), code))

    def record_message(self, message: Request | Notification, answer: bytes | None, code: int) -> None:
        """Record a message that does not reach the provider, and the response to it, if there is one."""
        id_ = _shorten_id(message.id) if isinstance(message, Request) else None
        received = self._now(), message.method[:_LONGEST_TEXT], None, id_, len(message.params)
        self._messages.append(received)
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
        self._seen = {client: at for client, at in self._seen.items() if at > since}
        return set(self._seen)

    def lines(self) -> list[TrafficLine]:
        """Return the last messages, in the order in which they were recorded."""
        offset = self._wall() - self._now()
        return [_make_line(message, offset) for message in self._messages]


def _make_line(message: ReceivedMessage | SentAnswer, offset: float) -> TrafficLine:
    if len(message) == 5:
        at, method, tool, id_, size = message
        return TrafficLine(round(at + offset, 6), "in", method, _get_tool_name(method, tool), id_, size)
    at, (started, method, tool, id_, _), size, code = message
    ms = round((at - started) * 1000, 3)
    return TrafficLine(
        round(at + offset, 6), "out", "answer", _get_tool_name(method, tool), id_, size, code or None, ms
    )


def _shorten_id(id_: RequestId) -> RequestId:
    return id_[:_LONGEST_TEXT] if isinstance(id_, str) else id_


def _get_tool_name(method: str, name: str | None) -> str | None:
    return name if method == "tools/call" else None
