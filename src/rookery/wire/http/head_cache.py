"""Recognition of a request head that a client sends repeatedly.

Such a head is compared by its bytes and not parsed a second time. Its requests may take a fast path, which serves them
without a task.
"""

import re
from typing import Any, Protocol, runtime_checkable

from starlette.types import ASGIApp, Scope

from rookery.wire.http.exchange import Exchange
from rookery.wire.http.head import RequestHead

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_END = b"\r\n\r\n"
# Headers that change how the request or the connection is handled.
_UNSUPPORTED_HEADERS = (b"expect", b"transfer-encoding", b"upgrade", b"connection")


class FastPath(Protocol):
    """Serves requests with the same head from the same caller without a task, where possible."""

    @property
    def is_expired(self) -> bool:
        """Whether it can serve no more requests. The app may have a new one."""
        ...

    def try_serve(self, body: bytes, exchange: Exchange) -> bool:
        """Serve a request and return True, or return False without any effect."""
        ...


@runtime_checkable
class FastPathApp(Protocol):
    """An app that has fast paths."""

    def find_fast_path(self, scope: Scope) -> FastPath | None:
        """Return a fast path for requests like this one, which the app has served before."""
        ...


class RepeatedHead:
    """The head of a POST that is expected again, with no difference but the length of the body."""

    __slots__ = ("_fast_path", "_length", "_length_index", "_prefix", "_principal", "_scope", "_suffix", "head", "path")

    def __init__(self, before: bytes, after: bytes, length: bytes, scope: Scope, head: RequestHead) -> None:
        self._prefix = before
        self._suffix = after
        self._length: bytes = length
        self._scope = scope
        self.head = head
        self.path: str = scope["path"]
        self._length_index = head.index((b"content-length", length))
        # Looked up when the head arrives for the second time, and again for another caller.
        self._fast_path: FastPath | None = None
        self._principal: object = None

    def match_body(self, data: bytes) -> bytes | None:
        """Return the body if `data` is exactly one whole request with this head, else None."""
        if not data.startswith(self._prefix):
            return None
        begin = len(self._prefix)
        end = data.find(b"\r", begin)
        length = data[begin:end]
        if not length.isdigit() or len(length) > 9 or not data.startswith(self._suffix, end):
            return None
        body = data[end + len(self._suffix) :]
        if len(body) != int(length):
            return None
        if length != self._length:
            self._length = length
            self.head = self.head.with_value(self._length_index, length)
        return body

    def get_fast_path(self, app: ASGIApp, state: dict[str, Any]) -> FastPath | None:
        """Return the fast path for the current caller."""
        if self._principal is not state["principal"] or (self._fast_path is not None and self._fast_path.is_expired):
            self._principal = state["principal"]
            self._fast_path = app.find_fast_path(self.make_scope(state)) if isinstance(app, FastPathApp) else None
        return self._fast_path

    def make_scope(self, state: dict[str, Any]) -> Scope:
        """Return the scope of a new request with this head."""
        return {**self._scope, "headers": self.head, "state": state}


def make_repeated_head(data: bytes, scope: Scope, size: int) -> RepeatedHead | None:
    """Return a recognizer for the head of `data`, which was parsed to `scope`, or None if it is not suitable.

    `data` has to be one whole request. `size` is the number of bytes since the request began: if it is larger, `data`
    is only the end of a request, whatever it looks like.
    """
    head: RequestHead = scope["headers"]
    if size != len(data):
        return None
    if scope["method"] != "POST" or scope["http_version"] != "1.1" or b"content-type" not in head.names:
        return None
    if any(name in head.names for name in _UNSUPPORTED_HEADERS):
        return None
    end = data.find(_END) + len(_END)
    lengths = list(_LENGTH.finditer(data, 0, end))
    if len(lengths) != 1 or (b"content-length", lengths[0][1]) not in head:
        return None
    begin, after = lengths[0].span(1)
    if len(data) != end + int(lengths[0][1]):
        return None
    template = {key: value for key, value in scope.items() if key not in ("state", "extensions")}
    return RepeatedHead(data[:begin], data[after:end], lengths[0][1], template, head)
