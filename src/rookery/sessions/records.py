"""What every face answers of sessions: the fields of the seed first. Times are in milliseconds since the epoch."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from rookery.system.errors import RookeryError

Status = Literal["active", "idle", "error"]
# What a wait tells while it lasts.
Progress = Callable[[str], Awaitable[None]]


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields are called as in Python here, and in camel case on the wire."""

    def as_dict(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


class SessionInfo(Answer, frozen=True, kw_only=True):
    """`opencode` is OpenCode's own word: `idle`, `busy`, `retry`, `asking` or `interrupted`.

    `detail` tells why the model is asked again, `error` how the last turn failed; `project` and `workspace` are
    the workspace's id and name; `notes` are what is otherwise than was asked for.
    """

    id: str
    directory: str
    status: Status
    message_count: int
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


class ToolRun(Answer, frozen=True, kw_only=True):
    """One run of a tool. `origin` is `execute_tool` for those that were asked for by name, else None.

    `error` is there where `status` is `error` or `aborted`. A command that ran to its end is `completed`, whatever
    its `exit_code`.
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


class MessageShown(Answer, frozen=True, kw_only=True):
    """`content` is its text, `parts` are the tools that it ran. One that is not whole has no `completed`."""

    id: str
    role: str
    content: str
    time: float
    parts: tuple[ToolRun, ...] = ()
    error: str | None = None
    session_id: str = ""
    completed: float | None = None


class Messages(Answer, frozen=True, kw_only=True):
    """In the order in which they were made. `note` tells what a limit has cut off."""

    messages: tuple[MessageShown, ...] = ()
    note: str | None = None


class Toast(Answer, frozen=True, kw_only=True):
    """`session_id` is None where OpenCode has not told whose it is, which it tells of none."""

    message: str
    title: str | None = None
    variant: str = "info"
    duration: float = 0
    shown_at: float = 0
    expires_at: float = 0
    workspace: str = ""
    project: str = ""
    session_id: str | None = None


class AskShown(Answer, frozen=True, kw_only=True):
    """What a session waits for. `session_id` is the session that waits, `asked_by` it or a child that works for it.

    `options` are the words to answer with: of a permission what `reply` can be, of a question the labels of each.
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


class Turn(Answer, frozen=True, kw_only=True):
    """What came of a message. `content` is all that the assistant has said, `parts` the tools that ran.

    `status` is `taken` where nobody waited, `timeout` where the turn goes on, and `error` where it failed with `error`.
    `asks` are what it waits for, `note` tells what it does.
    """

    session_id: str
    message_id: str
    status: Literal["taken", "finished", "error", "timeout"]
    content: str = ""
    parts: tuple[ToolRun, ...] = ()
    error: str | None = None
    messages: tuple[MessageShown, ...] = ()
    asks: tuple[AskShown, ...] = ()
    note: str | None = None


class Waited(Answer, frozen=True, kw_only=True):
    """What came of a wait: what was waited for where `found`, else what was `seen` last.

    `match` is the text that fits the pattern, `screen` what the terminal showed then; `note` tells why a wait ended
    early or what its session waits for.
    `closed`: it ended early because its session was closed.
    """

    found: bool
    session_id: str | None = None
    match: str | None = None
    message: MessageShown | None = None
    toast: Toast | None = None
    tool: ToolRun | None = None
    file: str | None = None
    screen: str | None = None
    session: SessionInfo | None = None
    seen: str | None = None
    note: str | None = None
    closed: bool = False


class Closed(Answer, frozen=True, kw_only=True):
    """`deleted` tells whether its history is gone too."""

    id: str
    closed: bool = True
    deleted: bool = False


class Change(msgspec.Struct, frozen=True):
    """Something of a session is no longer as it was; toasts are of no session. `workspace` is the folder's path."""

    what: Literal["session", "messages", "toasts"]
    workspace: str
    session: str | None = None


def not_found(session: str) -> RookeryError:
    return RookeryError(
        "session-not-found",
        f"there is no session {session!r}",
        "see what there is: list_sessions, or rookery session list",
    )
