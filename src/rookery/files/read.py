"""Read a range of lines of a file of a workspace, up to a limit of bytes.

The first bytes of a file show whether it is text, an image or other data, and its encoding. The result says what was
cut off and why.
"""

import codecs
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from rookery.files.entries import display_path
from rookery.files.sandbox import Handle, SandboxRoot
from rookery.system.errors import RookeryError
from rookery.system.threads import run_and_close

# How many bytes the detection of the kind uses.
HEAD_BYTES = 8192

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before the marks of UTF-16, which are prefixes of these.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# Bytes that text does not contain; tabs, line ends, form feeds, backspaces and escapes are common in text.
_BINARY_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\x1b\b"))


_SIGNATURES = (b"RIFF", *(mark for mark, _ in (*_BYTE_ORDER_MARKS, *_IMAGE_SIGNATURES)))

# Files up to this size are read on the loop: switching to a thread costs more than reading.
_MAX_INLINE_BYTES = 64 * 1024
_BLOCK_BYTES = 256 * 1024
# How far into a file lines are searched for.
_MAX_OFFSET = 4 * 2**30
# How much of a text in wide characters is read.
_MAX_WIDE_BYTES = 4 * 2**20
DEFAULT_TEXT_BYTES = 256 * 1024
MAX_READ_BYTES = 4 * 2**20


@dataclass(frozen=True)
class FileKind:
    """The kind of a file; `encoding` is None if it is not text."""

    media_type: str
    encoding: str | None = None

    @property
    def is_wide(self) -> bool:
        """Whether a line end is more than one byte."""
        return self.encoding in ("utf-16", "utf-32")


_UTF_8 = FileKind("text/plain", "utf-8")


def detect_kind(head: bytes) -> FileKind:
    """Return the kind of a file that begins with `head`, which may end in the middle of a character."""
    if head.startswith(_SIGNATURES):
        for mark, media_type in _IMAGE_SIGNATURES:
            if head.startswith(mark):
                return FileKind(media_type)
        for mark, encoding in _BYTE_ORDER_MARKS:
            if head.startswith(mark):
                return FileKind("text/plain", encoding)
        if head[8:12] == b"WEBP":
            return FileKind("image/webp")
    if any(map(head.__contains__, _BINARY_BYTES)):
        return FileKind("application/octet-stream")
    return _UTF_8 if head.isascii() or is_utf8(head) else FileKind("text/plain", "iso-8859-1")


def is_utf8(data: bytes) -> bool:
    """Return whether data is UTF-8, apart from an incomplete character at its end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


class LineRange:
    """Collects the wanted lines from consecutive blocks; never keeps more than the limit."""

    def __init__(self, first: int, last: int | None, limit: int) -> None:
        self.data = bytearray()
        self._first = first
        self._last = last
        self._limit = limit
        self._line = 1
        self._full = self.is_complete = False

    @property
    def last_line(self) -> int:
        line_ends = self.data.count(b"\n")
        return self._first + line_ends - (1 if self.data.endswith(b"\n") else 0)

    def add(self, block: bytes) -> bool:
        """Add a block; return whether more is wanted."""
        start = 0
        while self._line < self._first:
            end = block.find(b"\n", start)
            if end < 0:
                return True
            start = end + 1
            self._line += 1
        # One byte more than the limit shows that there is more.
        self.data += block[start : start + self._limit + 1 - len(self.data)]
        if self._last is not None:
            self._cut_after(self._last - self._first + 1)
        if len(self.data) > self._limit:
            self._full = True
            del self.data[self._limit :]
            complete = self.data.rfind(b"\n") + 1
            del self.data[complete or _count_whole_characters(self.data) :]
        return not (self.is_complete or self._full)

    def _cut_after(self, lines: int) -> None:
        end = -1
        for _ in range(lines):
            end = self.data.find(b"\n", end + 1)
            if end < 0:
                return
        del self.data[end + 1 :]
        self.is_complete = True

    def describe_cut(self, size: int) -> str:
        """Return what was cut off, for the caller; empty if nothing was."""
        if not self._full:
            return ""
        if self.data.endswith(b"\n"):
            return (
                f"cut after line {self.last_line} (the file has {size} bytes): "
                f"continue with first_line {self.last_line + 1}"
            )
        return (
            f"line {self._first} is longer than max_bytes; cut after {len(self.data)} bytes (the file has {size} bytes)"
        )


def _count_whole_characters(data: bytearray) -> int:
    """Return the number of bytes before a last character that may be incomplete."""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] >= 0xC0:
            return len(data) - back or len(data)
        if data[-back] < 0x80:
            break
    return len(data)


class FileContent(msgspec.Struct, frozen=True):
    """The result of a read. `data` and `uri` are for images and other non-text files.

    `cut` says what is missing and why.
    """

    path: str
    size: int
    media_type: str
    encoding: str | None = None
    text: str = ""
    data: bytes = b""
    first_line: int = 1
    last_line: int = 0
    cut: str = ""
    uri: str = ""


async def read_content(
    root: SandboxRoot,
    path: str,
    *,
    first_line: int = 1,
    last_line: int | None = None,
    max_bytes: int = DEFAULT_TEXT_BYTES,
) -> FileContent:
    """Return the lines from `first_line` to `last_line` inclusive, or as many whole lines as `max_bytes` holds."""
    if first_line < 1 or (last_line is not None and last_line < first_line):
        raise RookeryError(
            "invalid-input", "the range of lines is empty", "use first_line >= 1 and last_line >= first_line"
        )
    if not 1 <= max_bytes <= MAX_READ_BYTES:
        raise RookeryError("invalid-input", f"max_bytes must be from 1 to {MAX_READ_BYTES}")
    with root.open_file(path) as handle:
        reader = _FileReader(root, handle, first_line, last_line, max_bytes)
        try:
            # A file of size 0 may be an endless one of the kernel.
            if 0 < handle.stat_result.st_size <= _MAX_INLINE_BYTES:
                return reader.read_small() or reader.read()
            # The descriptor must stay open as long as the thread reads from it, also if the caller is cancelled.
            reader.fd = os.dup(handle.fd)
        except OSError as error:
            raise RookeryError("file-unreadable", f"{reader.path} cannot be read: {error.strerror}") from error
    return await run_and_close(reader.read_in_thread, partial(os.close, reader.fd))


class _FileReader:
    def __init__(self, root: SandboxRoot, handle: Handle, first: int, last: int | None, limit: int) -> None:
        self.fd = handle.fd
        self.path = display_path(handle.path)
        self._size = handle.stat_result.st_size
        self._root = root.path
        self._names = handle.names
        self._first = first
        self._last = last
        self._limit = limit

    def read_in_thread(self) -> FileContent:
        """Call `read`; raise RookeryError if the file cannot be read. Runs in a thread."""
        try:
            return self.read()
        except OSError as error:
            raise RookeryError("file-unreadable", f"{self.path} cannot be read: {error.strerror}") from error

    def read_small(self) -> FileContent | None:
        """Read a whole UTF-8 file, as most are; None if it is anything else, or has just grown."""
        data = os.pread(self.fd, self._size + 1, 0)
        if len(data) != self._size or self._size > self._limit or self._first > 1 or self._last is not None:
            return None
        kind = detect_kind(data[:HEAD_BYTES])
        if kind.encoding != "utf-8":
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        lines = text.count("\n") + (not text.endswith("\n"))
        return FileContent(self.path, self._size, kind.media_type, kind.encoding, text, b"", 1, lines)

    def read(self) -> FileContent:
        head = os.pread(self.fd, HEAD_BYTES, 0)
        kind = detect_kind(head)
        if kind.encoding is None:
            return self._read_data(kind)
        if kind.is_wide:
            return self._read_wide(kind)
        return self._read_text(kind)

    def _read_data(self, kind: FileKind) -> FileContent:
        data = os.pread(self.fd, MAX_READ_BYTES + 1, 0)
        if len(data) <= MAX_READ_BYTES:
            uri = self._root.joinpath(*self._names).as_uri()
            return FileContent(self.path, self._size, kind.media_type, data=data, first_line=0, uri=uri)
        cut = f"the file is not text and is larger than {MAX_READ_BYTES} bytes: its content is not included"
        return FileContent(self.path, self._size, kind.media_type, first_line=0, cut=cut)

    def _read_wide(self, kind: FileKind) -> FileContent:
        data = os.pread(self.fd, _MAX_WIDE_BYTES, 0)
        text = data.decode(kind.encoding or "", "replace").encode()
        return self._read_lines(kind, iter([text]), searched_bytes=len(data))

    def _read_text(self, kind: FileKind) -> FileContent:
        return self._read_lines(
            kind, _read_blocks(self.fd, min(_BLOCK_BYTES, max(HEAD_BYTES, self._size + 1))), searched_bytes=_MAX_OFFSET
        )

    def _read_lines(self, kind: FileKind, blocks: Iterator[bytes], *, searched_bytes: int) -> FileContent:
        lines = LineRange(self._first, self._last, self._limit)
        for block in blocks:
            if not lines.add(block):
                break
        encoding = kind.encoding or ""
        if encoding == "utf-8" and not is_utf8(bytes(lines.data)):
            encoding = "iso-8859-1"
        decoded = bytes(lines.data).decode("utf-8" if kind.is_wide else encoding, "replace")
        cut = lines.describe_cut(self._size)
        if not cut and not lines.is_complete and self._size > searched_bytes:
            cut = f"only the first {searched_bytes} of {self._size} bytes were read"
        if lines.data:
            return FileContent(
                self.path, self._size, kind.media_type, encoding, decoded, b"", self._first, lines.last_line, cut
            )
        if self._first > 1 and not cut:
            cut = f"the file ends before line {self._first}"
        return FileContent(self.path, self._size, kind.media_type, encoding, first_line=self._first, cut=cut)


def _read_blocks(fd: int, length: int) -> Iterator[bytes]:
    offset = 0
    while offset < _MAX_OFFSET and (block := os.pread(fd, length, offset)):
        yield block
        offset += len(block)
