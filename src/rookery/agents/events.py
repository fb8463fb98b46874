"""OpenCode's events, decoded: those that tell of sessions, messages and toasts. All others are noise here."""

import logging
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from rookery.agents.message_events import MessageGone, MessageSeen, PartGone, PartGrew, PartSeen, ToastShown
from rookery.agents.records import Ask, Doing, Fault, MessageInfo, Permission, Question, Session

logger = logging.getLogger("rookery.agents.events")

# The first event of every stream: from here on nothing is missed.
CONNECTED = "server.connected"


class SessionSeen(msgspec.Struct, frozen=True):
    """A session was made, or something of it changed."""

    session: Session


class SessionGone(msgspec.Struct, frozen=True):
    session: str


class DoingChanged(msgspec.Struct, frozen=True):
    session: str
    doing: Doing


class Asked(msgspec.Struct, frozen=True):
    ask: Ask


class Answered(msgspec.Struct, frozen=True):
    """By whomever; a question that was rejected is answered too."""

    session: str
    ask: str


class TurnFailed(msgspec.Struct, frozen=True):
    """`session` is empty where OpenCode does not say which it was."""

    session: str
    error: Fault


# ---- of our own


class Renewed(msgspec.Struct, frozen=True):
    """The state of all sessions was read anew, since events were missed or are the first."""


class Ended(msgspec.Struct, frozen=True):
    """The process of the agent has ended."""


OfSessions: TypeAlias = SessionSeen | SessionGone | DoingChanged | Asked | Answered
OfMessages: TypeAlias = MessageSeen | MessageGone | PartSeen | PartGrew | PartGone
Event: TypeAlias = OfSessions | OfMessages | TurnFailed | ToastShown | Renewed | Ended


class Envelope(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    properties: msgspec.Raw = msgspec.Raw(b"{}")


_read_envelope = msgspec.json.Decoder(Envelope).decode


def decode(data: bytes) -> tuple[str, Event | None]:
    """The type of an event, and what it says where that is of use."""
    try:
        envelope = _read_envelope(data)
    except ValueError:
        logger.debug("an event that is none: %r", data[:200])
        return "", None
    read = _READERS.get(envelope.type)
    if read is None:
        return envelope.type, None
    try:
        return envelope.type, read(envelope.properties)
    except ValueError as error:
        # What it would have said is read again with the next subscription.
        logger.warning("OpenCode's event %s is not what was expected: %s", envelope.type, error)
        return envelope.type, None


# ---- the forms of their properties

T = TypeVar("T")


class _OfSession(msgspec.Struct, frozen=True):
    session: str = msgspec.field(name="sessionID")


class _Info(msgspec.Struct, frozen=True):
    info: Session


class _Status(_OfSession, frozen=True):
    status: Doing


class _Request(_OfSession, frozen=True):
    request: str = msgspec.field(name="requestID")


class _Message(_OfSession, frozen=True):
    info: MessageInfo


class _Part(_OfSession, frozen=True):
    part: msgspec.Raw


class _InMessage(_OfSession, frozen=True):
    message: str = msgspec.field(name="messageID")
    part: str = msgspec.field(name="partID", default="")
    field: str = "text"
    delta: str = ""


class _Error(msgspec.Struct, frozen=True):
    session: str = msgspec.field(name="sessionID", default="")
    error: Fault = Fault()


def _as(kind: type[T], make: Callable[[T], Event]) -> Callable[[msgspec.Raw], Event]:
    decoder = msgspec.json.Decoder(kind)
    return lambda properties: make(decoder.decode(properties))


_seen = _as(_Info, lambda found: SessionSeen(found.info))
_answered = _as(_Request, lambda found: Answered(found.session, found.request))

_READERS: dict[str, Callable[[msgspec.Raw], Event]] = {
    "session.created": _seen,
    "session.updated": _seen,
    "session.deleted": _as(_Info, lambda found: SessionGone(found.info.id)),
    "session.status": _as(_Status, lambda found: DoingChanged(found.session, found.status)),
    "session.idle": _as(_OfSession, lambda found: DoingChanged(found.session, Doing("idle"))),
    "session.error": _as(_Error, lambda found: TurnFailed(found.session, found.error)),
    "permission.asked": _as(Permission, Asked),
    "permission.replied": _answered,
    "question.asked": _as(Question, Asked),
    "question.replied": _answered,
    "question.rejected": _answered,
    "message.updated": _as(_Message, lambda found: MessageSeen(found.session, found.info)),
    "message.removed": _as(_InMessage, lambda found: MessageGone(found.session, found.message)),
    "message.part.updated": _as(_Part, lambda found: PartSeen(found.session, found.part)),
    "message.part.delta": _as(
        _InMessage, lambda found: PartGrew(found.session, found.message, found.part, found.field, found.delta)
    ),
    "message.part.removed": _as(_InMessage, lambda found: PartGone(found.session, found.message, found.part)),
    "tui.toast.show": _as(ToastShown, lambda found: found),
}
