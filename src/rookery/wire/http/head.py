"""The heads of requests and of answers."""

import functools
import http
import re
from collections.abc import Iterable, Sequence
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]

_BREAKS = re.compile(rb"[\r\n\0]").search
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}


class Head(list[tuple[bytes, bytes]]):
    """The headers of a request, which are looked up by name more than once: names in lower case, values stripped."""

    __slots__ = ("_unique", "judged", "names")

    def __init__(self, pairs: Headers) -> None:
        super().__init__(pairs)
        # For a look whether a header is there at all; of one that is given twice, this has only the last value.
        self.names = dict(pairs)
        self._unique = len(self.names) == len(pairs)
        # What the judge said of it, and of what it was sure then.
        self.judged: tuple[object, Any] | None = None

    def replaced(self, place: int, value: bytes) -> "Head":
        """The same, but for one value that nobody judges by."""
        pairs = list(self)
        pairs[place] = (pairs[place][0], value)
        made = Head(pairs)
        made.judged = self.judged
        return made

    @classmethod
    def of(cls, headers: Headers) -> "Head":
        return headers if isinstance(headers, cls) else cls([(name, value.strip()) for name, value in headers])

    def all(self, name: bytes) -> list[bytes]:
        """Every value that a header has."""
        if name not in self.names:
            return []
        return [self.names[name]] if self._unique else [value for key, value in self if key == name]

    def first(self, name: bytes) -> bytes | None:
        """The first value of a header."""
        return self.names.get(name) if self._unique else next((value for key, value in self if key == name), None)

    def only(self, name: bytes) -> bytes | None:
        """The value of a header that is given exactly once."""
        if self._unique:
            return self.names.get(name)
        found = self.all(name)
        return found[0] if len(found) == 1 else None


def answer_lines(status: int, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, int | None]:
    """The status line and the headers of an answer, and the length they announce."""
    length: int | None = None
    lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in headers:
        if _BREAKS(value) or _BREAKS(name) or b":" in name:
            raise RuntimeError(f"invalid header {name!r}")
        if name.lower() == b"content-length":
            length = int(value)
        lines += (name, b": ", value, b"\r\n")
    return b"".join(lines), length


@functools.lru_cache(64)
def usual_lines(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> tuple[bytes, int | None]:
    """The same for headers that come again and again."""
    return answer_lines(status, headers)
