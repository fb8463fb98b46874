"""A range of lines out of a stream of blocks, with a cap: pure, and never more than the cap is kept."""


class Lines:
    """The wanted lines out of blocks that come one after another; never more than the limit is kept."""

    def __init__(self, first: int, last: int | None, limit: int) -> None:
        self.data = bytearray()
        self._first, self._last, self._limit = first, last, limit
        self._line = 1
        self._full = self.enough = False

    @property
    def last_line(self) -> int:
        ended = self.data.count(b"\n")
        return self._first + ended - (1 if self.data.endswith(b"\n") else 0)

    def take(self, block: bytes) -> bool:
        """Whether more is wanted."""
        start = 0
        while self._line < self._first:
            end = block.find(b"\n", start)
            if end < 0:
                return True
            start, self._line = end + 1, self._line + 1
        # One byte more than the limit tells that there is more.
        self.data += block[start : start + self._limit + 1 - len(self.data)]
        if self._last is not None:
            self._cut_after(self._last - self._first + 1)
        if len(self.data) > self._limit:
            self._full = True
            del self.data[self._limit :]
            whole = self.data.rfind(b"\n") + 1
            del self.data[whole or _whole_characters(self.data) :]
        return not (self.enough or self._full)

    def _cut_after(self, lines: int) -> None:
        end = -1
        for _ in range(lines):
            end = self.data.find(b"\n", end + 1)
            if end < 0:
                return
        del self.data[end + 1 :]
        self.enough = True

    def told(self, size: int) -> str:
        if not self._full:
            return ""
        if self.data.endswith(b"\n"):
            return f"cut after line {self.last_line} ({size} bytes in all): go on with first_line {self.last_line + 1}"
        return f"line {self._first} is longer than max_bytes, and cut after {len(self.data)} ({size} bytes in all)"


def _whole_characters(data: bytearray) -> int:
    """How many bytes there are before a last character that may be cut off."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] >= 0xC0:
            return len(data) - back or len(data)
        if data[-back] < 0x80:
            break
    return len(data)
