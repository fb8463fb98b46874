"""Parser for server-sent events that arrive in pieces of any size."""

import msgspec

_LONGEST_EVENT = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
_RETRY_DIGITS = 9


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    data: bytes
    id: str | None


class SseParser:
    """Parses an event stream.

    `retry` is the reconnection time in seconds that the server last set. `last_id` is that of the last complete event.
    """

    def __init__(self) -> None:
        self.retry: float | None = None
        self.last_id: str | None = None
        self.restart()

    def restart(self) -> None:
        """Prepare for a new stream of the same server. An incomplete event of the old one is discarded."""
        self._rest = bytearray()
        self._type = ""
        self._id = self.last_id
        self._data: list[bytes] = []
        self._size = 0
        self._first = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events that are complete now. Raise ValueError for one longer than 64 MiB."""
        if not data:
            return []
        if self._after_cr:
            # The second half of a CRLF in two pieces. Waiting for it would delay the event until the next one arrives.
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        self._rest += data
        if len(self._rest) + self._size > _LONGEST_EVENT:
            raise ValueError(f"an event is longer than {_LONGEST_EVENT} bytes")
        if b"\n" not in data and b"\r" not in data:
            return []
        text = bytes(self._rest)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = bytearray(rest)
        return [event for line in lines if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = False
        if not line:
            return self._dispatch()
        if line.startswith(b"data: "):  # the common case
            self._data.append(line[6:])
            self._size += len(line)
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace") or None
        elif name == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
            self.retry = int(value) / 1000
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        type_ = self._type
        data = self._data
        self._type = ""
        self._data = []
        self._size = 0
        # Set only now: an event that breaks off must be sent again.
        self.last_id = self._id
        if not data:
            return None
        return ServerSentEvent(type_ or "message", data[0] if len(data) == 1 else b"\n".join(data), self.last_id)
