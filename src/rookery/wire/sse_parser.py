"""Server-sent events as they come in, in pieces of any size."""

from dataclasses import dataclass

_LONGEST = 64 * 2**20


@dataclass(frozen=True)
class ServerSentEvent:
    type: str
    data: bytes
    id: str | None


class SseParser:
    """`retry` is what the server last asked for, in seconds."""

    def __init__(self) -> None:
        self.retry: float | None = None
        self.last_id: str | None = None
        self._rest = bytearray()
        self._type = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that are whole now. ValueError for one beyond all measure."""
        self._rest += data
        if len(self._rest) > _LONGEST:
            raise ValueError(f"an event is longer than {_LONGEST} bytes")
        if b"\n" not in data and b"\r" not in data:
            return []
        text = bytes(self._rest)
        # A lone CR at the very end may be the first half of CRLF.
        keep = b"\r" if text.endswith(b"\r") else b""
        whole = text[: len(text) - len(keep)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines, _, rest = whole.rpartition(b"\n")
        self._rest = bytearray(rest + keep)
        if not lines and not whole.startswith(b"\n"):
            return []
        return [made for line in lines.split(b"\n") if (made := self._line(line)) is not None]

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value) / 1000
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        type_, data = self._type, self._data
        self._type, self._data = "", []
        if not data:
            return None
        return ServerSentEvent(type_ or "message", b"\n".join(data), self.last_id)
