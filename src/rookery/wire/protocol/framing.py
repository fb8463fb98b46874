"""Takes messages out of what a program prints: one a line, or in Content-Length frames; with noise between them."""

from collections.abc import Callable
from typing import Literal

Framing = Literal["lines", "content-length"]

_LONGEST_LINE = 64 * 2**20
_LONGEST_HEAD = 65_536


class Incoming:
    """Fed with the bytes as they come. A ValueError says why nothing after them could be understood."""

    def __init__(self, framing: Framing, take: Callable[[bytes], None], note: Callable[[bytes], None]) -> None:
        """`take` gets what may be a message, `note` what is none for certain."""
        self._framed = framing == "content-length"
        self._take = take
        self._note = note
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        if not self._rest and not self._framed and data.endswith(b"\n"):
            for line in data.split(b"\n"):
                self._take_line(line.strip())
            return
        self._rest += data
        if self._framed:
            self._take_frames(self._rest)
        elif b"\n" in data:
            whole, _, left = bytes(self._rest).rpartition(b"\n")
            self._rest = bytearray(left)
            for line in whole.split(b"\n"):
                self._take_line(line.strip())
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError(f"a message of it is longer than {_LONGEST_LINE} bytes")

    def end(self) -> None:
        """Nothing more will come; what there is may be its last word."""
        self._take_line(bytes(self._rest).strip())

    def _take_line(self, line: bytes) -> None:
        if not line:
            return
        if line[:15].lower() == b"content-length:":
            raise ValueError('it answers in Content-Length frames; set framing = "content-length" for it')
        self._take(line.removeprefix(b"\xef\xbb\xbf"))

    def _take_frames(self, data: bytearray) -> None:
        """Take all whole frames off the front of `data`."""
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = bytes(data[:end])
            # Noise before the head ends with a line break of its own.
            lengths = [line for line in head.splitlines() if line.lower().startswith(b"content-length:")]
            number = lengths[-1].partition(b":")[2].strip() if lengths else b""
            begin = end + 4
            if not number.isdigit() or len(number) > len(str(_LONGEST_LINE)):
                self._note(head)
                del data[:begin]
                continue
            if len(data) < begin + int(number):
                return
            self._take(bytes(data[begin : begin + int(number)]))
            del data[: begin + int(number)]
        if data.lstrip().startswith(b"{") and b"\n" in data:
            raise ValueError('it answers in lines; take framing = "content-length" out of its definition')
        if len(data) > _LONGEST_HEAD:
            raise ValueError(f"{_LONGEST_HEAD} bytes of it are no Content-Length frame")


class Ear:
    """Hears a program's output as it comes; `failed` is told why nothing more can be understood, `ended` of its end."""

    def __init__(self, incoming: Incoming, failed: Callable[[str], None], ended: Callable[[], None]) -> None:
        self._incoming = incoming
        self._failed = failed
        self._ended = ended
        self._deaf = False

    def data(self, data: bytes) -> None:
        if not self._deaf:
            try:
                self._incoming.feed(data)
            except ValueError as error:
                self._give_up(error)

    def end(self) -> None:
        if self._deaf:
            return
        try:
            self._incoming.end()
        except ValueError as error:
            self._give_up(error)
        else:
            self._ended()

    def _give_up(self, error: ValueError) -> None:
        self._deaf = True
        self._failed(str(error))
