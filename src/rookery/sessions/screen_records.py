"""What every face answers of a session's screen. Rows and columns count from 0, from the top and the left."""

from typing import Literal

from rookery.sessions.records import Answer
from rookery.sessions.screen import PLAIN, Screen, Style

Source = Literal["terminal", "rendering"]
Mark = Literal["bold", "dim", "italic", "underline", "strike"]

_MARKS: tuple[Mark, ...] = ("bold", "dim", "italic", "underline", "strike")


class CursorShown(Answer, frozen=True, kw_only=True):
    row: int
    column: int
    visible: bool


class Region(Answer, frozen=True, kw_only=True):
    """A part of the screen: where it is, and what can be read there."""

    row: int
    column: int
    rows: int
    columns: int
    text: str


class Regions(Answer, frozen=True, kw_only=True):
    """Those that can be told. `prompt` is where a message is typed, with what stands there; a `dialog` wants an answer.

    `status` is the line below the prompt.
    """

    prompt: Region | None = None
    dialog: Region | None = None
    toast: Region | None = None
    sidebar: Region | None = None
    status: Region | None = None


class Run(Answer, frozen=True, kw_only=True):
    """Characters of a row that look alike. Colours are `#rrggbb`; what has none has the terminal's own."""

    column: int
    text: str
    foreground: str | None = None
    background: str | None = None
    marks: tuple[Mark, ...] = ()


class ScreenShown(Answer, frozen=True, kw_only=True):
    """`source` tells whether it is OpenCode's own terminal or a rendering of the conversation, and `note` why.

    `runs` has the rows with their colours, where those are asked for; what is blank and plain is left out.
    """

    session_id: str
    text: str
    lines: tuple[str, ...]
    cursor: CursorShown
    title: str
    columns: int
    rows: int
    source: Source
    regions: Regions
    note: str | None = None
    runs: tuple[tuple[Run, ...], ...] | None = None


def shown(
    session: str, screen: Screen, source: Source, regions: Regions, *, note: str | None = None, colours: bool = False
) -> ScreenShown:
    lines = screen.lines
    return ScreenShown(
        session_id=session,
        text="\n".join(lines).rstrip("\n"),
        lines=tuple(lines),
        cursor=CursorShown(row=screen.cursor.row, column=screen.cursor.column, visible=screen.cursor.visible),
        title=screen.title,
        columns=screen.columns,
        rows=screen.rows,
        source=source,
        regions=regions,
        note=note,
        runs=tuple(_runs(screen, row) for row in range(screen.rows)) if colours else None,
    )


def _runs(screen: Screen, row: int) -> tuple[Run, ...]:
    found: list[tuple[int, Style, list[str]]] = []
    column = 0
    for cell in screen.cells[row]:
        if found and found[-1][1] == cell.style:
            found[-1][2].append(cell.text)
        else:
            found.append((column, cell.style, [cell.text]))
        column += cell.width
    return tuple(
        Run(
            column=column,
            text="".join(texts),
            foreground=style.foreground,
            background=style.background,
            marks=tuple(mark for mark in _MARKS if getattr(style, mark)),
        )
        for column, style, texts in found
        if style != PLAIN or "".join(texts).strip()
    )
