"""What OpenCode's events say of messages and their parts, and of toasts."""

import msgspec

from rookery.agents.records import MessageInfo


class MessageSeen(msgspec.Struct, frozen=True):
    """A message was made, or something of it changed; its parts have events of their own."""

    session: str
    info: MessageInfo


class MessageGone(msgspec.Struct, frozen=True):
    session: str
    message: str


class PartSeen(msgspec.Struct, frozen=True):
    """`part` is a `records.Part` that whoever wants it decodes: there are many, and few are wanted."""

    session: str
    part: msgspec.Raw


class PartGrew(msgspec.Struct, frozen=True):
    """The only event that tells how something changed: `text` comes behind what `field` of the part has."""

    session: str
    message: str
    part: str
    field: str
    text: str


class PartGone(msgspec.Struct, frozen=True):
    session: str
    message: str
    part: str


class ToastShown(msgspec.Struct, frozen=True):
    """`duration` is in milliseconds."""

    message: str = ""
    title: str | None = None
    variant: str = "info"
    duration: float = 5000
