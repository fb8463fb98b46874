"""What a child writes, in bounded memory: its first bytes or its last."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class Sink(Protocol):
    """Where a child's output goes as it comes."""

    def write(self, data: bytes) -> None: ...


@dataclass
class Capture:
    """The first `limit` bytes of an output; `cut` counts the rest."""

    limit: int = 10_000_000
    data: bytearray = field(default_factory=bytearray)
    cut: int = 0

    def write(self, data: bytes) -> None:
        room = max(self.limit - len(self.data), 0)
        self.data += data[:room]
        self.cut += max(len(data) - room, 0)


class Ring:
    """Keeps about the last `limit` bytes and counts what it let go."""

    def __init__(self, limit: int = 65_536) -> None:
        self.limit = limit
        self.dropped = 0
        self._parts: deque[bytes] = deque()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        while self._size > self.limit:
            first = self._parts.popleft()
            extra = self._size - self.limit
            if len(first) > extra:
                self._parts.appendleft(first[extra:])
                self._size -= extra
                self.dropped += extra
            else:
                self._size -= len(first)
                self.dropped += len(first)

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def text(self) -> str:
        """The bytes as text, with a first line that says so if some were let go."""
        found = bytes(self).decode("utf-8", "replace")
        return f"[{self.dropped} bytes before this were dropped]\n{found}" if self.dropped else found
