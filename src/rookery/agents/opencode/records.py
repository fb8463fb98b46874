"""What OpenCode tells of sessions, messages and asks: the fields that are used; those that are not may change."""

from typing import Any, TypeAlias

import msgspec


class Record(msgspec.Struct, frozen=True):
    """Fields that a version does not send have their default, and those that it sends beyond them are ignored."""


class SessionTimes(Record, frozen=True):
    """In milliseconds since the epoch, as all times here."""

    created: float = 0
    updated: float = 0
    archived: float | None = None


class ModelName(Record, frozen=True, rename={"provider": "providerID"}):
    """As a session names it."""

    provider: str = ""
    id: str = ""

    def __str__(self) -> str:
        return f"{self.provider}/{self.id}"


class Session(Record, frozen=True, rename={"parent": "parentID"}):
    """`parent` is the session that this one is a child of, None for a root; `permission` are its own rules."""

    id: str
    directory: str = ""
    title: str = ""
    parent: str | None = None
    agent: str | None = None
    model: ModelName | None = None
    permission: tuple[dict[str, str], ...] = ()
    time: SessionTimes = SessionTimes()


class Doing(Record, frozen=True):
    """What a session does: `idle`, `busy`, or `retry` after the model failed with `message`."""

    type: str
    attempt: int = 0
    message: str = ""
    next: float = 0


# ---- messages


class MessageTimes(Record, frozen=True):
    created: float = 0
    completed: float | None = None


class Fault(Record, frozen=True):
    name: str = ""
    data: dict[str, Any] = {}

    @property
    def message(self) -> str:
        told = self.data.get("message")
        return told if isinstance(told, str) and told else self.name


class MessageInfo(Record, frozen=True, rename={"session": "sessionID", "parent": "parentID"}):
    """`finish` says why the model stopped; an assistant's message that has no `completed` is not whole.

    `parent` of an assistant's message is the one that it answers.
    """

    id: str
    role: str
    session: str = ""
    time: MessageTimes = MessageTimes()
    finish: str | None = None
    error: Fault | None = None
    parent: str | None = None


class PartTimes(Record, frozen=True):
    start: float | None = None
    end: float | None = None


class ToolState(Record, frozen=True):
    """`status` is `pending`, `running`, `completed` or `error`; `metadata` is whatever the tool gives."""

    status: str = ""
    input: Any = None
    output: str | None = None
    error: str | None = None
    title: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    time: PartTimes = PartTimes()


class Part(Record, frozen=True, rename={"message": "messageID", "call": "callID"}):
    """`tool`, `call` and `state` are there where `type` is `tool`, `text` where it is `text` or `reasoning`.

    `call` is the id that the model has given to the call of the tool.
    """

    id: str = ""
    type: str = ""
    message: str = ""
    text: str | None = None
    tool: str | None = None
    call: str = ""
    state: ToolState | None = None
    time: PartTimes = PartTimes()


class Message(Record, frozen=True):
    info: MessageInfo
    parts: tuple[Part, ...] = ()

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in self.parts if part.type == "text")


# ---- asks


class Cause(Record, frozen=True, rename={"message": "messageID", "call": "callID"}):
    """The tool call that an ask comes from."""

    message: str = ""
    call: str = ""


class Permission(Record, frozen=True, rename={"session": "sessionID", "cause": "tool"}):
    """A session waits for leave to use the tool `permission` on `patterns`."""

    id: str
    session: str
    permission: str = ""
    patterns: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    always: tuple[str, ...] = ()
    cause: Cause | None = None

    @property
    def kind(self) -> str:
        return "permission"

    @property
    def text(self) -> str:
        return f"{self.permission}: {', '.join(self.patterns)}" if self.patterns else self.permission


class Option(Record, frozen=True):
    label: str = ""
    description: str = ""


class Query(Record, frozen=True):
    question: str = ""
    header: str = ""
    options: tuple[Option, ...] = ()
    multiple: bool = False


class Question(Record, frozen=True, rename={"session": "sessionID", "cause": "tool"}):
    """A session waits for a person's answer to each of `questions`."""

    id: str
    session: str
    questions: tuple[Query, ...] = ()
    cause: Cause | None = None

    @property
    def kind(self) -> str:
        return "question"

    @property
    def text(self) -> str:
        return " / ".join(query.question for query in self.questions)


Ask: TypeAlias = Permission | Question
