"""How the client knows where an answer ends: by its length, by a last chunk, or by the end of the connection."""

from starlette.types import Scope

NO_BODY = frozenset({204, 304})


class Framing:
    """One answer. `announced` is the length that its headers give; `length` is known if it came in one piece."""

    __slots__ = ("_bodiless", "_chunked", "_left", "line", "until_close")

    def __init__(self, scope: Scope, status: int, announced: int | None, length: int | None) -> None:
        self._bodiless = status in NO_BODY or scope["method"] == "HEAD"
        self._chunked = self.until_close = False
        self._left = announced
        self.line = b""
        if announced is not None or self._bodiless:
            return
        if length is not None:
            self._left = length
            self.line = b"content-length: %d\r\n" % length
        elif scope["http_version"] == "1.1":
            self._chunked = True
            self.line = b"transfer-encoding: chunked\r\n"
        else:
            self.until_close = True

    def framed(self, body: bytes, last: bool) -> bytes:
        if self._bodiless:
            return b""
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk + b"0\r\n\r\n" if last else chunk
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (last and self._left > 0):
                raise RuntimeError("the answer does not have the length it announced")
        return body
