"""`session`: tools to control and read the sessions of agents."""

from collections.abc import Sequence
from pathlib import Path

from rookery.plugins.boulder.service import Boulder
from rookery.sessions.records import (
    CloseResult,
    SessionAsk,
    SessionInfo,
    SessionMessage,
    Toast,
    ToolRun,
    Turn,
    WaitResult,
)
from rookery.sessions.service import Sessions
from rookery.toolsets.session import inputs
from rookery.toolsets.session.calls import SessionCalls
from rookery.toolsets.session.prompts import session_prompts
from rookery.toolsets.session.resources import BoulderResources, SessionChanges, session_resources
from rookery.toolsets.session.screen import TuiStateCalls
from rookery.toolsets.toolset import Tool, Toolset


def session_toolset(
    sessions: Sessions,
    scope: Path | None,
    boulder: Boulder,
    extra_tools: Sequence[Tool] = (),
) -> Toolset:
    """Return the toolset for clients that may only access the sessions of `scope`, or all."""
    calls, boulder_resources = SessionCalls(sessions, scope), BoulderResources(boulder, scope)
    toolset = Toolset(
        "session",
        [
            *_session_tools(calls),
            *_message_tools(calls),
            *TuiStateCalls(sessions, scope).tools(),
            *_execution_tools(calls),
            *extra_tools,
        ],
        [*session_resources(calls), *boulder_resources.resources()],
        session_prompts(calls.complete_id),
    )
    changes = SessionChanges(sessions, toolset, scope)

    def on_watched(uris: frozenset[str]) -> None:
        changes.set_watched(uris)
        boulder_resources.set_watched(toolset, uris)

    toolset.on_watched = on_watched
    return toolset


def _session_tools(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "create_session",
            "Create a new OpenCode session in the workspace that contains `directory`, with the root of that workspace "
            "as its working directory; the agent is started if it does not run. Returns its id and workspace. `notes` "
            "lists anything that differs from your request.",
            calls.create,
            input_type=inputs.CreateSession,
            output_type=SessionInfo,
        ),
        Tool(
            "list_sessions",
            "List all active sessions: id, directory, status (active, idle, error), number of messages and last "
            "activity of each, the one used last first.",
            calls.list,
            input_type=inputs.NoInput,
            output_type=list[SessionInfo],
            read_only=True,
        ),
        Tool(
            "get_session",
            "Get session details: what it does, with OpenCode's own status beside it, and how its last turn failed.",
            calls.get,
            input_type=inputs.OneSession,
            output_type=SessionInfo,
            read_only=True,
        ),
        Tool(
            "close_session",
            "Close a session: its turn and all calls that wait for it end, and it is no longer listed. OpenCode keeps "
            "its history, unless `delete` is true.",
            calls.close,
            input_type=inputs.CloseSession,
            output_type=CloseResult,
            destructive=True,
        ),
    ]


def _message_tools(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "send_message",
            "Send a message to OpenCode session. Waits for the end of the turn and returns what the assistant said and "
            "which tools it ran; after `timeout` returns status timeout and the result so far, while the turn goes on.",
            calls.send,
            input_type=inputs.SendMessage,
            output_type=Turn,
        ),
        Tool(
            "get_messages",
            "Get all messages in session: the newest ones, in the order they were made, each with its text as content. "
            "A note after the list says when older messages are left out, and with which `before` you get them.",
            calls.messages,
            input_type=inputs.GetMessages,
            output_type=list[SessionMessage],
            read_only=True,
        ),
        Tool(
            "wait_for_message",
            "Wait for specific message pattern. Existing messages count. On timeout, found is "
            "false and seen contains what was seen last.",
            calls.wait_for_message,
            input_type=inputs.WaitForMessage,
            output_type=WaitResult,
            read_only=True,
        ),
        Tool(
            "get_toasts",
            "Get current toast notifications of a session, or of all; with `since` also those no longer displayed. "
            "Toasts of other sessions are left out; one whose session is not known is there, with `attributed` false. "
            "`source` is `screen` for one that OpenCode's own interface has raised on the session's terminal.",
            calls.toasts,
            input_type=inputs.GetToasts,
            output_type=list[Toast],
            read_only=True,
        ),
        Tool(
            "wait_for_toast",
            "Wait for specific toast message of a session. Displayed toasts count, those of other sessions do not; one "
            "whose session is not known does, and `attributed` is false. On timeout, found is false and seen "
            "contains what was seen last.",
            calls.wait_for_toast,
            input_type=inputs.WaitForToast,
            output_type=WaitResult,
            read_only=True,
        ),
    ]


def _execution_tools(calls: SessionCalls) -> list[Tool]:
    return [
        Tool(
            "execute_tool",
            "Execute an OpenCode tool programmatically, in the session's directory and under its permissions; the "
            "conversation stays as it is. A tool that needs permission waits until the user has answered.",
            calls.execute,
            input_type=inputs.ExecuteTool,
            output_type=ToolRun,
            destructive=True,
        ),
        Tool(
            "get_tool_history",
            "Get history of tool executions, the newest, in the order they began: input, output, status, start, end "
            "and error of each.",
            calls.history,
            input_type=inputs.GetToolHistory,
            output_type=list[ToolRun],
            read_only=True,
        ),
        Tool(
            "list_asks",
            "List the permissions and questions that sessions wait for. Only for the owner.",
            calls.asks,
            input_type=inputs.ListAsks,
            output_type=list[SessionAsk],
            read_only=True,
        ),
        Tool(
            "answer_ask",
            "Answer a permission or a question that a session waits for. Only for the owner, and only as the user "
            "told you to.",
            calls.answer,
            input_type=inputs.AnswerAsk,
            output_type=SessionAsk,
            destructive=True,
        ),
    ]
