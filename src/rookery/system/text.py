"""Text of strangers for a model to read: lines stay, and what steers a terminal, hides or turns text round goes."""

import re

# Escape sequences go whole, so that no "[31m" is left of them: strings for the terminal, then commands, then the rest.
_SEQUENCES = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_RETURNS = re.compile(r"\r+\n|\r|[\u0085\u2028\u2029]")
# Control characters but for tab and line feed, format characters (zero width, direction, tags), variation selectors,
# letters that look empty, and halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def clean(text: str) -> str:
    """The text without control, format and hidden characters; a lone carriage return ends a line."""
    if text.isascii() and text.isprintable():
        return text
    text = _SEQUENCES.sub("", text) if "\x1b" in text or not text.isascii() else text
    return _UNSEEN.sub("", _RETURNS.sub("\n", text))
