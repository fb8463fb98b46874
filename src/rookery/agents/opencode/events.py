"""OpenCode's events about sessions, messages and toasts, decoded. All others are ignored.

`SnapshotLoaded` and `ProcessEnded` are Rookery's own.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from rookery.agents.opencode.records import Ask, MessageInfo, Permission, Question, Session, SessionStatus, TurnError

logger = logging.getLogger("rookery.agents.events")

# The first event of every stream: from then on no event is missed.
CONNECTED_EVENT = "server.connected"
T = TypeVar("T")


class MessageUpdated(msgspec.Struct, frozen=True):
    """A message was created or changed; its parts have events of their own."""

    session: str
    info: MessageInfo


class MessageRemoved(msgspec.Struct, frozen=True):
    session: str
    message: str


class PartUpdated(msgspec.Struct, frozen=True):
    """A part changed. `part` is an encoded `records.Part`: there are many, and receivers decode the few they need."""

    session: str
    part: msgspec.Raw


class PartDelta(msgspec.Struct, frozen=True):
    """The only event that contains a difference: `text` is appended to `field` of the part."""

    session: str
    message: str
    part: str
    field: str
    text: str


class PartRemoved(msgspec.Struct, frozen=True):
    session: str
    message: str
    part: str


class ToastShown(msgspec.Struct, frozen=True):
    """A toast is shown. `duration` is in milliseconds."""

    message: str = ""
    title: str | None = None
    variant: str = "info"
    duration: float = 5000


class SessionUpdated(msgspec.Struct, frozen=True):
    """A session was created or changed."""

    session: Session


class SessionDeleted(msgspec.Struct, frozen=True):
    session: str


class SessionStatusChanged(msgspec.Struct, frozen=True):
    session: str
    status: SessionStatus


class AskOpened(msgspec.Struct, frozen=True):
    ask: Ask


class AskAnswered(msgspec.Struct, frozen=True):
    """An ask was answered, by anyone. A rejected question counts as answered."""

    session: str
    ask: str


class TurnFailed(msgspec.Struct, frozen=True):
    """A turn failed. `session` is empty if OpenCode does not name it."""

    session: str
    error: TurnError


# Rookery's own events


class SnapshotLoaded(msgspec.Struct, frozen=True):
    """The states of all sessions were read, at the beginning or because events were missed."""


class ProcessEnded(msgspec.Struct, frozen=True):
    """The process of the agent has ended."""


AgentSessionEvent: TypeAlias = SessionUpdated | SessionDeleted | SessionStatusChanged | AskOpened | AskAnswered
AgentMessageEvent: TypeAlias = MessageUpdated | MessageRemoved | PartUpdated | PartDelta | PartRemoved
AgentEvent: TypeAlias = AgentSessionEvent | AgentMessageEvent | TurnFailed | ToastShown | SnapshotLoaded | ProcessEnded


class EventEnvelope(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    properties: msgspec.Raw = msgspec.Raw(b"{}")


_read_envelope = msgspec.json.Decoder(EventEnvelope).decode


def decode_event(data: bytes) -> tuple[str, AgentEvent | None]:
    """Return the type of an event, and the event itself if its type is used."""
    try:
        envelope = _read_envelope(data)
    except ValueError:
        logger.debug("an invalid event is ignored: %r", data[:200])
        return "", None
    read = _READERS.get(envelope.type)
    if read is None:
        return envelope.type, None
    try:
        return envelope.type, read(envelope.properties)
    except ValueError as error:
        # The next subscription reads the state that this event would have reported.
        logger.warning("OpenCode's event %s has an unexpected form: %s", envelope.type, error)
        return envelope.type, None


# Properties of events


class _SessionProperties(msgspec.Struct, frozen=True):
    session: str = msgspec.field(name="sessionID")


class _InfoProperties(msgspec.Struct, frozen=True):
    info: Session


class _StatusProperties(_SessionProperties, frozen=True):
    status: SessionStatus


class _RequestProperties(_SessionProperties, frozen=True):
    request: str = msgspec.field(name="requestID")


class _MessageProperties(_SessionProperties, frozen=True):
    info: MessageInfo


class _PartProperties(_SessionProperties, frozen=True):
    part: msgspec.Raw


class _DeltaProperties(_SessionProperties, frozen=True):
    message: str = msgspec.field(name="messageID")
    part: str = msgspec.field(name="partID", default="")
    field: str = "text"
    delta: str = ""


class _ErrorProperties(msgspec.Struct, frozen=True):
    session: str = msgspec.field(name="sessionID", default="")
    error: TurnError = TurnError()


def _reader(kind: type[T], make: Callable[[T], AgentEvent]) -> Callable[[msgspec.Raw], AgentEvent]:
    decoder = msgspec.json.Decoder(kind)
    return lambda properties: make(decoder.decode(properties))


_read_session_update = _reader(_InfoProperties, lambda properties: SessionUpdated(properties.info))
_read_answer = _reader(_RequestProperties, lambda properties: AskAnswered(properties.session, properties.request))

_READERS: dict[str, Callable[[msgspec.Raw], AgentEvent]] = {
    "session.created": _read_session_update,
    "session.updated": _read_session_update,
    "session.deleted": _reader(_InfoProperties, lambda properties: SessionDeleted(properties.info.id)),
    "session.status": _reader(
        _StatusProperties, lambda properties: SessionStatusChanged(properties.session, properties.status)
    ),
    "session.idle": _reader(
        _SessionProperties, lambda properties: SessionStatusChanged(properties.session, SessionStatus("idle"))
    ),
    "session.error": _reader(_ErrorProperties, lambda properties: TurnFailed(properties.session, properties.error)),
    "permission.asked": _reader(Permission, AskOpened),
    "permission.replied": _read_answer,
    "question.asked": _reader(Question, AskOpened),
    "question.replied": _read_answer,
    "question.rejected": _read_answer,
    "message.updated": _reader(
        _MessageProperties, lambda properties: MessageUpdated(properties.session, properties.info)
    ),
    "message.removed": _reader(
        _DeltaProperties, lambda properties: MessageRemoved(properties.session, properties.message)
    ),
    "message.part.updated": _reader(
        _PartProperties, lambda properties: PartUpdated(properties.session, properties.part)
    ),
    "message.part.delta": _reader(
        _DeltaProperties,
        lambda properties: PartDelta(
            properties.session, properties.message, properties.part, properties.field, properties.delta
        ),
    ),
    "message.part.removed": _reader(
        _DeltaProperties, lambda properties: PartRemoved(properties.session, properties.message, properties.part)
    ),
    "tui.toast.show": _reader(ToastShown, lambda toast: toast),
}
