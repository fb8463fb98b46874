"""The inputs of the session tools, from which their schemas are generated. Times are in milliseconds."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

_SESSION = "Id of the session, as returned by list_sessions"
_PATTERN = "Regex pattern to match"
_SINCE = "Time in milliseconds since the epoch"

Session = Annotated[str, Meta(description=_SESSION)]
AnySession = Annotated[str | None, Meta(description="Id of the session; default: all that you may access")]
Milliseconds = Annotated[float, Meta(description="How long to wait at most, in milliseconds")]


class NoInput(msgspec.Struct):
    """No arguments; any are ignored."""


class CreateSession(msgspec.Struct):
    directory: Annotated[
        str, Meta(description="Working directory: the path of a workspace; a folder in it means the whole workspace")
    ]
    agent: Annotated[str | None, Meta(description="Agent type (e.g., claude, gpt), or an agent of OpenCode")] = None
    model: Annotated[str | None, Meta(description="Model identifier, as provider/model")] = None
    title: Annotated[str | None, Meta(description="Title of the session")] = None


class OneSession(msgspec.Struct):
    sessionId: Session


class CloseSession(msgspec.Struct):
    sessionId: Session
    delete: Annotated[bool, Meta(description="If true, delete its history too")] = False


class SendMessage(msgspec.Struct):
    sessionId: Session
    content: Annotated[str, Meta(description="The message")]
    waitForResponse: Annotated[bool, Meta(description="If false, return as soon as the message is accepted")] = True
    timeout: Milliseconds = 30_000
    agent: Annotated[str | None, Meta(description="Agent for this turn; default: that of the session")] = None
    model: Annotated[str | None, Meta(description="Model for this turn, as provider/model")] = None


class GetMessages(msgspec.Struct):
    sessionId: Session
    limit: Annotated[float, Meta(description="Maximum number of messages; the newest are returned")] = 50
    since: Annotated[float | None, Meta(description="Timestamp to get messages after, in milliseconds")] = None
    before: Annotated[
        str | None, Meta(description="Id of a message: get the newest ones before it, to page through older messages")
    ] = None


class WaitForMessage(msgspec.Struct):
    sessionId: Session
    pattern: Annotated[str, Meta(description=_PATTERN)]
    timeout: Milliseconds = 30_000
    role: Annotated[
        Literal["user", "assistant"] | None, Meta(description="Only messages of the user, or of the assistant")
    ] = None
    since: Annotated[float | None, Meta(description=f"{_SINCE}; messages before it do not count")] = None


class GetToasts(msgspec.Struct):
    sessionId: AnySession = None
    since: Annotated[
        float | None, Meta(description=f"{_SINCE}: all toasts since then, including those no longer displayed")
    ] = None


class WaitForToast(msgspec.Struct):
    sessionId: Session
    pattern: Annotated[str, Meta(description="Regex pattern to match toast")]
    timeout: Milliseconds = 10_000
    since: Annotated[float | None, Meta(description=f"{_SINCE}; toasts before it do not count")] = None


class ExecuteTool(msgspec.Struct):
    sessionId: Session
    tool: Annotated[
        str,
        Meta(
            description="read, write, bash, edit, grep, or any other tool that the agent has",
            examples=["read", "write", "bash", "edit", "grep"],
        ),
    ]
    args: Annotated[dict[str, Any], Meta(description="Arguments of the tool, as the model would give them")]
    waitForCompletion: Annotated[bool, Meta(description="If false, return the id of the run at once")] = True
    timeout: Milliseconds = 120_000


class GetToolHistory(msgspec.Struct):
    sessionId: AnySession = None
    limit: Annotated[float, Meta(description="Maximum number of runs; the newest are returned")] = 20


class ListAsks(msgspec.Struct, forbid_unknown_fields=True):
    sessionId: AnySession = None


class AnswerAsk(msgspec.Struct, forbid_unknown_fields=True):
    askId: Annotated[str, Meta(description="Id of the permission or question, as returned by list_asks")]
    reply: Annotated[
        Literal["once", "always", "reject"] | None,
        Meta(description="To a permission: allow it once, always, or not; reject also declines a question"),
    ] = None
    answers: Annotated[
        list[list[str]] | None, Meta(description="To questions: for each one the labels that are chosen")
    ] = None
    message: Annotated[
        str | None, Meta(description="With reject: a message to the model, which then continues; without it, it stops")
    ] = None
