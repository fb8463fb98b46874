"""`session`: conversations of agents, driven and read from outside of them."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rookery.plugins.boulder.service import Boulder
from rookery.sessions.records import (
    AskShown,
    Closed,
    MessageShown,
    SessionInfo,
    Toast,
    ToolRun,
    Turn,
    Waited,
)
from rookery.sessions.service import Sessions
from rookery.toolsets import session_shapes as shapes
from rookery.toolsets.session_boulder import BoulderResources
from rookery.toolsets.session_calls import SessionCalls
from rookery.toolsets.session_changes import SessionChanges
from rookery.toolsets.session_prompts import session_prompts
from rookery.toolsets.session_resources import session_resources
from rookery.toolsets.session_screen import ScreenCalls
from rookery.toolsets.toolset import Tool, Toolset


def session_toolset(
    sessions: Sessions,
    scope: Path | None,
    answering: Callable[[], Awaitable[None]],
    boulder: Boulder,
    more: Sequence[Tool] = (),
) -> Toolset:
    """For clients that see the sessions of `scope` only, or all. `answering` raises where nobody may answer asks."""
    calls, rolling = SessionCalls(sessions, scope, answering), BoulderResources(boulder, scope)
    made = Toolset(
        "session",
        [
            *_about_sessions(calls),
            *_about_messages(calls),
            *ScreenCalls(sessions, scope).tools(),
            *_about_work(calls),
            *more,
        ],
        [*session_resources(calls), *rolling.resources()],
        session_prompts(calls.complete),
    )
    changes = SessionChanges(sessions, made, scope)

    def watched(uris: frozenset[str]) -> None:
        changes.watched(uris)
        rolling.watched(made, uris)

    made.on_watched = watched
    return made


def _about_sessions(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "create_session",
            "Create a new OpenCode session in a workspace, whose agent is started if it does not run. Answers its id, "
            "and what is otherwise than you asked for in `notes`.",
            calls.create,
            takes=shapes.CreateSession,
            gives=SessionInfo,
        ),
        Tool(
            "list_sessions",
            "List all active sessions: id, directory, status (active, idle, error), number of messages and last "
            "activity of each, the one used last first.",
            calls.list,
            takes=shapes.NoInput,
            gives=list[SessionInfo],
            read_only=True,
        ),
        Tool(
            "get_session",
            "Get session details: what it does, with OpenCode's own status beside it, and how its last turn failed.",
            calls.get,
            takes=shapes.OneSession,
            gives=SessionInfo,
            read_only=True,
        ),
        Tool(
            "close_session",
            "Close a session: its turn and whatever waits for it end, and it is listed no longer. OpenCode keeps its "
            "history, unless `delete` is true.",
            calls.close,
            takes=shapes.CloseSession,
            gives=Closed,
            destructive=True,
        ),
    ]


def _about_messages(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "send_message",
            "Send a message to OpenCode session. Waits for the end of the turn and answers what the assistant said and "
            "which tools it ran; past `timeout` with status timeout and what there is so far, while the turn goes on.",
            calls.send,
            takes=shapes.SendMessage,
            gives=Turn,
        ),
        Tool(
            "get_messages",
            "Get all messages in session: the newest ones, in the order they were made, each with its text as content.",
            calls.messages,
            takes=shapes.GetMessages,
            gives=list[MessageShown],
            read_only=True,
        ),
        Tool(
            "wait_for_message",
            "Wait for specific message pattern. Messages that are there already count. When time runs out, found is "
            "false and seen tells what was seen last.",
            calls.wait_for_message,
            takes=shapes.WaitForMessage,
            gives=Waited,
            read_only=True,
        ),
        Tool(
            "get_toasts",
            "Get current toast notifications of a session's workspace, or of all; with `since` also those gone by now.",
            calls.toasts,
            takes=shapes.GetToasts,
            gives=list[Toast],
            read_only=True,
        ),
        Tool(
            "wait_for_toast",
            "Wait for specific toast message in the session's workspace. Toasts on show count. When time runs out, "
            "found is false and seen tells what was seen last.",
            calls.wait_for_toast,
            takes=shapes.WaitForToast,
            gives=Waited,
            read_only=True,
        ),
    ]


def _about_work(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "execute_tool",
            "Execute an OpenCode tool programmatically, in the session's directory and under its permissions; the "
            "conversation stays as it is. A tool that needs permission waits until the user has answered.",
            calls.execute,
            takes=shapes.ExecuteTool,
            gives=ToolRun,
            destructive=True,
        ),
        Tool(
            "get_tool_history",
            "Get history of tool executions, the newest, in the order they began: input, output, status, start, end "
            "and error of each.",
            calls.history,
            takes=shapes.GetToolHistory,
            gives=list[ToolRun],
            read_only=True,
        ),
        Tool(
            "list_asks",
            "List what sessions wait for: permissions and questions. Only for the owner.",
            calls.asks,
            takes=shapes.ListAsks,
            gives=list[AskShown],
            read_only=True,
        ),
        Tool(
            "answer_ask",
            "Answer a permission or a question that a session waits for. Only for the owner, and only as the user "
            "told you to.",
            calls.answer,
            takes=shapes.AnswerAsk,
            gives=AskShown,
            destructive=True,
        ),
    ]
