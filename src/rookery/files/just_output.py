"""What a recipe prints, in bounded memory: its head and its tail, both streams in the order of their lines."""

from rookery.system.buffers import Capture, Ring
from rookery.system.clean import clean

# A line longer than this is passed on in parts.
_LONGEST_LINE = 8192


class Printed:
    """A third of the room is for the head, since an error mostly stands at the end."""

    def __init__(self, limit: int) -> None:
        self._last = b""
        self._head = Capture(limit // 3)
        self._tail = Ring(limit - limit // 3)

    @property
    def cut(self) -> int:
        """How many bytes between head and tail were let go."""
        return self._tail.dropped

    @property
    def last_line(self) -> str:
        return _text(self._last).rstrip().rpartition("\n")[2]

    def write(self, data: bytes) -> None:
        room = max(self._head.limit - len(self._head.data), 0)
        self._head.write(data[:room])
        self._tail.write(data[room:])
        # Not looked into: there may be a lot of it, and few ask.
        self._last = data[-_LONGEST_LINE:] if not data.isspace() else self._last

    def text(self) -> str:
        head, tail = _text(bytes(self._head.data)), _text(bytes(self._tail))
        if not self.cut:
            return _text(bytes(self._head.data) + bytes(self._tail))
        return f"{head.rstrip()}\n[... {self.cut} bytes of output were left out here ...]\n{tail.lstrip()}"


class Lines:
    """One stream's way there: whole lines, so that two streams do not tear each other's."""

    def __init__(self, printed: Printed) -> None:
        self._printed = printed
        self._begun = bytearray()

    def data(self, data: bytes) -> None:
        self._begun += data
        whole = self._begun.rfind(b"\n") + 1
        if not whole and len(self._begun) > _LONGEST_LINE:
            whole = len(self._begun)
        if whole:
            self._printed.write(bytes(self._begun[:whole]))
            del self._begun[:whole]

    def end(self) -> None:
        if self._begun:
            self._printed.write(bytes(self._begun))
            self._begun.clear()


def _text(data: bytes) -> str:
    return clean(data.decode("utf-8", "replace"))
