"""Reading a file of a workspace: a range of lines and a cap on bytes, and what was cut is said."""

import os
from collections.abc import Iterator
from functools import partial

import msgspec

from rookery.files.kinds import HEAD, Kind, is_utf8, kind_of
from rookery.files.lines import Lines
from rookery.files.sandbox import Handle, Root
from rookery.system.errors import RookeryError
from rookery.system.lending import lend

# Read on the loop: a hop to a thread costs more than the reading.
_INLINE = 64 * 1024
_BLOCK = 256 * 1024
# How far into a file a line is looked for.
_FARTHEST = 4 * 2**30
# So much of a text in wide characters is held at once.
_WIDE = 4 * 2**20

TEXT_BYTES = 256 * 1024
DATA_BYTES = 4 * 2**20


class Content(msgspec.Struct, frozen=True):
    """What was read. `data` is that of images and other files that are no text; `cut` says what is not here and why."""

    path: str
    size: int
    media_type: str
    encoding: str | None = None
    text: str = ""
    data: bytes = b""
    first_line: int = 1
    last_line: int = 0
    cut: str = ""


async def read(
    root: Root, path: str, *, first_line: int = 1, last_line: int | None = None, max_bytes: int = TEXT_BYTES
) -> Content:
    """The file's lines from `first_line` to `last_line`, both included, or as many whole ones as `max_bytes` holds."""
    if first_line < 1 or (last_line is not None and last_line < first_line):
        raise RookeryError("invalid-input", "the range of lines is empty", "count lines from 1, the first one first")
    if not 1 <= max_bytes <= DATA_BYTES:
        raise RookeryError("invalid-input", f"max_bytes must be from 1 to {DATA_BYTES}")
    with root.open_file(path) as handle:
        plan = _Plan(handle, first_line, last_line, max_bytes)
        try:
            # A file that says it is empty may be an endless one of the kernel.
            if 0 < handle.found.st_size <= _INLINE:
                return plan.read_small() or plan.read()
            # The descriptor must outlive the thread that reads from it, also if nobody waits for it any more.
            plan.fd = os.dup(handle.fd)
        except OSError as error:
            raise RookeryError("file-unreadable", f"{handle.path} cannot be read: {error.strerror}") from error
    return await lend(plan.read_aside, partial(os.close, plan.fd))


class _Plan:
    def __init__(self, handle: Handle, first: int, last: int | None, limit: int) -> None:
        self.fd = handle.fd
        self._path, self._size = handle.path, handle.found.st_size
        self._first, self._last, self._limit = first, last, limit

    def read_aside(self) -> Content:
        try:
            return self.read()
        except OSError as error:
            raise RookeryError("file-unreadable", f"{self._path} cannot be read: {error.strerror}") from error

    def read_small(self) -> Content | None:
        """All of a file that is text in UTF-8, as most are; None if it is anything else, or has just grown."""
        data = os.pread(self.fd, self._size + 1, 0)
        if len(data) != self._size or self._size > self._limit or self._first > 1 or self._last is not None:
            return None
        kind = kind_of(data[:HEAD])
        if kind.encoding != "utf-8":
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        lines = text.count("\n") + (not text.endswith("\n"))
        return Content(self._path, self._size, kind.media_type, kind.encoding, text, b"", 1, lines)

    def read(self) -> Content:
        head = os.pread(self.fd, HEAD, 0)
        kind = kind_of(head)
        if kind.encoding is None:
            return self._data(kind)
        if kind.is_wide:
            return self._wide(kind)
        return self._text(kind)

    def _data(self, kind: Kind) -> Content:
        data = os.pread(self.fd, DATA_BYTES + 1, 0)
        if len(data) <= DATA_BYTES:
            return Content(self._path, self._size, kind.media_type, data=data, first_line=0)
        cut = f"it is no text, and larger than {DATA_BYTES} bytes: nothing of it is here"
        return Content(self._path, self._size, kind.media_type, first_line=0, cut=cut)

    def _wide(self, kind: Kind) -> Content:
        data = os.pread(self.fd, _WIDE, 0)
        text = data.decode(kind.encoding or "", "replace").encode()
        return self._lines(kind, iter([text]), looked_at=len(data))

    def _text(self, kind: Kind) -> Content:
        return self._lines(kind, _blocks(self.fd, min(_BLOCK, max(HEAD, self._size + 1))), looked_at=_FARTHEST)

    def _lines(self, kind: Kind, blocks: Iterator[bytes], *, looked_at: int) -> Content:
        found = Lines(self._first, self._last, self._limit)
        for block in blocks:
            if not found.take(block):
                break
        encoding = kind.encoding or ""
        if encoding == "utf-8" and not is_utf8(bytes(found.data)):
            encoding = "iso-8859-1"
        decoded = bytes(found.data).decode("utf-8" if kind.is_wide else encoding, "replace")
        cut = found.told(self._size)
        if not cut and not found.enough and self._size > looked_at:
            cut = f"only the first {looked_at} of its {self._size} bytes were looked at"
        if found.data:
            return Content(
                self._path, self._size, kind.media_type, encoding, decoded, b"", self._first, found.last_line, cut
            )
        if self._first > 1 and not cut:
            cut = f"the file ends before line {self._first}"
        return Content(self._path, self._size, kind.media_type, encoding, first_line=self._first, cut=cut)


def _blocks(fd: int, length: int) -> Iterator[bytes]:
    place = 0
    while place < _FARTHEST and (block := os.pread(fd, length, place)):
        yield block
        place += len(block)
