"""Screens as text that can be stored, read and compared: the characters, and the style of each cell.

What differs between runs is masked: the cells that match a pattern are replaced by one that names it, and the blanks
around it count as one, because their number depends on its length.
"""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, PLAIN_STYLE, Cell, Cursor, Screen, Style

Masks = Mapping[str, re.Pattern[str]]

_LETTERS = string.ascii_letters + string.digits
_PLAIN = "."


_RECORDED = Path(__file__).parents[2] / "sessions" / "screens"


def recorded(name: str) -> Screen:
    """Return a screen that the real OpenCode drew. Letters stand for backgrounds, `a` for the omitted one."""
    head, *rest = (_RECORDED / f"{name}.txt").read_text().split("\n")
    columns, rows = map(int, head.split("x"))
    texts, backs = rest[:rows], rest[rows + 1 :]
    cells = [
        [
            Cell(text, Style(background=f"#{back * 6}"))
            for text, back in zip(said.ljust(columns), back.ljust(columns, "a"), strict=True)
        ]
        for said, back in zip(texts, backs[:rows], strict=True)
    ]
    return Screen(columns, rows, cells, Cursor(0, 0))


def written(screen: Screen, masks: Masks) -> str:
    """Return a head, the text, the styles by letter, and the letter of each cell; a dot is the plain style."""
    rows = [_masked([_seen(cell) for cell in row], masks) for row in screen.cells]
    letters: dict[Style, str] = {PLAIN_STYLE: _PLAIN}
    for row in rows:
        for cell in row:
            letters.setdefault(cell.style, _LETTERS[len(letters) - 1])
    cursor = screen.cursor
    return "\n".join(
        [
            f"{screen.columns}x{screen.rows}, {screen.title!r}",
            f"cursor at {cursor.row}, {cursor.column}" if cursor.visible else "no cursor",
            "",
            *("".join(cell.text for cell in row).rstrip() for row in rows),
            "",
            *(f"{letter} {_look(style)}" for style, letter in letters.items() if style != PLAIN_STYLE),
            "",
            *("".join(letters[cell.style] for cell in row).rstrip(_PLAIN) for row in rows),
            "",
        ]
    )


def _seen(cell: Cell) -> Cell:
    """Remove invisible differences: the colour of a blank, and the common background."""
    background = cell.style.background if cell.style.background != DEFAULT_BACKGROUND else None
    if cell.text in ("", " ") and not (cell.style.underline or cell.style.strike):
        return Cell(" ", Style(background=background), cell.width)
    return Cell(cell.text, replace(cell.style, background=background), cell.width)


def _masked(row: Sequence[Cell], masks: Masks) -> list[Cell]:
    cells, hit = list(row), False
    for name, pattern in masks.items():
        while found := pattern.search(_text(cells)):
            start, end = found.span()
            cells[start:end] = [Cell(f"<{name}>", cells[start].style)]
            hit = True
    return _squeezed(cells) if hit else cells


def _text(cells: Sequence[Cell]) -> str:
    """Return one character for each cell, so that positions match; masked cells match no further pattern."""
    return "".join(cell.text if len(cell.text) == 1 else "\0" for cell in cells)


def _squeezed(cells: Sequence[Cell]) -> list[Cell]:
    kept: list[Cell] = []
    for cell in cells:
        if not (kept and cell == kept[-1] and cell.text == " "):
            kept.append(cell)
    return kept


def _look(style: Style) -> str:
    names = [name for name in ("bold", "dim", "italic", "underline", "strike") if getattr(style, name)]
    return " ".join([f"{style.foreground or 'default'} on {style.background or 'default'}", *names])
