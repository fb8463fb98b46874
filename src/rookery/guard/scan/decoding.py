"""Undo encodings of a text until nothing changes any more: what a model would read in it."""

import base64
import binascii
import codecs
import html
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from rookery.guard.scan.characters import fold_lookalikes, read_selectors, read_tags, remove_hidden

# A text that is still encoded after this many rounds is not decoded further, and that is reported.
MOST_ROUNDS = 6
# Neither is one that can be decoded in more ways than these.
MOST_LAYERS = 60


class Layer(NamedTuple):
    """A text as it reads after some decoding, which `via` names; the first layer has none."""

    text: str
    via: tuple[str, ...]


class Decoded(NamedTuple):
    """The layers of a text, and whether decoding was given up."""

    layers: list[Layer]
    exhausted: bool


_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{14,}={0,2}(?![\w+/=-])")
_BASE32 = re.compile(r"(?<![A-Z0-9])[A-Z2-7]{16,}=*(?![A-Za-z0-9=])")
_HEX = re.compile(r"(?<![\w])(?:0x)?(?:[0-9a-fA-F]{2}[ :,-]?){8,}(?![\w])")
_ESCAPES = re.compile(r"(?:\\u\{?[0-9a-fA-F]{2,6}\}?|\\x[0-9a-fA-F]{2}|\\[0-7]{3})+")
_ESCAPE = re.compile(r"\\u\{?([0-9a-fA-F]{2,6})\}?|\\x([0-9a-fA-F]{2})|\\([0-7]{3})")
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
_ENTITY = re.compile(r"&(?:#\d{2,6}|#x[0-9a-fA-F]{2,6}|[a-zA-Z]{2,8});")
_CODES = re.compile(r"(?<!\d)(?:\d{2,3}[ ,;]+){7,}\d{2,3}(?!\d)")
_BINARY = re.compile(r"(?:[01]{8}[ ,]*){6,}")
# Possessive, as a run of such letters that ends wrongly would be tried from each of them.
_SPACED = re.compile(r"(?<!\w)[^\W\d_](?:[ .*_-]{1,3}+[^\W\d_](?![^\W_])){5,}+")
_LEET = re.compile(r"(?<![\w])(?=\w*[a-zA-Z$@])(?=\w*[013457@$])[\w@$]{4,}(?![\w])")
_ROT13 = re.compile(
    r"\b(?:gur|naq|lbhe?|nyy|nal|cevbe|cerivbhf|vafgehpgvbaf?|vtaber|svyrf?|hfref?|frperg|frpergf|guvf|"
    r"sebz|jvgu|nyjnlf|arire|orsber|nsgre|fraq|ernq)\b",
    re.IGNORECASE,
)
_REVERSED = re.compile(
    r"\b(?:eht|dna|ruoy|suoiverp|roirp|snoitcurtsni|erongi|selif|resu|terces|siht|morf|htiw|syawla|reven|"
    r"erofeb|dnes|daer|lla)\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Za-z]{2,}")
_DIGITS = str.maketrans("013457@$", "oieastas")


# Whatever a decoder could work on in plain ASCII text; most texts have nothing of it.
_SUSPECT = re.compile(
    r"[A-Za-z0-9+/_-]{14}|[01]{8}|[&%\\\x00-\x08\x0b-\x1f\x7f]|(?:\d{2,3}[ ,;]+){7}|(?:[0-9a-fA-F]{2}[ :,-]){7}"
    r"|[A-Za-z][013457@$]+[A-Za-z]|\b[^\W\d_][ .*_-]{1,3}[^\W\d_][ .*_-]{1,3}[^\W\d_]\b"
)


def decode(text: str, most_characters: int = 200_000) -> Decoded:
    """Return all layers of a text, the text itself first."""
    layers = [Layer(text, ())]
    if text.isascii() and not _SUSPECT.search(text) and not _ROT13.search(text) and not _REVERSED.search(text):
        return Decoded(layers, False)
    seen = {text}
    pending = [layers[0]]
    budget = most_characters
    for round_ in range(MOST_ROUNDS + 1):
        following: list[Layer] = []
        for layer in pending:
            for name, decoder in _DECODERS.items():
                decoded = decoder(layer.text)
                if decoded and decoded not in seen:
                    if round_ == MOST_ROUNDS:
                        return Decoded(layers, True)
                    seen.add(decoded)
                    budget -= len(decoded)
                    following.append(Layer(decoded, (*layer.via, name)))
        if not following:
            return Decoded(layers, False)
        if budget < 0 or len(layers) + len(following) > MOST_LAYERS:
            return Decoded(layers, True)
        layers += following
        pending = following
    return Decoded(layers, False)


def is_prose(text: str) -> bool:
    """Return whether a decoded text is language and not data."""
    if len(text) < 8 or not all(char.isprintable() or char in "\n\r\t" for char in text):
        return False
    letters = sum(char.isalpha() or char == " " for char in text)
    if letters < 0.75 * len(text):
        return False
    # Words of ordinary length, or a script that is not Latin.
    words = _WORDS.findall(text)
    return (len(words) >= 2 and sum(map(len, words)) / len(words) < 9) or (not text.isascii() and " " not in text[:3])


def _replace(pattern: re.Pattern[str], convert: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Return a decoder that replaces each match that turns out to be prose."""

    def decode_matches(text: str) -> str | None:
        changed = False

        def substitute(match: re.Match[str]) -> str:
            nonlocal changed
            converted = convert(match.group())
            # What is encoded twice is no language after the first time.
            if converted is None or not (is_prose(converted) or _BASE64.fullmatch(converted.strip())):
                return match.group()
            changed = True
            return f" {converted} "

        replaced = pattern.sub(substitute, text)
        return replaced if changed else None

    return decode_matches


def _from_bytes(data: bytes) -> str | None:
    try:
        return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-8")
    except UnicodeDecodeError:
        return None


def _read_base64(text: str) -> str | None:
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _from_bytes(base64.b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        return None


def _read_base32(text: str) -> str | None:
    text = text.rstrip("=")
    try:
        return _from_bytes(base64.b32decode(text + "=" * (-len(text) % 8)))
    except (binascii.Error, ValueError):
        return None


def _read_hex(text: str) -> str | None:
    try:
        return _from_bytes(bytes.fromhex(re.sub(r"0x|[ :,-]", "", text)))
    except ValueError:
        return None


def _read_codes(text: str) -> str | None:
    codes = [int(code) for code in re.findall(r"\d+", text)]
    return "".join(map(chr, codes)) if all(31 < code < 127 or code == 10 for code in codes) else None


def _read_binary(text: str) -> str | None:
    return _from_bytes(bytes(int(code, 2) for code in re.findall(r"[01]{8}", text)))


def _read_escapes(text: str) -> str | None:
    if "\\" not in text:
        return None
    # A few escapes are examples of them, such as a colour or a separator.
    if len(_ESCAPE.findall(text)) < 4:
        return None
    replaced = _ESCAPES.sub(_unescape, text)
    return replaced if replaced != text else None


def _unescape(match: re.Match[str]) -> str:
    run = match.group()
    codes = _ESCAPE.findall(run)
    points = [int(code or short, 16) if code or short else int(octal, 8) for code, short, octal in codes]
    return "".join(chr(point) for point in points if 8 < point < 0x110000 and not 0xD800 <= point < 0xE000)


def _read_percent(text: str) -> str | None:
    if text.count("%") < 3 or len(_PERCENT.findall(text)) < 3:
        return None
    decoded = unquote(text)
    return decoded if decoded != text else None


def _read_entities(text: str) -> str | None:
    if "&" not in text or not _ENTITY.search(text):
        return None
    decoded = html.unescape(text)
    return decoded if decoded != text else None


def _read_rotated(text: str) -> str | None:
    return codecs.decode(text, "rot13") if len(_ROT13.findall(text)) > 1 else None


def _read_reversed(text: str) -> str | None:
    return text[::-1] if len(_REVERSED.findall(text)) > 1 else None


def _read_spaced(text: str) -> str | None:
    """Join letters that stand apart, as in "i g n o r e"; two or more spaces separate words."""
    changed = False

    def substitute(match: re.Match[str]) -> str:
        nonlocal changed
        changed = True
        words = re.split(r"\s{2,}|[ ][.*_-][ ]", match.group())
        return " ".join(re.sub(r"[\W_]+", "", word) for word in words)

    replaced = _SPACED.sub(substitute, text)
    return replaced if changed else None


def _read_leet(text: str) -> str | None:
    """Replace digits inside of words by the letters that they look like, if several words have them."""
    words = [match.group() for match in _LEET.finditer(text)]
    mixed = [
        word for word in words if not word.isidentifier() or re.search(r"[a-z][013457]+[a-z]", word, re.IGNORECASE)
    ]
    if len(mixed) < 2:
        return None
    return _LEET.sub(lambda match: match.group().translate(_DIGITS), text)


def _fold(text: str) -> str | None:
    folded = fold_lookalikes(text)
    # Text that is mostly of another script is that script, and not a disguise.
    return folded if folded != text and sum(char.isascii() for char in text) > 0.4 * len(text) else None


def _unhide(text: str) -> str | None:
    return None if text.isascii() and text.isprintable() else remove_hidden(text)


def _spell_tags(text: str) -> str | None:
    return None if text.isascii() else read_tags(text) or None


def _spell_selectors(text: str) -> str | None:
    return None if text.isascii() else read_selectors(text) or None


_DECODERS: Mapping[str, Callable[[str], str | None]] = {
    "tag characters": _spell_tags,
    "variation selectors": _spell_selectors,
    "invisible characters": _unhide,
    "look-alike letters": _fold,
    "HTML entities": _read_entities,
    "percent-encoding": _read_percent,
    "escapes": _read_escapes,
    "base64": _replace(_BASE64, _read_base64),
    "base32": _replace(_BASE32, _read_base32),
    "hex": _replace(_HEX, _read_hex),
    "character codes": _replace(_CODES, _read_codes),
    "binary digits": _replace(_BINARY, _read_binary),
    "ROT13": _read_rotated,
    "reversed text": _read_reversed,
    "spaced letters": _read_spaced,
    "digits for letters": _read_leet,
}
