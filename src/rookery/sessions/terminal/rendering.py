"""Render the conversation of a session as a screen, for sessions without a terminal.

The first line says that it is a rendering. Text is laid out in cells: some characters are two cells wide, and others
combine with the character before them.
"""

import unicodedata
from collections.abc import Iterator, Sequence

from rookery.sessions.conversion import iterate_content
from rookery.sessions.records import SessionInfo, SessionMessage, ToolRun
from rookery.sessions.terminal.cells import PLAIN_STYLE, Cell, Cursor, Screen, Style
from rookery.system.text import escape_invisible

_COMBINING = ("Mn", "Me")
_JOINER = "\u200d"
_TAB_COLUMNS = 4
CellRow = list[Cell]

RENDERING_NOTICE = "A rendering of the conversation, not a terminal"
# The minimum size: in fewer columns nothing is readable, and a wide character may not fit.
MIN_COLUMNS = 20
MIN_ROWS = 4
_HEAD_STYLE = Style(foreground="#0a0a0a", background="#e5c07b", bold=True)
_FAINT_STYLE = Style(foreground="#808080")
_USER_STYLE = Style(foreground="#5c9cf5")
_TEXT_STYLE = Style()
_ERROR_STYLE = Style(foreground="#e06c75")
_STATUS_STYLES = {
    "error": _ERROR_STYLE,
    "aborted": Style(foreground="#f5a742"),
    "completed": Style(foreground="#7fd88f"),
}
_INDENT = 2


def measure_char(char: str) -> int:
    """Return the width of a character in cells: 0 if it combines with the character before it."""
    if char.isascii():
        return 1
    if unicodedata.category(char) in _COMBINING or char == _JOINER:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def make_cells(text: str, style: Style = PLAIN_STYLE) -> CellRow:
    """Convert one line of text to cells.

    Invisible characters, and those that would control a terminal, are written out.
    """
    cells: CellRow = []
    for char in text:
        width = measure_char(char)
        if width == 0 and cells:
            cells[-1] = Cell(cells[-1].text + char, style, cells[-1].width)
        elif width == 2:
            cells.append(Cell(char, style, 2))
        else:
            cells += [Cell(visible_char, style) for visible_char in escape_invisible(char)]
    return cells


def wrap_text(text: str, columns: int, style: Style = PLAIN_STYLE) -> Iterator[CellRow]:
    """Yield lines of at most `columns` columns, broken at blanks if there are any."""
    for line in text.replace("\r\n", "\n").split("\n"):
        row = make_cells(line.expandtabs(_TAB_COLUMNS), style)
        start = 0
        while (end := _fit_row(row, columns, start)) < len(row):
            blank = next((index for index in range(end, start, -1) if row[index].text == " "), None)
            yield row[start : end if blank is None else blank]
            start = end if blank is None else blank + 1
        yield row[start:]


def measure_row(row: Sequence[Cell]) -> int:
    """Return the width of a row in columns."""
    return sum(cell.width for cell in row)


def make_screen(rows: Sequence[Sequence[Cell]], columns: int, height: int, title: str = "") -> Screen:
    """Convert rows of cells to a screen of this size, truncated or filled with blanks."""
    lines = [_fill_row(row, columns) for row in rows[:height]]
    lines += [_fill_row((), columns) for _ in range(height - len(lines))]
    return Screen(columns, height, lines, Cursor(0, 0, visible=False), title)


def _fill_row(row: Sequence[Cell], columns: int) -> CellRow:
    """Truncate or fill a row to this width. The background of its last cell continues."""
    cells = list(row[: _fit_row(row, columns)])
    background = cells[-1].style.background if cells else None
    blank = Cell(style=Style(background=background)) if background is not None else Cell()
    return [*cells, *[blank] * (columns - measure_row(cells))]


def _fit_row(row: Sequence[Cell], columns: int, start: int = 0) -> int:
    """Return the index of the first cell after `start` that does not fit into the columns."""
    remaining = columns
    for index in range(start, len(row)):
        remaining -= row[index].width
        if remaining < 0:
            return index
    return len(row)


def render_conversation(messages: Sequence[SessionMessage], info: SessionInfo, columns: int, rows: int) -> Screen:
    """Render the newest messages, as many lines of them as fit."""
    columns = max(columns, MIN_COLUMNS)
    rows = max(rows, MIN_ROWS)
    title = info.title or info.id
    summary = " · ".join(filter(None, (title, info.workspace, info.status, info.detail)))
    header = [
        make_cells(f" {RENDERING_NOTICE}".ljust(columns), _HEAD_STYLE),
        make_cells(f" {summary}", _FAINT_STYLE),
        [],
    ]
    available = rows - len(header)
    lines: list[CellRow] = []
    for message in reversed(messages):
        lines = [*_render_message(message, columns, available), *([[], *lines] if lines else [])]
        if len(lines) > available:
            break
    if not messages:
        lines = [make_cells("There are no messages yet.", _FAINT_STYLE)]
    if len(lines) > available:
        lines = [make_cells("… earlier messages are not shown", _FAINT_STYLE), *lines[len(lines) - available + 1 :]]
    return make_screen([*header, *lines], columns, rows, title)


def _render_message(message: SessionMessage, columns: int, max_rows: int) -> list[CellRow]:
    """Return the lines of a message, or at least as many of the last ones as fill the screen."""
    is_user = message.role == "user"
    lines: list[CellRow] = []
    # A cell takes at least one character, so no more characters than this can be visible.
    max_chars = columns * (max_rows + 1)
    for part in iterate_content(message):
        if isinstance(part, str):
            lines += _indent(part[-max_chars:], columns, _TEXT_STYLE, "┃ " if is_user else "  ", _USER_STYLE)
        else:
            lines += _indent(_describe_run(part)[:max_chars], columns, _STATUS_STYLES.get(part.status, _FAINT_STYLE))
    if message.error:
        lines += _indent(f"failed: {message.error}"[:max_chars], columns, _ERROR_STYLE)
    return lines or [make_cells("  …", _FAINT_STYLE)]


def _describe_run(run: ToolRun) -> str:
    text = " ".join(filter(None, (run.tool, run.title, run.status)))
    return f"▪ {text}" + (f": {run.error}" if run.error else "")


def _indent(
    text: str, columns: int, style: Style, edge: str = "  ", edge_style: Style = _FAINT_STYLE
) -> Iterator[CellRow]:
    """Yield wrapped lines, each after an edge of two columns."""
    for row in wrap_text(text, columns - _INDENT, style):
        yield [*make_cells(edge, edge_style), *row]
