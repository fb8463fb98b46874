"""Make untrusted text safe to display.

`escape_invisible` escapes control and hidden characters for a terminal and returns one line. `remove_invisible` removes
them for a model and keeps the lines.
"""

import re

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
# Categories of control and format characters, of code points without a character, and of white space but for U+0020.
_INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
# Characters that look empty, although Unicode counts them as letters, marks or symbols.
_EMPTY = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")

# Whole escape sequences, so that no "[31m" is left of them: strings for the terminal, then commands, then the rest.
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile(r"\r+\n|\r|[\u0085\u2028\u2029]")
# Control characters except tab and line feed, format characters (zero width, direction, tags), variation selectors,
# letters that look empty, and surrogates.
_INVISIBLE_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def escape_invisible(text: str) -> str:
    """Return the text in one line, each invisible character as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    import unicodedata

    code = ord(char)
    is_variation = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF
    if char != " " and (unicodedata.category(char) in _INVISIBLE_CATEGORIES or char in _EMPTY or is_variation):
        return _ESCAPES.get(char) or f"\\u{{{code:x}}}"
    return char


def remove_invisible(text: str) -> str:
    """Return the text without control, format and hidden characters; a lone carriage return becomes a line end."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text) if "\x1b" in text or not text.isascii() else text
    return _INVISIBLE_CHARS.sub("", _LINE_ENDS.sub("\n", text))
