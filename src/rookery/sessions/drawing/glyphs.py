"""Shapes of the characters that are drawn and not taken from a font.

These are box-drawing lines, blocks and Braille dots, which have to fill their cells exactly. A font's own lines leave
gaps wherever a cell is not exactly as high as the font expects.
"""

import functools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LIGHT = "LIGHT"
_HEAVY = "HEAVY"
_DOUBLE = "DOUBLE"
_WEIGHTS = {"LIGHT": _LIGHT, "SINGLE": _LIGHT, "HEAVY": _HEAVY, "DOUBLE": _DOUBLE}
_LEFT = (-1, 0)
_UP = (0, -1)
_RIGHT = (1, 0)
_DOWN = (0, 1)
_ARMS = {
    "LEFT": (_LEFT,),
    "UP": (_UP,),
    "RIGHT": (_RIGHT,),
    "DOWN": (_DOWN,),
    "HORIZONTAL": (_LEFT, _RIGHT),
    "VERTICAL": (_UP, _DOWN),
}
_DASHES = {"DOUBLE DASH": 2, "TRIPLE DASH": 3, "QUADRUPLE DASH": 4}
_SMOOTH = 8

Arm = tuple[int, int]

_QUADRANTS = {"UPPER LEFT": (0, 0), "UPPER RIGHT": (1, 0), "LOWER LEFT": (0, 1), "LOWER RIGHT": (1, 1)}
# Part of OpenCode's progress indicator; the font does not have this character.
_SMALL_SQUARE = "⬝"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; `right` and `bottom` are exclusive. `opacity` is its opacity."""

    left: int
    top: int
    right: int
    bottom: int
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through points, in pixels from the upper left corner of the cell."""

    points: tuple[tuple[float, float], ...]
    width: int


Shapes = Sequence[Box | Stroke]


def line_thickness(height: int) -> int:
    """Return the thickness of a light line in a cell of this height, in pixels."""
    return max(1, round(height / 18))


def make_lines(char: str, width: int, height: int) -> Iterator[Box | Stroke]:
    """Yield the shapes of a character from U+2500 to U+257F, derived from its Unicode name."""
    name = unicodedata.name(char).removeprefix("BOX DRAWINGS ")
    light = line_thickness(height)
    if "DIAGONAL" in name:
        falling = Stroke(((0, 0), (width, height)), light)
        rising = Stroke(((0, height), (width, 0)), light)
        yield from [
            stroke
            for stroke, word in ((rising, "UPPER RIGHT"), (falling, "UPPER LEFT"))
            if word in name or "CROSS" in name
        ]
        return
    if "ARC" in name:
        yield Stroke(_arc(_arms(name.replace("ARC ", "")), width, height, light), light)
        return
    dashes = next((count for words, count in _DASHES.items() if words in name), 0)
    if dashes:
        arms = _arms(name.split(" ")[0] + " " + name.split(" ")[-1])
        yield from _dashed(arms, dashes, width, height)
        return
    arms = _arms(name)
    for arm in arms:
        yield from _arm(arm, arms, width, height)


def _arms(name: str) -> dict[Arm, str]:
    """Return the arms of a character with their weights. A weight also applies to the arms named after it."""
    arms: dict[Arm, str] = {}
    weight = _LIGHT
    for part in name.split(" AND "):
        words = part.split(" ")
        weight = next((_WEIGHTS[word] for word in words if word in _WEIGHTS), weight)
        arms |= {arm: weight for word in words for arm in _ARMS.get(word, ())}
    return arms


def _arm(arm: Arm, arms: dict[Arm, str], width: int, height: int) -> Iterator[Box]:
    """Yield the boxes of one arm, from the crossing in the middle to the edge of the cell."""
    light = line_thickness(height)
    gap = max(light, width // 5)
    weight = arms[arm]
    thickness = _thickness(weight, light)
    across = (abs(arm[1]), abs(arm[0]))
    for side in (-1, 1) if weight == _DOUBLE else (0,):
        # The weights of the crossing arms: on this line's own side, and on the other side.
        near, far = (
            arms.get((across[0] * direction, across[1] * direction)) for direction in (side or -1, -(side or -1))
        )
        start = _line_start(weight, side, near, far, arm, arms, gap, light)
        yield _bar(arm, side * gap, start, thickness, light, width, height)


def _line_start(
    weight: str, side: int, near: str | None, far: str | None, arm: Arm, arms: dict[Arm, str], gap: int, light: int
) -> int:
    """Return how far from the middle a line starts, towards its arm. A negative value is beyond the middle."""
    continues = (-arm[0], -arm[1]) in arms
    if weight == _DOUBLE:
        if near == _DOUBLE:
            return gap - light
        return -gap - light if far == _DOUBLE and not continues else -light
    if _DOUBLE in (near, far):
        return gap - light if near == far and not continues else -gap - light
    heaviest = max((_thickness(crossing, light) for crossing in (near, far) if crossing is not None), default=light)
    return -light - (heaviest - light) // 2


def _bar(arm: Arm, shift: int, begin: int, thick: int, light: int, width: int, height: int) -> Box:
    """Return a line along `arm`, `shift` away from the middle. Lines of all weights are centred in the same place."""
    horizontal = arm[0] != 0
    length, breadth = (width, height) if horizontal else (height, width)
    forward = arm[0] + arm[1] > 0
    middle = (length - light) // 2
    # A line that is wider than a light one extends equally on both sides.
    overhang = (thick - light) // 2
    edge = (breadth - light) // 2 + shift - overhang
    if forward:
        start = middle + light + begin
        end = length
    else:
        start = 0
        end = middle - begin
    start = max(start, 0)
    end = min(end, length)
    return Box(start, edge, end, edge + thick) if horizontal else Box(edge, start, edge + thick, end)


def _thickness(weight: str, light: int) -> int:
    """Return the thickness of a line of this weight."""
    return 3 * light if weight == _HEAVY else light


def _dashed(arms: dict[Arm, str], dashes: int, width: int, height: int) -> Iterator[Box]:
    """Yield the dashes of a dashed line."""
    horizontal = _LEFT in arms
    length, breadth = (width, height) if horizontal else (height, width)
    light = line_thickness(height)
    thickness = _thickness(next(iter(arms.values())), light)
    edge = (breadth - light) // 2 - (thickness - light) // 2
    for dash in range(dashes):
        start = round(dash * length / dashes)
        end = max(start + 1, round((dash + 1) * length / dashes) - max(1, length // (dashes * 3)))
        yield Box(start, edge, end, edge + thickness) if horizontal else Box(edge, start, edge + thickness, end)


def _arc(arms: dict[Arm, str], width: int, height: int, light: int) -> tuple[tuple[float, float], ...]:
    """Return the points of a rounded corner: from one edge of the cell around the middle to another edge."""
    across, along = (next(arm for arm in arms if arm[axis]) for axis in (0, 1))
    x = (width - light) // 2 + light / 2
    y = (height - light) // 2 + light / 2
    radius = min(width, height) / 2
    middle = (x + across[0] * radius, y + along[1] * radius)
    angles = [step * math.pi / 2 / _SMOOTH for step in range(_SMOOTH + 1)]
    arc = [
        (middle[0] - across[0] * radius * math.cos(angle), middle[1] - along[1] * radius * math.sin(angle))
        for angle in angles
    ]
    return ((x, height if along[1] > 0 else 0), *arc, (width if across[0] > 0 else 0, y))


@functools.lru_cache(maxsize=1024)
def make_shapes(char: str, width: int, height: int) -> Shapes | None:
    """Return the shapes to draw in a cell of this size, or None if the font draws the character."""
    if len(char) != 1:
        return None
    number = ord(char)
    if char == _SMALL_SQUARE:
        size = max(2, round(width / 3))
        left = (width - size) // 2
        top = (height - size) // 2
        return (Box(left, top, left + size, top + size),)
    if 0x2500 <= number < 0x2580:
        return tuple(make_lines(char, width, height))
    if 0x2580 <= number < 0x25A0:
        return tuple(_blocks(char, width, height))
    if 0x2800 <= number < 0x2900:
        return tuple(_braille(number - 0x2800, width, height))
    return None


def make_missing_box(width: int, height: int) -> Shapes:
    """Return a hollow box, for a character that the font does not have."""
    line = line_thickness(height)
    left = max(line, width // 6)
    right = width - max(line, width // 6)
    top = height // 5
    bottom = height - height // 5
    sides = [(left, top, right, top + line), (left, bottom - line, right, bottom)]
    sides += [(left, top, left + line, bottom), (right - line, top, right, bottom)]
    return [Box(*side) for side in sides]


def _blocks(char: str, width: int, height: int) -> Iterator[Box]:
    """Yield the boxes of a block element (U+2580 to U+259F)."""
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
                right = width if column else half[0]
                bottom = height if row else half[1]
                yield Box(half[0] * column, half[1] * row, right, bottom)


def _braille(dots: int, width: int, height: int) -> Iterator[Box]:
    """Yield the dots of a Braille pattern."""
    size = max(1, round(width / 5))
    for bit, (column, row) in enumerate(_DOTS):
        if dots >> bit & 1:
            left = round(width * (2 * column + 1) / 4 - size / 2)
            top = round(height * (2 * row + 1) / 8 - size / 2)
            yield Box(left, top, left + size, top + size)
