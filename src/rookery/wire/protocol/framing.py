"""Framing of messages on a byte stream: one per line, or in Content-Length frames.

The output of a program may have noise between its messages.
"""

from collections.abc import Callable, Iterator
from typing import Literal

Framing = Literal["lines", "content-length"]

_LONGEST_LINE = 64 * 2**20
_LONGEST_HEAD = 65_536


class MessageDecoder:
    """Splits incoming bytes into messages. Raises ValueError when the rest of the stream cannot be decoded."""

    def __init__(
        self, framing: Framing, on_message: Callable[[bytes], None], on_noise: Callable[[bytes], None]
    ) -> None:
        """Pass data that may be a message to `on_message`, and data that certainly is none to `on_noise`."""
        self._uses_frames = framing == "content-length"
        self._on_message = on_message
        self._on_noise = on_noise
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        if not self._rest and not self._uses_frames and data.endswith(b"\n"):
            for line in data.split(b"\n"):
                self._take_line(line.strip())
            return
        self._rest += data
        if self._uses_frames:
            self._take_frames(self._rest)
        elif b"\n" in data:
            complete, _, rest = bytes(self._rest).rpartition(b"\n")
            self._rest = bytearray(rest)
            for line in complete.split(b"\n"):
                self._take_line(line.strip())
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError(f"a message is longer than {_LONGEST_LINE} bytes")

    def end(self) -> None:
        """Handle the end of the stream: pass on the rest, which may be a last message without a line break."""
        if self._uses_frames and bytes(self._rest).lstrip()[:15].lower() == b"content-length:":
            raise ValueError("the stream ended in the middle of a Content-Length frame")
        self._take_line(bytes(self._rest).strip())

    def _take_line(self, line: bytes) -> None:
        if not line:
            return
        if line[:15].lower() == b"content-length:":
            raise ValueError('the server sends Content-Length frames; set framing = "content-length" in its definition')
        self._on_message(line.removeprefix(b"\xef\xbb\xbf"))

    def _take_frames(self, data: bytearray) -> None:
        """Remove all complete frames from the front of `data` and pass them on."""
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = bytes(data[:end])
            # Noise before the head ends with a line break of its own.
            lengths = [line for line in head.splitlines() if line.lower().startswith(b"content-length:")]
            number = lengths[-1].partition(b":")[2].strip() if lengths else b""
            begin = end + 4
            if not number.isdigit() or len(number) > len(str(_LONGEST_LINE)):
                self._on_noise(head)
                del data[:begin]
                continue
            if len(data) < begin + int(number):
                return
            self._on_message(bytes(data[begin : begin + int(number)]))
            del data[: begin + int(number)]
        if data.lstrip().startswith(b"{") and b"\n" in data:
            raise ValueError('the server sends lines; remove framing = "content-length" from its definition')
        if len(data) > _LONGEST_HEAD:
            raise ValueError(f"no Content-Length frame in {_LONGEST_HEAD} bytes of output")


class MessageReader:
    """Reads the output of a program through a decoder.

    `on_failed` is called with the reason when nothing more can be decoded, `on_ended` at the end of the output.
    """

    def __init__(self, decoder: MessageDecoder, on_failed: Callable[[str], None], on_ended: Callable[[], None]) -> None:
        self._decoder = decoder
        self._on_failed = on_failed
        self._on_ended = on_ended
        self._stopped = False

    def data(self, data: bytes) -> None:
        if not self._stopped:
            try:
                self._decoder.feed(data)
            except ValueError as error:
                self._fail(error)

    def end(self) -> None:
        if self._stopped:
            return
        try:
            self._decoder.end()
        except ValueError as error:
            self._fail(error)
        else:
            self._on_ended()

    def _fail(self, error: ValueError) -> None:
        self._stopped = True
        self._on_failed(str(error))


class LineSplitter:
    """Splits incoming bytes into lines without line ends. A line over the limit is discarded and yields None once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """Yield the lines that are complete now, except empty ones."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            yield from self._add(part)
            if self._rest and not self._skipping:
                yield bytes(self._rest.removesuffix(b"\r"))
            self._rest.clear()
            self._skipping = False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[None]:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > self._limit:
            self._rest.clear()
            self._skipping = True
            yield None


def join_lines(message: bytes) -> bytes:
    """Return the message on one line. JSON has no raw line break inside a string, so spaces can replace them."""
    # `find` is faster than `in`, which first checks whether its operand is an integer.
    broken = message.find(b"\n") >= 0 or message.find(b"\r") >= 0
    return message.replace(b"\n", b" ").replace(b"\r", b" ") if broken else message
