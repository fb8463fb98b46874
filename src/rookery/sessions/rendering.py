"""The conversation of a session as a screen, where no terminal shows it. Its first line says that it is one."""

from collections.abc import Iterator, Sequence

from rookery.sessions.lettering import Row, cells_of, screen_of, wrapped
from rookery.sessions.records import MessageShown, SessionInfo, ToolRun
from rookery.sessions.screen import Screen, Style

SAYS = "A rendering of the conversation, not a terminal"
# Narrower than this nothing can be read, and a wide character may not fit.
NARROWEST, LOWEST = 20, 4

_HEAD = Style(foreground="#0a0a0a", background="#e5c07b", bold=True)
_FAINT = Style(foreground="#808080")
_USER = Style(foreground="#5c9cf5")
_SAID = Style()
_WRONG = Style(foreground="#e06c75")
_STATUS = {"error": _WRONG, "aborted": Style(foreground="#f5a742"), "completed": Style(foreground="#7fd88f")}
_INDENT = 2


def render(messages: Sequence[MessageShown], info: SessionInfo, columns: int, rows: int) -> Screen:
    """The newest messages, as many lines of them as there is room for."""
    columns, rows = max(columns, NARROWEST), max(rows, LOWEST)
    title = info.title or info.id
    about = " · ".join(filter(None, (title, info.workspace, info.status, info.detail)))
    head = [cells_of(f" {SAYS}".ljust(columns), _HEAD), cells_of(f" {about}", _FAINT), []]
    room = rows - len(head)
    lines: list[Row] = []
    for message in reversed(messages):
        lines = [*_message(message, columns, room), *([[], *lines] if lines else [])]
        if len(lines) > room:
            break
    if not messages:
        lines = [cells_of("Nothing was said yet.", _FAINT)]
    if len(lines) > room:
        lines = [cells_of("… what was before is not shown", _FAINT), *lines[len(lines) - room + 1 :]]
    return screen_of([*head, *lines], columns, rows, title)


def _message(message: MessageShown, columns: int, room: int) -> list[Row]:
    """All of its lines, or so many of the last ones that they fill the room."""
    user = message.role == "user"
    lines: list[Row] = []
    # A cell takes a character at least, so no more than these can be seen.
    most = columns * (room + 1)
    for run in message.parts:
        lines += _indented(_run(run)[:most], columns, _STATUS.get(run.status, _FAINT))
    if message.content:
        lines += _indented(message.content[-most:], columns, _SAID, "┃ " if user else "  ", _USER)
    if message.error:
        lines += _indented(f"failed: {message.error}"[:most], columns, _WRONG)
    return lines or [cells_of("  …", _FAINT)]


def _run(run: ToolRun) -> str:
    told = " ".join(filter(None, (run.tool, run.title, run.status)))
    return f"▪ {told}" + (f": {run.error}" if run.error else "")


def _indented(text: str, columns: int, style: Style, edge: str = "  ", edge_style: Style = _FAINT) -> Iterator[Row]:
    for row in wrapped(text, columns - _INDENT, style):
        yield [*cells_of(edge, edge_style), *row]
