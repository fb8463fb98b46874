"""Characters that are made of lines, which have to meet from cell to cell; and what all drawn characters consist of."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_LIGHT, _HEAVY, _DOUBLE = "LIGHT", "HEAVY", "DOUBLE"
_WEIGHTS = {"LIGHT": _LIGHT, "SINGLE": _LIGHT, "HEAVY": _HEAVY, "DOUBLE": _DOUBLE}
_LEFT, _UP, _RIGHT, _DOWN = (-1, 0), (0, -1), (1, 0), (0, 1)
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


@dataclass(frozen=True, slots=True)
class Box:
    """From its left and upper edge up to before its right and lower one. `cover` is how much of the ground it hides."""

    left: int
    top: int
    right: int
    bottom: int
    cover: float = 1.0


@dataclass(frozen=True, slots=True)
class Stroke:
    points: tuple[tuple[float, float], ...]
    width: int


Shapes = Sequence[Box | Stroke]


def thickness(height: int) -> int:
    """Of a light line in a cell of this height."""
    return max(1, round(height / 18))


def lines(char: str, width: int, height: int) -> Iterator[Box | Stroke]:
    """A character from U+2500 to U+257F; its Unicode name says all of it."""
    name = unicodedata.name(char).removeprefix("BOX DRAWINGS ")
    light = thickness(height)
    if "DIAGONAL" in name:
        falling = Stroke(((0, 0), (width, height)), light)
        rising = Stroke(((0, height), (width, 0)), light)
        yield from [
            one for one, word in ((rising, "UPPER RIGHT"), (falling, "UPPER LEFT")) if word in name or "CROSS" in name
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
    """Which of the four arms there are, and how heavy. A weight holds for what comes after it, too."""
    found: dict[Arm, str] = {}
    weight = _LIGHT
    for part in name.split(" AND "):
        words = part.split(" ")
        weight = next((_WEIGHTS[word] for word in words if word in _WEIGHTS), weight)
        found |= {arm: weight for word in words for arm in _ARMS.get(word, ())}
    return found


def _arm(arm: Arm, arms: dict[Arm, str], width: int, height: int) -> Iterator[Box]:
    """The boxes of one arm, from where it meets the others in the middle out to the edge of the cell."""
    light = thickness(height)
    apart = max(light, width // 5)
    weight = arms[arm]
    thick = _thick(weight, light)
    across = (abs(arm[1]), abs(arm[0]))
    for side in (-1, 1) if weight == _DOUBLE else (0,):
        # The arms that cross this one: on this line's own side, and on the other.
        near, far = (arms.get((across[0] * way, across[1] * way)) for way in (side or -1, -(side or -1)))
        begin = _begin(weight, side, near, far, arm, arms, apart, light)
        yield _bar(arm, side * apart, begin, thick, light, width, height)


def _begin(
    weight: str, side: int, near: str | None, far: str | None, arm: Arm, arms: dict[Arm, str], apart: int, light: int
) -> int:
    """How far from the middle a line begins, towards its arm; below 0 it begins beyond the middle."""
    through = (-arm[0], -arm[1]) in arms
    if weight == _DOUBLE:
        if near == _DOUBLE:
            return apart - light
        return -apart - light if far == _DOUBLE and not through else -light
    if _DOUBLE in (near, far):
        return apart - light if near == far and not through else -apart - light
    heaviest = max((_thick(one, light) for one in (near, far) if one is not None), default=light)
    return -light - (heaviest - light) // 2


def _bar(arm: Arm, shift: int, begin: int, thick: int, light: int, width: int, height: int) -> Box:
    """A line along `arm`, `shift` away from the middle. Lines of all weights have their middle in the same place."""
    horizontal = arm[0] != 0
    length, breadth = (width, height) if horizontal else (height, width)
    ahead = arm[0] + arm[1] > 0
    middle = (length - light) // 2
    # A weight that is wider than a light line reaches as far beyond it on both sides.
    beyond = (thick - light) // 2
    edge = (breadth - light) // 2 + shift - beyond
    if ahead:
        start, end = middle + light + begin, length
    else:
        start, end = 0, middle - begin
    start, end = max(start, 0), min(end, length)
    return Box(start, edge, end, edge + thick) if horizontal else Box(edge, start, edge + thick, end)


def _thick(weight: str, light: int) -> int:
    return 3 * light if weight == _HEAVY else light


def _dashed(arms: dict[Arm, str], dashes: int, width: int, height: int) -> Iterator[Box]:
    horizontal = _LEFT in arms
    length, breadth = (width, height) if horizontal else (height, width)
    light = thickness(height)
    thick = _thick(next(iter(arms.values())), light)
    edge = (breadth - light) // 2 - (thick - light) // 2
    for dash in range(dashes):
        start = round(dash * length / dashes)
        end = max(start + 1, round((dash + 1) * length / dashes) - max(1, length // (dashes * 3)))
        yield Box(start, edge, end, edge + thick) if horizontal else Box(edge, start, edge + thick, end)


def _arc(arms: dict[Arm, str], width: int, height: int, light: int) -> tuple[tuple[float, float], ...]:
    """From the edge of the cell to the middle, and round the corner to another edge."""
    across, along = (next(arm for arm in arms if arm[which]) for which in (0, 1))
    x, y = (width - light) // 2 + light / 2, (height - light) // 2 + light / 2
    radius = min(width, height) / 2
    middle = (x + across[0] * radius, y + along[1] * radius)
    turn = [step * math.pi / 2 / _SMOOTH for step in range(_SMOOTH + 1)]
    round_ = [
        (middle[0] - across[0] * radius * math.cos(angle), middle[1] - along[1] * radius * math.sin(angle))
        for angle in turn
    ]
    return ((x, height if along[1] > 0 else 0), *round_, (width if across[0] > 0 else 0, y))
