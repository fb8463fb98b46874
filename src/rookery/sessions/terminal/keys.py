"""Encode named keys, text and pastes as the bytes that a terminal sends for them."""

from collections.abc import Sequence

from rookery.system.errors import RookeryError

MAX_TEXT_CHARS = 100_000
_MAX_KEYS = 1000
_ESCAPE = "\x1b"
# Each with its number in the newer keyboard protocol (`CSI u`), for combinations that the old one does not have.
_CONTROL_KEYS = {
    "enter": ("\r", 13),
    "esc": (_ESCAPE, 27),
    "tab": ("\t", 9),
    "space": (" ", 32),
    "backspace": ("\x7f", 127),
}
_CURSOR_KEYS = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_FIRST_FUNCTION_KEYS = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
_NUMBERED_KEYS = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    **dict(zip((f"f{number}" for number in range(5, 13)), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)),
}
_KEY_ALIASES = {
    "return": "enter",
    "escape": "esc",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
}
_MODIFIERS = {"shift": 1, "alt": 2, "meta": 2, "ctrl": 4, "control": 4}

KEY_NAMES = (*_CONTROL_KEYS, *_CURSOR_KEYS, *_NUMBERED_KEYS, *_FIRST_FUNCTION_KEYS)


def encode_keys(keys: Sequence[str]) -> bytes:
    """Encode keys such as `enter`, `ctrl+p`, `shift+tab`, `f1` or `x`, one after another."""
    if len(keys) > _MAX_KEYS:
        raise RookeryError("invalid-input", f"{len(keys)} keys are too many at once", f"press at most {_MAX_KEYS}")
    return "".join(map(_encode_key, keys)).encode()


def encode_text(text: str) -> bytes:
    """Encode text as if it was typed."""
    _require_plain(text, "typed", "")
    return text.encode()


def encode_paste(text: str, *, marked: bool) -> bytes:
    """Encode text as if it was pasted. `marked` adds the markers of bracketed paste, for programs that support it."""
    _require_plain(text, "pasted", "\n\t")
    return (f"{_ESCAPE}[200~{text}{_ESCAPE}[201~" if marked else text.replace("\n", "\r")).encode()


def _encode_key(name: str) -> str:
    # The last plus sign of a name is the key itself.
    plus = name == "+" or name.endswith("++")
    *modifiers, key = [*name[:-2].split("+"), "+"] if plus else name.split("+")
    modifier_bits = 0
    for modifier in filter(None, modifiers):
        if modifier.lower() not in _MODIFIERS:
            raise _unknown_key_error(name)
        modifier_bits |= _MODIFIERS[modifier.lower()]
    if len(key) == 1 and key.isprintable():
        return _encode_character(key, modifier_bits)
    key = _KEY_ALIASES.get(key.lower(), key.lower())
    if key in _CONTROL_KEYS:
        return _encode_control_key(key, modifier_bits)
    if key in _CURSOR_KEYS:
        return (
            f"{_ESCAPE}[1;{modifier_bits + 1}{_CURSOR_KEYS[key]}" if modifier_bits else f"{_ESCAPE}[{_CURSOR_KEYS[key]}"
        )
    if key in _FIRST_FUNCTION_KEYS:
        return (
            f"{_ESCAPE}[1;{modifier_bits + 1}{_FIRST_FUNCTION_KEYS[key]}"
            if modifier_bits
            else f"{_ESCAPE}O{_FIRST_FUNCTION_KEYS[key]}"
        )
    if key in _NUMBERED_KEYS:
        return f"{_ESCAPE}[{_NUMBERED_KEYS[key]}{f';{modifier_bits + 1}' if modifier_bits else ''}~"
    raise _unknown_key_error(name)


def _encode_control_key(key: str, modifiers: int) -> str:
    text, number = _CONTROL_KEYS[key]
    if not modifiers:
        # A lone escape character could be taken for the start of a sequence with the following input.
        return f"{_ESCAPE}[27u" if key == "esc" else text
    return f"{_ESCAPE}[Z" if (key, modifiers) == ("tab", 1) else f"{_ESCAPE}[{number};{modifiers + 1}u"


def _encode_character(key: str, modifiers: int) -> str:
    shift = modifiers & 1
    alt = modifiers & 2
    ctrl = modifiers & 4
    if ctrl and (shift or not ((key.isascii() and key.isalpha()) or key in "@[\\]^_")):
        # A few letters become more than one character in lower case.
        return f"{_ESCAPE}[{ord(key.lower()[0])};{modifiers + 1}u"
    text = chr(ord(key.upper()) & 0x1F) if ctrl else key.upper() if shift else key
    return f"{_ESCAPE}{text}" if alt else text


def _require_plain(text: str, how: str, more: str) -> None:
    """Raise an error for text that is too long, or has characters that cannot be typed or pasted."""
    if len(text) > MAX_TEXT_CHARS:
        raise RookeryError(
            "invalid-input", f"{len(text)} characters are too many at once", f"send at most {MAX_TEXT_CHARS}"
        )
    # An escape character would end a paste, and the rest of it would be taken for keys.
    invalid = next((char for char in text if char not in more and (ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0)), None)
    if invalid is None:
        invalid = next((char for char in text if 0xD800 <= ord(char) < 0xE000), None)
    if invalid is not None:
        remedy = "press keys such as `enter`, or paste the lines" if how == "typed" else "leave it out"
        raise RookeryError("invalid-input", f"the character {invalid!r} cannot be {how}", remedy)


def _unknown_key_error(name: str) -> RookeryError:
    remedy = f"a key is a character or one of {', '.join(KEY_NAMES)}, with ctrl+, alt+ or shift+ before it"
    return RookeryError("invalid-input", f"there is no key {name[:40]!r}", remedy)
