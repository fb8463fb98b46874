"""Heads of requests and responses, and the ASGI scope that is made from a request's head."""

import functools
import http
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

Headers = Sequence[tuple[bytes, bytes]]

_find_line_break = re.compile(rb"[\r\n\0]").search
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}

_ASGI = {"version": "3.0", "spec_version": "2.3"}


class RequestHead(list[tuple[bytes, bytes]]):
    """The headers of a request, indexed for repeated look-ups. Names are in lower case, values are stripped."""

    __slots__ = ("_unique", "auth_result", "names")

    def __init__(self, pairs: Headers) -> None:
        super().__init__(pairs)
        # For a check whether a header is present. Of a header that occurs twice, it has only the last value.
        self.names = dict(pairs)
        self._unique = len(self.names) == len(pairs)
        # The version of the tokens that authenticated the request, and the result.
        self.auth_result: tuple[object, Any] | None = None

    def with_value(self, index: int, value: bytes) -> "RequestHead":
        """Return a copy with another value for one header that does not affect authentication."""
        pairs = list(self)
        pairs[index] = (pairs[index][0], value)
        head = RequestHead(pairs)
        head.auth_result = self.auth_result
        return head

    @classmethod
    def from_headers(cls, headers: Headers) -> "RequestHead":
        """Return the headers as a RequestHead."""
        return headers if isinstance(headers, cls) else cls([(name, value.strip()) for name, value in headers])

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of a header."""
        if name not in self.names:
            return []
        return [self.names[name]] if self._unique else [value for key, value in self if key == name]

    def first(self, name: bytes) -> bytes | None:
        """Return the first value of a header."""
        return self.names.get(name) if self._unique else next((value for key, value in self if key == name), None)

    def only(self, name: bytes) -> bytes | None:
        """Return the value of a header that occurs exactly once, else None."""
        if self._unique:
            return self.names.get(name)
        values = self.all(name)
        return values[0] if len(values) == 1 else None


def encode_response_head(status: int, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, int | None]:
    """Return the status line and headers of a response as bytes, and its Content-Length if there is one."""
    length: int | None = None
    lines = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in headers:
        if _find_line_break(value) or _find_line_break(name) or b":" in name:
            raise RuntimeError(f"invalid header {name!r}")
        if name.lower() == b"content-length":
            length = int(value)
        lines += (name, b": ", value, b"\r\n")
    return b"".join(lines), length


@functools.lru_cache(64)
def encode_response_head_cached(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> tuple[bytes, int | None]:
    """Do the same as `encode_response_head`, with a cache for headers that repeat."""
    return encode_response_head(status, headers)


def make_scope(
    method: str, version: str, path: str, raw_path: bytes, query: bytes, head: RequestHead, state: dict[str, Any]
) -> Scope:
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "method": method,
        "scheme": "http",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": head,
        "client": None,
        "server": None,
        "state": state,
    }
