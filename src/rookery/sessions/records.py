"""The records that MCP, REST and the SDK return for sessions, their screens and screenshots.

Required fields come first. Times are in milliseconds since the epoch. Rows and columns of a screen count from 0, from
the top and the left.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from rookery.sessions.drawing.picture import PictureFormat
from rookery.sessions.terminal.cells import PLAIN_STYLE, Screen, Style
from rookery.system.errors import RookeryError

SessionStatus = Literal["active", "idle", "error"]
# What a wait waits for.
WaitKind = Literal["message", "toast", "idle", "tool", "file", "screen"]
# Receives a description of the current activity while a caller waits.
Progress = Callable[[str], Awaitable[None]]


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record whose fields are in snake case in Python and in camel case in JSON."""

    def as_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


class SessionInfo(ResponseModel, frozen=True, kw_only=True):
    """A session. `opencode` is OpenCode's own state: `idle`, `busy`, `retry`, `asking` or `interrupted`.

    `detail` is the reason why the model is asked again, `error` the reason why the last turn failed. `project` is the
    id of the project and `workspace` the name of the workspace. `notes` lists what differs from the request.
    `message_count` is None in the result of a wait that did not read the messages.
    """

    id: str
    directory: str
    status: SessionStatus
    message_count: int | None
    last_activity: float
    project: str = ""
    workspace: str = ""
    title: str = ""
    agent: str | None = None
    model: str | None = None
    opencode: str = "idle"
    detail: str = ""
    error: str | None = None
    parent: str | None = None
    notes: tuple[str, ...] = ()


class ToolRun(ResponseModel, frozen=True, kw_only=True):
    """One run of a tool. `origin` is `execute_tool` if the tool was called by name, else None.

    `error` is set if `status` is `error` or `aborted`. A command that ran to its end is `completed`, whatever its
    `exit_code`. `offset` is the number of characters of the message's `content` before the run; None outside a message.
    """

    id: str
    session_id: str
    tool: str
    input: Any = None
    output: str | None = None
    status: Literal["pending", "running", "completed", "error", "aborted"] = "pending"
    start: float | None = None
    end: float | None = None
    error: str | None = None
    origin: str | None = None
    title: str = ""
    exit_code: int | None = None
    message_id: str = ""
    offset: int | None = None


class SessionMessage(ResponseModel, frozen=True, kw_only=True):
    """A message. `content` is its text, `parts` are the tools that it ran. An incomplete message has no `completed`."""

    id: str
    role: str
    content: str
    time: float
    parts: tuple[ToolRun, ...] = ()
    error: str | None = None
    session_id: str = ""
    completed: float | None = None


class MessagePage(ResponseModel, frozen=True, kw_only=True):
    """Messages of a session, in the order in which they were created.

    If older ones are left out, `note` says so, and `before` is the message id with which the previous page is
    requested.
    """

    messages: tuple[SessionMessage, ...] = ()
    note: str | None = None
    before: str | None = None


class Toast(ResponseModel, frozen=True, kw_only=True):
    """A notification. `attributed` is true if its session is known.

    OpenCode names no session, but Rookery knows the sessions of its own toasts.

    `source` is `screen` if the toast was read from the session's terminal, because OpenCode's own interface raised it.
    The variant of such a toast is unknown, and its `duration` and `expires_at` are 0 as long as it is on the screen.
    """

    message: str
    title: str | None = None
    variant: str = "info"
    duration: float = 0
    shown_at: float = 0
    expires_at: float = 0
    workspace: str = ""
    project: str = ""
    session_id: str | None = None
    attributed: bool = False
    source: Literal["event", "screen"] = "event"


class SessionAsk(ResponseModel, frozen=True, kw_only=True):
    """A permission or question that a session waits for.

    `session_id` is the session that waits, `asked_by` the same session or a child that works for it. `options` are the
    possible answers: for a permission the values of `reply`, for a question the labels of each of its questions.
    """

    id: str
    session_id: str
    kind: Literal["permission", "question"]
    text: str
    detail: dict[str, Any] = {}
    options: tuple[tuple[str, ...], ...] = ()
    asked_by: str = ""
    project: str = ""
    workspace: str = ""


class Turn(ResponseModel, frozen=True, kw_only=True):
    """The outcome of a message. `content` is all text of the assistant, `parts` are the tools that ran.

    `status` is `taken` if the caller did not wait, `timeout` if the turn still runs, and `error` if it failed with
    `error`. `asks` are the asks that the turn waits for, `note` describes its activity.
    """

    session_id: str
    message_id: str
    status: Literal["taken", "finished", "error", "timeout"]
    content: str = ""
    parts: tuple[ToolRun, ...] = ()
    error: str | None = None
    messages: tuple[SessionMessage, ...] = ()
    asks: tuple[SessionAsk, ...] = ()
    note: str | None = None


class ShownToast(ResponseModel, frozen=True, kw_only=True):
    """The result of showing a toast."""

    shown: bool = True


class TurnUpdate(ResponseModel, frozen=True, kw_only=True):
    """News of a running turn: the message was `taken`, more `text`, a `tool` that started or ended, or an `ask`.

    `message_id` is the message that started the turn, or the message that has more text.
    """

    kind: Literal["taken", "text", "tool", "ask"]
    message_id: str = ""
    text: str = ""
    tool: ToolRun | None = None
    ask: SessionAsk | None = None


# Receives the updates of a turn. The turn is not followed further until it returns.
TurnReport = Callable[[TurnUpdate], Awaitable[None]]


class WaitResult(ResponseModel, frozen=True, kw_only=True):
    """The result of a wait: the match if `found`, else the last state as `seen`.

    `match` is the text that matches the pattern, `screen` the text of the terminal at that time. `note` says why a wait
    ended early, or what its session waits for. `closed` is true if the wait ended because its session was closed.
    """

    found: bool
    session_id: str | None = None
    match: str | None = None
    message: SessionMessage | None = None
    toast: Toast | None = None
    tool: ToolRun | None = None
    file: str | None = None
    screen: str | None = None
    session: SessionInfo | None = None
    seen: str | None = None
    note: str | None = None
    closed: bool = False


class WaitResults(ResponseModel, frozen=True, kw_only=True):
    """The results of a wait in several sessions, in their order. `found` is whether enough of them match."""

    found: bool
    results: list[WaitResult]


class CloseResult(ResponseModel, frozen=True, kw_only=True):
    """The result of closing a session. `deleted` is true if its history was deleted too."""

    id: str
    closed: bool = True
    deleted: bool = False


class SessionChange(msgspec.Struct, frozen=True):
    """A change of a session, or of the toasts of a workspace. `workspace` is the path of the workspace's folder."""

    what: Literal["session", "messages", "toasts"]
    workspace: str
    session: str | None = None


def session_not_found(session: str) -> RookeryError:
    """Return the error for a session that does not exist or is not open."""
    return RookeryError(
        "session-not-found",
        f"there is no session {session!r}",
        "list the sessions: list_sessions, or rookery session list",
    )


ScreenSource = Literal["terminal", "rendering"]
TextMark = Literal["bold", "dim", "italic", "underline", "strike"]

_TEXT_MARKS: tuple[TextMark, ...] = ("bold", "dim", "italic", "underline", "strike")


class CursorState(ResponseModel, frozen=True, kw_only=True):
    row: int
    column: int
    visible: bool


class ScreenRegion(ResponseModel, frozen=True, kw_only=True):
    """A part of the screen: its position, its size and its text."""

    row: int
    column: int
    rows: int
    columns: int
    text: str


class ScreenRegions(ResponseModel, frozen=True, kw_only=True):
    """The regions that were recognised. `prompt` is the input field with its text, `dialog` waits for an answer.

    `status` is the line below the prompt.
    """

    prompt: ScreenRegion | None = None
    dialog: ScreenRegion | None = None
    toast: ScreenRegion | None = None
    sidebar: ScreenRegion | None = None
    status: ScreenRegion | None = None


class TextRun(ResponseModel, frozen=True, kw_only=True):
    """Adjacent characters of a row with the same style. Colours are `#rrggbb`, None for the terminal's default."""

    column: int
    text: str
    foreground: str | None = None
    background: str | None = None
    marks: tuple[TextMark, ...] = ()


class ScreenState(ResponseModel, frozen=True, kw_only=True):
    """The screen of a session. `source` is OpenCode's own terminal or a rendering of the conversation; `note` says why.

    `runs` has the rows with their colours if those were requested; blank text in the default style is left out.
    """

    session_id: str
    text: str
    lines: tuple[str, ...]
    cursor: CursorState
    title: str
    columns: int
    rows: int
    source: ScreenSource
    regions: ScreenRegions
    note: str | None = None
    runs: tuple[tuple[TextRun, ...], ...] | None = None


def describe_screen(
    session: str,
    screen: Screen,
    source: ScreenSource,
    regions: ScreenRegions,
    *,
    note: str | None = None,
    colours: bool = False,
) -> ScreenState:
    """Convert a screen to a record."""
    lines = screen.lines
    return ScreenState(
        session_id=session,
        text="\n".join(lines).rstrip("\n"),
        lines=tuple(lines),
        cursor=CursorState(row=screen.cursor.row, column=screen.cursor.column, visible=screen.cursor.visible),
        title=screen.title,
        columns=screen.columns,
        rows=screen.rows,
        source=source,
        regions=regions,
        note=note,
        runs=tuple(_text_runs(screen, row) for row in range(screen.rows)) if colours else None,
    )


def _text_runs(screen: Screen, row: int) -> tuple[TextRun, ...]:
    """Group adjacent cells of a row with the same style."""
    runs: list[tuple[int, Style, list[str]]] = []
    column = 0
    for cell in screen.cells[row]:
        if runs and runs[-1][1] == cell.style:
            runs[-1][2].append(cell.text)
        else:
            runs.append((column, cell.style, [cell.text]))
        column += cell.width
    return tuple(
        TextRun(
            column=column,
            text="".join(texts),
            foreground=style.foreground,
            background=style.background,
            marks=tuple(mark for mark in _TEXT_MARKS if getattr(style, mark)),
        )
        for column, style, texts in runs
        if style != PLAIN_STYLE or "".join(texts).strip()
    )


class Screenshot(ResponseModel, frozen=True, kw_only=True):
    """A picture of a session's screen, `width` and `height` in pixels.

    `source` is OpenCode's own terminal or a rendering of the conversation; `note` says why.
    """

    session_id: str
    source: ScreenSource
    format: PictureFormat
    media_type: str
    width: int
    height: int
    columns: int
    rows: int
    size: int
    saved_to: str | None = None
    note: str | None = None


class ScreenshotData(Screenshot, frozen=True, kw_only=True):
    """A screenshot with the picture itself, which is base64 in JSON."""

    data: bytes
