"""Text of strangers on a terminal: what would move the cursor, turn the text round or hide is written out."""

_SEEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
# Control and format characters, what is no character, and white space that is no blank.
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
# Empty to look at, although they count as letters or marks.
_EMPTY = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")


def visible(text: str) -> str:
    """The text in one line, each unseen character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    import unicodedata

    number = ord(char)
    variation = 0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF
    if char != " " and (unicodedata.category(char) in _UNSEEN or char in _EMPTY or variation):
        return _SEEN.get(char) or f"\\u{{{number:x}}}"
    return char
