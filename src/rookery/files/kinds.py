"""What a file is, told by its first bytes: text and its encoding, an image, or neither."""

import codecs
from dataclasses import dataclass

# As many bytes as a judgement is based on.
HEAD = 8192

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before the marks of UTF-16, with which these begin.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# What text does not have in it; tabs, line ends, form feeds and escapes are in many a file.
_ODD = bytes(set(range(32)) - set(b"\t\n\r\f\x1b\b"))


_MARKED = (b"RIFF", *(mark for mark, _ in (*_MARKS, *_IMAGES)))


@dataclass(frozen=True)
class Kind:
    """`encoding` is None for what is no text."""

    media_type: str
    encoding: str | None = None

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def is_wide(self) -> bool:
        """Whether a line's end is more than one byte."""
        return self.encoding in ("utf-16", "utf-32")


_UTF_8 = Kind("text/plain", "utf-8")


def kind_of(head: bytes) -> Kind:
    """The kind of a file that begins with `head`, which may end in the middle of a character."""
    if head.startswith(_MARKED):
        for mark, media_type in _IMAGES:
            if head.startswith(mark):
                return Kind(media_type)
        for mark, encoding in _MARKS:
            if head.startswith(mark):
                return Kind("text/plain", encoding)
        if head[8:12] == b"WEBP":
            return Kind("image/webp")
    if any(map(head.__contains__, _ODD)):
        return Kind("application/octet-stream")
    return _UTF_8 if head.isascii() or is_utf8(head) else Kind("text/plain", "iso-8859-1")


def is_utf8(data: bytes) -> bool:
    """Whether it is UTF-8, a character that is cut off at its end aside."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True
