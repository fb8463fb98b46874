"""Characters that a reader does not see or mistakes for others: where they are, and the text without them."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple


class Oddity(NamedTuple):
    """A suspicious use of characters: what it is, and where in the text."""

    kind: str
    start: int
    end: int


# Everything that may need a closer look: a definition without any of these is done with one search.
_ODD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_TAGS = re.compile("[\U000e0000-\U000e007f]")
# The only sequences of tag characters in general use: the flags of England, Scotland and Wales.
_FLAG = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|"
    "\U000e0077\U000e006c\U000e0073)\U000e007f"
)
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_SURROGATES = re.compile("[\ud800-\udfff]+")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MARKS = re.compile("[\u0300-\u036f\u0489\u20d0-\u20ff]{3,}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_TERMINAL = re.compile("\x1b\\[[0-9;?]*[a-zA-Z]|\x1b\\][^\x07\x1b]*\x07")
_PIECE = re.compile(".{1,500}[\u0300-\u036f]{0,2}", re.DOTALL)

# Letters that look like Latin ones and that compatibility decomposition does not map.
_LOOKALIKES = dict(
    zip(
        "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0458\u0455\u0501\u051b\u051d\u04bb\u0475"
        "\u043a\u043c\u0442\u043d\u0432\u0433\u043f\u0438\u044c\u0457\u04cf\u0410\u0412\u0415\u041a"
        "\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405\u0404\u03b1\u03b5\u03b9"
        "\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03b7\u03b3\u03c9\u03ba\u03c3\u03bc\u0391\u0392\u0395"
        "\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0561\u0581\u0570\u0578"
        "\u057d\u0585\u0575\u0566\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b"
        "\u029f\u1d0d\u0274\u1d0f\u1d18\u0280\ua731\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22\u0251\u0261"
        "\u0131\u0269\u026f\u028b\u0142\u00f8\u0111\u0127\u0167\u0180\u0268\u0272",
        "aeopcxyijsdqwhvkmtnbrnubilABEKMHOPCTXYIJSEaeivoptuxnywkouABEZHIKMNOPTYXwghnuoyqabcdefghijk"
        "lmnoprstuvwyzagiiwvlodhtbin",
        strict=True,
    )
)
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


def find_oddities(text: str) -> list[Oddity]:
    """Return the suspicious uses of characters in a text."""
    if text.isascii() and text.isprintable():
        return []
    return [*_find_hidden(text), *_find_marks(text), *_find_mixed(text)]


def _find_hidden(text: str) -> Iterator[Oddity]:
    flags = (
        {position for match in _FLAG.finditer(text) for position in range(*match.span())}
        if "\U0001f3f4" in text
        else ()
    )
    # Both are of the whole text, which may have an invisible character beside each letter.
    right_to_left = _RIGHT_TO_LEFT.search(text) is not None
    balanced = right_to_left and _is_balanced(text)
    for match in _ODD.finditer(text):
        start = match.start()
        end = match.end()
        run = match.group()
        if start in flags:
            continue
        if _CONTROL.search(run):
            yield Oddity("control characters", start, end)
        elif _TAGS.search(run):
            yield Oddity("tag characters", start, end)
        elif _BIDI.search(run):
            if not balanced:
                yield Oddity("bidirectional controls", start, end)
        elif (selectors := len(_SELECTORS.findall(run))) > 1 or (
            selectors and run[-1] >= "\U000e0100" and not _is_ideograph(text, start)
        ):
            yield Oddity("variation selectors", start, end)
        elif _SURROGATES.fullmatch(run):
            yield Oddity("lone surrogates", start, end)
        elif not selectors and not _is_at_home(text, start, end, right_to_left):
            yield Oddity("invisible characters", start, end)


def _is_balanced(text: str) -> bool:
    """Return whether the bidirectional controls of a text are isolates that are closed."""
    opened = sum(text.count(char) for char in "\u2066\u2067\u2068")
    overrides = any(char in text for char in "\u202a\u202b\u202c\u202d\u202e")
    return not overrides and opened == text.count("\u2069")


def _is_ideograph(text: str, position: int) -> bool:
    return position > 0 and "\u3400" <= text[position - 1] <= "\U0003ffff"


def _is_at_home(text: str, start: int, end: int, right_to_left: bool) -> bool:
    """Return whether an invisible character is one that writing needs at its place."""
    run = text[start:end]
    before = text[start - 1 : start]
    after = text[end : end + 1]
    if run == "\u200d":
        # Joiners build emoji, and letters of scripts that join.
        return (bool(before and after) and ord(before) > 0x8FF) or _joins(before)
    if run == "\u200c":
        return _joins(before) and _joins(after)
    if run in ("\u200e", "\u200f", "\u061c"):
        return right_to_left
    if run == "\u200b":
        return bool(before) and "\u0e00" <= before <= "\u17ff"
    if run == "\ufeff":
        return start == 0
    return run == "\u00ad" and before.isalpha() and after.isalpha() and not (before + after).isascii()


def _joins(char: str) -> bool:
    return bool(char) and ("\u0600" <= char <= "\u0dff" or "\u1800" <= char <= "\u18af")


def _find_marks(text: str) -> Iterator[Oddity]:
    for match in _MARKS.finditer(text):
        yield Oddity("stacked marks", *match.span())


def _find_mixed(text: str) -> Iterator[Oddity]:
    """Yield words of several scripts that look like a Latin word."""
    for match in _WORD.finditer(text):
        word = match.group()
        if word.isascii() or len(word) < 4:
            continue
        scripts = {unicodedata.name(char, "?").split(" ")[0] for char in word}
        if len(scripts & set(_SCRIPTS)) > 1 and "LATIN" in scripts and fold_lookalikes(word).isascii():
            yield Oddity("mixed scripts", *match.span())


def remove_hidden(text: str) -> str:
    """Return a text without its invisible characters and stacked marks, in compatibility form."""
    if text.isascii() and not _CONTROL.search(text):
        return text
    text = _ODD.sub("", _TERMINAL.sub("", text))
    # Normalisation sorts adjacent marks in quadratic time: a long text is done in pieces.
    return "".join(unicodedata.normalize("NFKC", piece) for piece in _PIECE.findall(_MARKS.sub("", text)))


def read_tags(text: str) -> str:
    """Return the ASCII text that tag characters spell; empty if there are none."""
    tags = [char for char in _FLAG.sub("", text) if "\U000e0001" <= char <= "\U000e007f"]
    return "".join(" " if char in "\U000e0001\U000e007f" else chr(ord(char) - 0xE0000) for char in tags)


def read_selectors(text: str) -> str:
    """Return the text that a run of variation selectors spells, one byte each; empty if it spells none."""
    data = bytearray()
    for char in _SELECTORS.findall(text):
        code = ord(char)
        data.append(code - 0xFE00 if code < 0x10000 else code - 0xE0100 + 16)
    try:
        spelled = data.decode()
    except UnicodeDecodeError:
        return ""
    return spelled if len(spelled) > 3 and spelled.isprintable() else ""


def fold_lookalikes(text: str) -> str:
    """Return a text with look-alike letters replaced by Latin ones."""
    return text if text.isascii() else text.translate(_TABLE)


_TABLE = str.maketrans(_LOOKALIKES)
