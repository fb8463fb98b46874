"""Keys by their names, text and pastes, as the bytes that a terminal sends for them."""

from collections.abc import Sequence

from rookery.system.errors import RookeryError

LONGEST = 100_000
_MOST = 1000
_ESCAPE = "\x1b"
# Each with the number that the newer keyboard protocol has for it, for what the old one cannot say.
_PLAIN = {
    "enter": ("\r", 13),
    "esc": (_ESCAPE, 27),
    "tab": ("\t", 9),
    "space": (" ", 32),
    "backspace": ("\x7f", 127),
}
_CURSOR = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_FIRST = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
_NUMBERED = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    **dict(zip((f"f{number}" for number in range(5, 13)), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)),
}
_ALSO = {"return": "enter", "escape": "esc", "del": "delete", "ins": "insert", "pgup": "pageup", "pgdn": "pagedown"}
_MODIFIERS = {"shift": 1, "alt": 2, "meta": 2, "ctrl": 4, "control": 4}

NAMES = (*_PLAIN, *_CURSOR, *_NUMBERED, *_FIRST)


def pressed(keys: Sequence[str]) -> bytes:
    """Keys such as `enter`, `ctrl+p`, `shift+tab`, `f1` or `x`, one after another."""
    if len(keys) > _MOST:
        raise RookeryError("invalid-input", f"{len(keys)} keys are too many at once", f"press at most {_MOST}")
    return "".join(map(_key, keys)).encode()


def typed(text: str) -> bytes:
    """Text as if it was typed."""
    _require_plain(text, "typed", "")
    return text.encode()


def pasted(text: str, *, marked: bool) -> bytes:
    """Text as if it was pasted; `marked` where the program wants to be told so."""
    _require_plain(text, "pasted", "\n\t")
    return (f"{_ESCAPE}[200~{text}{_ESCAPE}[201~" if marked else text.replace("\n", "\r")).encode()


def _key(name: str) -> str:
    # The last plus sign of a name is the key itself.
    plus = name == "+" or name.endswith("++")
    *modifiers, key = [*name[:-2].split("+"), "+"] if plus else name.split("+")
    held = 0
    for one in filter(None, modifiers):
        if one.lower() not in _MODIFIERS:
            raise _unknown(name)
        held |= _MODIFIERS[one.lower()]
    if len(key) == 1 and key.isprintable():
        return _character(key, held)
    key = _ALSO.get(key.lower(), key.lower())
    if key in _PLAIN:
        return _common(key, held)
    if key in _CURSOR:
        return f"{_ESCAPE}[1;{held + 1}{_CURSOR[key]}" if held else f"{_ESCAPE}[{_CURSOR[key]}"
    if key in _FIRST:
        return f"{_ESCAPE}[1;{held + 1}{_FIRST[key]}" if held else f"{_ESCAPE}O{_FIRST[key]}"
    if key in _NUMBERED:
        return f"{_ESCAPE}[{_NUMBERED[key]}{f';{held + 1}' if held else ''}~"
    raise _unknown(name)


def _common(key: str, held: int) -> str:
    text, number = _PLAIN[key]
    if not held:
        # A lone escape could be taken for the beginning of what comes behind it.
        return f"{_ESCAPE}[27u" if key == "esc" else text
    return f"{_ESCAPE}[Z" if (key, held) == ("tab", 1) else f"{_ESCAPE}[{number};{held + 1}u"


def _character(key: str, held: int) -> str:
    shift, alt, ctrl = held & 1, held & 2, held & 4
    if ctrl and (shift or not ((key.isascii() and key.isalpha()) or key in "@[\\]^_")):
        # A few letters are more than one when they are small.
        return f"{_ESCAPE}[{ord(key.lower()[0])};{held + 1}u"
    text = chr(ord(key.upper()) & 0x1F) if ctrl else key.upper() if shift else key
    return f"{_ESCAPE}{text}" if alt else text


def _require_plain(text: str, how: str, more: str) -> None:
    if len(text) > LONGEST:
        raise RookeryError("invalid-input", f"{len(text)} characters are too many at once", f"at most {LONGEST}")
    # An escape would end a paste, and the rest of it be taken for keys.
    strange = next((one for one in text if one not in more and (ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0)), None)
    if strange is None:
        strange = next((one for one in text if 0xD800 <= ord(one) < 0xE000), None)
    if strange is not None:
        remedy = "press `enter` and its like as keys, or paste lines" if how == "typed" else "leave it out"
        raise RookeryError("invalid-input", f"the character {strange!r} cannot be {how}", remedy)


def _unknown(name: str) -> RookeryError:
    known = f"a key is a character or one of {', '.join(NAMES)}, with ctrl+, alt+ or shift+ before it"
    return RookeryError("invalid-input", f"there is no key {name[:40]!r}", known)
