"""Characters that are drawn and not taken from a font: lines, blocks and Braille dots, which fill their cells exactly.

A font's own lines leave gaps wherever a cell is not exactly as high as the font thinks.
"""

import functools
import unicodedata
from collections.abc import Iterator

from rookery.sessions.strokes import Box, Shapes, lines, thickness

_QUADRANTS = {"UPPER LEFT": (0, 0), "UPPER RIGHT": (1, 0), "LOWER LEFT": (0, 1), "LOWER RIGHT": (1, 1)}
# OpenCode's sign that something goes on is made of it, and the font has none.
_SMALL_SQUARE = "⬝"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


@functools.lru_cache(maxsize=1024)
def shapes(char: str, width: int, height: int) -> Shapes | None:
    """What to draw in a cell of this size; None for a character that is left to the font."""
    if len(char) != 1:
        return None
    number = ord(char)
    if char == _SMALL_SQUARE:
        size = max(2, round(width / 3))
        left, top = (width - size) // 2, (height - size) // 2
        return (Box(left, top, left + size, top + size),)
    if 0x2500 <= number < 0x2580:
        return tuple(lines(char, width, height))
    if 0x2580 <= number < 0x25A0:
        return tuple(_blocks(char, width, height))
    if 0x2800 <= number < 0x2900:
        return tuple(_braille(number - 0x2800, width, height))
    return None


def missing(width: int, height: int) -> Shapes:
    """A hollow box, for a character that the font does not have."""
    line = thickness(height)
    left, right = max(line, width // 6), width - max(line, width // 6)
    top, bottom = height // 5, height - height // 5
    sides = [(left, top, right, top + line), (left, bottom - line, right, bottom)]
    sides += [(left, top, left + line, bottom), (right - line, top, right, bottom)]
    return [Box(*side) for side in sides]


def _blocks(char: str, width: int, height: int) -> Iterator[Box]:
    number = ord(char)
    if char in _SHADES:
        yield Box(0, 0, width, height, _SHADES[char])
    elif char == "▀":
        yield Box(0, 0, width, round(height / 2))
    elif char == "▐":
        yield Box(round(width / 2), 0, width, height)
    elif char == "▔":
        yield Box(0, 0, width, max(1, round(height / 8)))
    elif char == "▕":
        yield Box(width - max(1, round(width / 8)), 0, width, height)
    elif number <= 0x2588:
        yield Box(0, height - round(height * (number - 0x2580) / 8), width, height)
    elif number <= 0x258F:
        yield Box(0, 0, round(width * (0x2590 - number) / 8), height)
    else:
        name = unicodedata.name(char)
        half = (round(width / 2), round(height / 2))
        for words, (column, row) in _QUADRANTS.items():
            if words in name:
                right, bottom = (width if column else half[0]), (height if row else half[1])
                yield Box(half[0] * column, half[1] * row, right, bottom)


def _braille(dots: int, width: int, height: int) -> Iterator[Box]:
    size = max(1, round(width / 5))
    for bit, (column, row) in enumerate(_DOTS):
        if dots >> bit & 1:
            left = round(width * (2 * column + 1) / 4 - size / 2)
            top = round(height * (2 * row + 1) / 8 - size / 2)
            yield Box(left, top, left + size, top + size)
