"""What plugins are told: one kind of event for each family of hooks. Times are in milliseconds since the epoch."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rookery.sessions.records import AskShown, Toast, ToolRun


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`hook` is the name of what happened, `path` the folder of the workspace where it did, `workspace` its name.

    `project` is the project's id. Where a tool was called without a workspace, all three are empty.
    """

    hook: str
    at: float = 0
    project: str = ""
    workspace: str = ""
    path: str = ""


class SessionEvent(Event, frozen=True, kw_only=True):
    """`session.*`. `parent` is the session that this one works for; the one a person talks to has none.

    `found` is true where nothing has changed: the session was there, idle or busy, when its agent began to be watched,
    as after a restart. Of `session.error`, `error` tells what failed, and `aborted` whether somebody ended the turn.
    """

    session_id: str
    title: str = ""
    parent: str | None = None
    found: bool = False
    error: str | None = None
    aborted: bool = False


class MessageEvent(Event, frozen=True, kw_only=True):
    """`message.added`: a message is whole. `role` is `user` or `assistant`."""

    session_id: str
    message_id: str
    role: str
    content: str
    error: str | None = None


class ToolEvent(Event, frozen=True, kw_only=True):
    """`tool.started` and `tool.finished`: a tool of OpenCode ran in a session; `run.status` tells how it ended."""

    session_id: str
    run: ToolRun


class AskEvent(Event, frozen=True, kw_only=True):
    """`ask.opened` and `ask.answered`: a session waits for a person, or no longer. `found` as of sessions."""

    session_id: str
    ask: AskShown
    found: bool = False


class ToastEvent(Event, frozen=True, kw_only=True):
    """`toast.shown`. OpenCode does not tell whose it is, so that it belongs to a workspace."""

    toast: Toast


class CallEvent(Event, frozen=True, kw_only=True):
    """`tool.execute.*`: a call of a tool through the gateway. `name` is its public name, `server` who has it.

    `result` is there after the call.
    """

    server: str
    tool: str
    name: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None = None


BEFORE: Final = "tool.execute.before"
AFTER: Final = "tool.execute.after"

HOOKS: Final[Mapping[str, type[Event]]] = {
    "session.created": SessionEvent,
    "session.idle": SessionEvent,
    "session.busy": SessionEvent,
    "session.error": SessionEvent,
    "session.closed": SessionEvent,
    "message.added": MessageEvent,
    "tool.started": ToolEvent,
    "tool.finished": ToolEvent,
    "ask.opened": AskEvent,
    "ask.answered": AskEvent,
    "toast.shown": ToastEvent,
    BEFORE: CallEvent,
    AFTER: CallEvent,
}
