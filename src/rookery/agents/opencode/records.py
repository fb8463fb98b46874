"""Sessions, messages and asks as OpenCode's API returns them.

Only the fields that are used are declared, so that the others may change between versions.
"""

from typing import Any, TypeAlias

import msgspec

from rookery.agents.opencode.errors import explain_message

# The name of the error of an aborted turn.
ABORTED_ERROR = "MessageAbortedError"


class OpenCodeRecord(msgspec.Struct, frozen=True):
    """Base of OpenCode's records. A missing field has its default; additional fields are ignored."""


class SessionTimes(OpenCodeRecord, frozen=True):
    """Times of a session, in milliseconds since the epoch like all times here."""

    created: float = 0
    updated: float = 0
    archived: float | None = None


class ModelRef(OpenCodeRecord, frozen=True, rename={"provider": "providerID"}):
    """A model as a session names it."""

    provider: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.provider}/{self.id}"


class Session(OpenCodeRecord, frozen=True, rename={"parent": "parentID"}):
    """A session. `parent` is the session that it is a child of, None for a root; `permission` are its own rules."""

    id: str
    directory: str = ""
    title: str = ""
    parent: str | None = None
    agent: str | None = None
    model: ModelRef | None = None
    permission: tuple[dict[str, str], ...] = ()
    time: SessionTimes = SessionTimes()
    metadata: dict[str, Any] | None = None


class SessionStatus(OpenCodeRecord, frozen=True):
    """Activity of a session: `idle`, `busy`, or `retry` after the model failed with `message`."""

    type: str
    attempt: int = 0
    message: str = ""
    next: float = 0


# Messages


class MessageTimes(OpenCodeRecord, frozen=True):
    created: float = 0
    completed: float | None = None


class TurnError(OpenCodeRecord, frozen=True):
    """The error of a failed turn, as OpenCode reports it."""

    name: str = ""
    data: dict[str, Any] = {}

    @property
    def message(self) -> str:
        message = self.data.get("message")
        return explain_message(message) if isinstance(message, str) and message else self.name


class MessageInfo(OpenCodeRecord, frozen=True, rename={"session": "sessionID", "parent": "parentID"}):
    """Data of a message. `finish` is why the model stopped; an assistant's message without `completed` is partial.

    `parent` of an assistant's message is the message that it answers.
    """

    id: str
    role: str
    session: str = ""
    time: MessageTimes = MessageTimes()
    finish: str | None = None
    error: TurnError | None = None
    parent: str | None = None


class PartTimes(OpenCodeRecord, frozen=True):
    start: float | None = None
    end: float | None = None


class ToolState(OpenCodeRecord, frozen=True):
    """State of a tool call. `status` is `pending`, `running`, `completed` or `error`; the tool sets `metadata`."""

    status: str = ""
    input: Any = None
    output: str | None = None
    error: str | None = None
    title: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    time: PartTimes = PartTimes()


class Part(OpenCodeRecord, frozen=True, rename={"message": "messageID", "call": "callID"}):
    """Part of a message. A part of type `tool` has `tool`, `call` and `state`; `text` and `reasoning` have `text`.

    `call` is the id that the model has given to the tool call.
    """

    id: str = ""
    type: str = ""
    message: str = ""
    text: str | None = None
    tool: str | None = None
    call: str = ""
    state: ToolState | None = None
    time: PartTimes = PartTimes()


class Message(OpenCodeRecord, frozen=True):
    info: MessageInfo
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in self.parts if part.type == "text")


# Asks


class ToolCallRef(OpenCodeRecord, frozen=True, rename={"message": "messageID", "call": "callID"}):
    """The tool call that an ask comes from."""

    message: str = ""
    call: str = ""


class Permission(OpenCodeRecord, frozen=True, rename={"session": "sessionID", "cause": "tool"}):
    """A request of a session for the permission to use the tool `permission` on `patterns`."""

    id: str
    session: str
    permission: str = ""
    patterns: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    always: tuple[str, ...] = ()
    cause: ToolCallRef | None = None

    @property
    def kind(self) -> str:
        return "permission"

    @property
    def text(self) -> str:
        return f"{self.permission}: {', '.join(self.patterns)}" if self.patterns else self.permission


class GatewayPermission(Permission, frozen=True):
    """A permission that Rookery's gateway asks for. OpenCode does not know it."""


class QuestionOption(OpenCodeRecord, frozen=True):
    label: str = ""
    description: str = ""


class QuestionItem(OpenCodeRecord, frozen=True):
    question: str = ""
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multiple: bool = False


class Question(OpenCodeRecord, frozen=True, rename={"session": "sessionID", "cause": "tool"}):
    """Questions of a session to a person, each of which needs an answer."""

    id: str
    session: str
    questions: tuple[QuestionItem, ...] = ()
    cause: ToolCallRef | None = None

    @property
    def kind(self) -> str:
        return "question"

    @property
    def text(self) -> str:
        return " / ".join(query.question for query in self.questions)


Ask: TypeAlias = Permission | Question
