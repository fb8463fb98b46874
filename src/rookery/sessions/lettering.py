"""Text as the cells of a screen: which characters are wide, which combine, and where a line has to end."""

import unicodedata
from collections.abc import Iterator, Sequence

from rookery.sessions.screen import PLAIN, Cell, Cursor, Screen, Style
from rookery.system.visible import visible

_COMBINING = ("Mn", "Me")
_JOINER = "\u200d"
_TAB = 4
Row = list[Cell]


def width_of(char: str) -> int:
    """How many places a character takes: 0 where it combines with the one before it."""
    if char.isascii():
        return 1
    if unicodedata.category(char) in _COMBINING or char == _JOINER:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells_of(text: str, style: Style = PLAIN) -> Row:
    """One line. What would not be seen, or would do something to a terminal, is written out."""
    made: Row = []
    for char in text:
        width = width_of(char)
        if width == 0 and made:
            made[-1] = Cell(made[-1].text + char, style, made[-1].width)
        elif width == 2:
            made.append(Cell(char, style, 2))
        else:
            made += [Cell(one, style) for one in visible(char)]
    return made


def wrapped(text: str, columns: int, style: Style = PLAIN) -> Iterator[Row]:
    """Lines of at most so many columns, broken at blanks where there are any."""
    for line in text.replace("\r\n", "\n").split("\n"):
        row, start = cells_of(line.expandtabs(_TAB), style), 0
        while (end := _fitting(row, columns, start)) < len(row):
            blank = next((at for at in range(end, start, -1) if row[at].text == " "), None)
            yield row[start : end if blank is None else blank]
            start = end if blank is None else blank + 1
        yield row[start:]


def taken(row: Sequence[Cell]) -> int:
    return sum(cell.width for cell in row)


def screen_of(rows: Sequence[Sequence[Cell]], columns: int, height: int, title: str = "") -> Screen:
    """Rows of cells as a screen of this size: cut off on the right and at the bottom, blank where there is nothing."""
    whole = [_filled(row, columns) for row in rows[:height]]
    whole += [_filled((), columns) for _ in range(height - len(whole))]
    return Screen(columns, height, whole, Cursor(0, 0, visible=False), title)


def _filled(row: Sequence[Cell], columns: int) -> Row:
    kept = list(row[: _fitting(row, columns)])
    background = kept[-1].style.background if kept else None
    blank = Cell(style=Style(background=background)) if background is not None else Cell()
    return [*kept, *[blank] * (columns - taken(kept))]


def _fitting(row: Sequence[Cell], columns: int, start: int = 0) -> int:
    """Up to where its cells fit, from `start` on."""
    room = columns
    for at in range(start, len(row)):
        room -= row[at].width
        if room < 0:
            return at
    return len(row)
