"""A head that a client sends again and again is known by its bytes, and is not parsed a second time."""

import re
from typing import Any, Protocol, runtime_checkable

from starlette.types import ASGIApp, Scope

from rookery.wire.exchange import Exchange
from rookery.wire.head import Head

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_END = b"\r\n\r\n"
# What these ask for is more than to be read.
_SPECIAL = (b"expect", b"transfer-encoding", b"upgrade", b"connection")


class Lane(Protocol):
    """Serves requests with the same head from the same caller without a task, where it can."""

    @property
    def lapsed(self) -> bool:
        """Whether it never will again; there may be another."""
        ...

    def take(self, body: bytes, exchange: Exchange) -> bool:
        """Whether it does; nothing has happened if it does not."""
        ...


@runtime_checkable
class Lanes(Protocol):
    """An app that has some."""

    def lane(self, scope: Scope) -> Lane | None:
        """For requests like this one, of which the app has served one already."""
        ...


class Repeated:
    """The head of a POST, of which nothing but the length of the body may be another the next time."""

    __slots__ = ("_after", "_before", "_lane", "_length", "_place", "_principal", "_scope", "head", "path")

    def __init__(self, before: bytes, after: bytes, length: bytes, scope: Scope, head: Head) -> None:
        self._before, self._after = before, after
        self._length: bytes = length
        self._scope, self.head = scope, head
        self.path: str = scope["path"]
        self._place = head.index((b"content-length", length))
        # Asked for when the head comes for the second time, and for another caller.
        self._lane: Lane | None = None
        self._principal: object = None

    def body_of(self, data: bytes) -> bytes | None:
        """The body, if this is a whole request with that head and nothing else."""
        if not data.startswith(self._before):
            return None
        begin = len(self._before)
        end = data.find(b"\r", begin)
        length = data[begin:end]
        if not length.isdigit() or len(length) > 9 or not data.startswith(self._after, end):
            return None
        body = data[end + len(self._after) :]
        if len(body) != int(length):
            return None
        if length != self._length:
            self._length = length
            self.head = self.head.replaced(self._place, length)
        return body

    def lane(self, app: ASGIApp, state: dict[str, Any]) -> Lane | None:
        """For whoever calls now."""
        if self._principal is not state["principal"] or (self._lane is not None and self._lane.lapsed):
            self._principal = state["principal"]
            self._lane = app.lane(self.scope(state)) if isinstance(app, Lanes) else None
        return self._lane

    def scope(self, state: dict[str, Any]) -> Scope:
        """That of a new request."""
        return {**self._scope, "headers": self.head, "state": state}


def learned(data: bytes, scope: Scope, size: int) -> Repeated | None:
    """To know it again: `data` was one whole request, and this was made of it. None for what is too special.

    `size` is how much came since the request began: if that is more, `data` is the end of one, whatever it looks like.
    """
    head: Head = scope["headers"]
    if size != len(data):
        return None
    if scope["method"] != "POST" or scope["http_version"] != "1.1" or b"content-type" not in head.names:
        return None
    if any(name in head.names for name in _SPECIAL):
        return None
    end = data.find(_END) + len(_END)
    lengths = list(_LENGTH.finditer(data, 0, end))
    if len(lengths) != 1 or (b"content-length", lengths[0][1]) not in head:
        return None
    begin, after = lengths[0].span(1)
    if len(data) != end + int(lengths[0][1]):
        return None
    kept = {key: value for key, value in scope.items() if key not in ("state", "extensions")}
    return Repeated(data[:begin], data[after:end], lengths[0][1], kept, head)
