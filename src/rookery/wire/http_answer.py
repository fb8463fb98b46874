"""An HTTP answer while it comes in."""

import asyncio
from types import TracebackType
from typing import Protocol, Self

_BODY_BYTES = 64 * 2**20
# So much of a body may wait for whoever reads it before the server is not listened to.
_UNREAD_BYTES = 262_144
# So much is listened to for the end of an answer of which nobody wants the rest.
_LEFT_BYTES = 65_536


class HttpBroken(ConnectionError):
    """The connection ended before the answer did, or what came on it is no HTTP."""


class Source(Protocol):
    """The connection, as an answer sees it."""

    def listen(self, wanted: bool) -> None: ...

    def linger(self) -> None: ...

    def abort(self) -> None: ...


class Answer:
    """Given from its head on; the body comes as it is read. `with` closes it, unless it was left."""

    __slots__ = ("_body", "_left", "_room", "_source", "_woken", "error", "headers", "status", "whole")

    def __init__(self, source: Source) -> None:
        self.status = 0
        # The names are in lower case.
        self.headers: dict[bytes, bytes] = {}
        # Nothing more will come, for the reason `error` where there is one.
        self.whole = False
        self.error: Exception | None = None
        self._source = source
        # What was not read yet: mostly one piece, which is not copied.
        self._body: bytes | bytearray = b""
        self._room = _UNREAD_BYTES
        self._left = False
        self._woken: asyncio.Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def header(self, name: bytes) -> str | None:
        found = self.headers.get(name)
        return None if found is None else found.strip().decode("utf-8", "replace")

    @property
    def kind(self) -> str:
        """The media type without its parameters."""
        return (self.header(b"content-type") or "").partition(";")[0].rstrip().lower()

    async def read(self) -> bytes:
        """The whole body. Raises ValueError if it is beyond all measure, OSError if it breaks off."""
        self._room = _BODY_BYTES
        while not self.whole and len(self._body) <= _BODY_BYTES:
            await self._more()
        if len(self._body) > _BODY_BYTES:
            raise ValueError(f"the answer is larger than {_BODY_BYTES} bytes")
        if self.error is not None:
            raise self.error
        return bytes(self._body)

    async def next(self) -> bytes:
        """The next piece of the body, empty after the last one. Raises OSError if it breaks off."""
        while not self._body:
            if self.error is not None:
                raise self.error
            if self.whole:
                return b""
            await self._more()
        found, self._body = bytes(self._body), b""
        return found

    async def _more(self) -> None:
        self._woken = asyncio.get_running_loop().create_future()
        self._source.listen(True)
        await self._woken

    def close(self) -> None:
        """The rest is not wanted. Only the end of the connection tells the server so."""
        if not self.whole and not self._left:
            self._source.abort()

    def leave(self) -> None:
        """What was wanted is there, and the end must be near: if it comes soon, the connection can be kept."""
        if not self.whole and not self._left:
            self._left, self._body, self._room = True, b"", _LEFT_BYTES
            self._source.linger()

    # ---- what the connection does

    def take(self, data: bytes) -> None:
        if self._left:
            self._room -= len(data)
            if self._room < 0:
                self._source.abort()
            return
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        if len(self._body) > self._room:
            self._source.listen(False)

    def end(self, error: Exception | None = None) -> None:
        self.whole, self.error = True, error
        self.wake()

    def wake(self) -> None:
        if self._woken is not None:
            if not self._woken.done():
                self._woken.set_result(None)
            self._woken = None
