"""Hold the messages of one session, built from one read and the events since. No I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from rookery.agents.opencode.events import (
    AgentMessageEvent,
    MessageRemoved,
    MessageUpdated,
    PartDelta,
    PartRemoved,
    PartUpdated,
)
from rookery.agents.opencode.records import Message, MessageInfo, Part
from rookery.sessions.conversion import convert_message, convert_tool_run, mark_aborted, truncate_text
from rookery.sessions.records import SessionMessage, ToolRun

# The approximate size of a message or part without its texts.
OVERHEAD_BYTES = 600


@dataclass(slots=True)
class TranscriptPart:
    """The text of a part, or the tool that it ran.

    `appended` is text that was appended since `text` was last joined.
    """

    text: str = ""
    run: ToolRun | None = None
    is_complete: bool = False
    size: int = 0
    appended: list[str] = field(default_factory=list[str])

    @property
    def full_text(self) -> str:
        """The whole text of the part."""
        if self.appended:
            self.text = "".join([self.text, *self.appended])
            self.appended.clear()
        return self.text


@dataclass(slots=True)
class TranscriptMessage:
    """One message. `version` is the version of the transcript at its last change.

    `cached_record` caches its record, with the turn's state and the version for which the record was made.
    """

    info: MessageInfo
    parts: dict[str, TranscriptPart] = field(default_factory=dict[str, TranscriptPart])
    version: int = 0
    cached_record: tuple[bool, int, SessionMessage] | None = None

    @property
    def order(self) -> tuple[float, str]:
        return self.info.time.created, self.info.id

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + sum(piece.size for piece in self.parts.values())


_read_part = msgspec.json.Decoder(Part)


class Transcript:
    """The messages of one session, limited to about `limit` bytes.

    The oldest messages are dropped first, and `left_out` counts them.
    """

    def __init__(self, session: str, limit: int, *, owner: str | None = None, origin: str | None = None) -> None:
        self.session = session
        self.limit = limit
        # The session that the tool runs are attributed to, and their origin.
        self._owner = owner or session
        self._origin = origin
        self.size = self.left_out = self.version = 0
        # Whether all messages were read.
        self.is_complete = True
        # While this is above 0, a caller uses the transcript and the cache keeps it.
        self.pins = 0
        self._entries: dict[str, TranscriptMessage] = {}
        # The same messages, in the order in which they last changed.
        self._by_change: dict[str, TranscriptMessage] = {}

    def fill(self, messages: Sequence[Message]) -> None:
        """Add all messages that were read, in their order."""
        for message in messages:
            entry = self._entry(message.info)
            for part in message.parts:
                self._put(entry, part)
        self._sort()
        self._trim()

    def apply(self, event: AgentMessageEvent) -> None:
        """Apply an event. Events about messages that are not held are ignored."""
        match event:
            case MessageUpdated(_, info):
                newest = next(reversed(self._entries.values()), None) if info.id not in self._entries else None
                entry = self._entry(info)
                self._touch(entry)
                if newest is not None and newest.order > entry.order:
                    self._sort()
            case MessageRemoved(_, id_):
                if id_ in self._entries:
                    self._drop(id_)
                    self.version += 1
            case PartUpdated(_, raw):
                part = _read_part.decode(raw)
                if (entry := self._entries.get(part.message)) is not None:
                    self._put(entry, part)
                    self._touch(entry)
            case PartDelta(_, id_, part_id, name, text):
                if (entry := self._entries.get(id_)) is not None and name == "text":
                    self._append_text(entry, part_id, text)
            case PartRemoved(_, id_, part_id):
                if (entry := self._entries.get(id_)) is not None:
                    self.size -= entry.parts[part_id].size if part_id in entry.parts else 0
                    entry.parts.pop(part_id, None)
                    self._touch(entry)
        self._trim()

    # Queries

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id_: str) -> bool:
        return id_ in self._entries

    def messages(
        self, *, running: bool, limit: int | None = None, since: float | None = None, before: str | None = None
    ) -> tuple[SessionMessage, ...]:
        """Return the newest messages, in the order in which they were created.

        In a `running` session the last message is incomplete. With `before`, the id of a message that is held, return
        the newest messages before that one.
        """
        entries = [entry for entry in self._entries.values() if since is None or entry.info.time.created > since]
        if before is not None:
            order = self._entries[before].order
            entries = [entry for entry in entries if entry.order < order]
        if limit is not None:
            entries = entries[max(len(entries) - limit, 0) :]
        return tuple(self._make_record(entry, running) for entry in entries)

    def has_all_since(self, since: float | None) -> bool:
        """Return whether no message created after a moment is missing here. None means the start of the session."""
        oldest = next(iter(self._entries.values()), None)
        if self.is_complete and not self.left_out:
            return True
        return since is not None and oldest is not None and oldest.info.time.created <= since

    def changed_since(self, version: int, *, running: bool) -> Iterator[SessionMessage]:
        """Yield the messages that changed after this version, the newest first."""
        newer = takewhile(lambda entry: entry.version > version, reversed(self._by_change.values()))
        for entry in sorted(newer, key=lambda entry: entry.order, reverse=True):
            yield self._make_record(entry, running)

    def after(self, id_: str, *, running: bool) -> tuple[SessionMessage, ...]:
        """Return the messages created after a message, which need not be held."""
        return tuple(self._make_record(entry, running) for entry in self._entries.values() if entry.info.id > id_)

    def infos(self) -> Iterable[MessageInfo]:
        return (entry.info for entry in self._entries.values())

    def info(self, id_: str) -> MessageInfo | None:
        return self._entries[id_].info if id_ in self._entries else None

    # Storage

    def _entry(self, info: MessageInfo) -> TranscriptMessage:
        """Return the entry of a message, created if it is new, with this info."""
        entry = self._entries.get(info.id)
        if entry is None:
            entry = self._entries[info.id] = self._by_change[info.id] = TranscriptMessage(info)
            self.size += entry.size
        entry.info = info
        return entry

    def _put(self, entry: TranscriptMessage, part: Part) -> None:
        """Add or replace a part of a message. Parts that are neither text nor tools are ignored."""
        previous = entry.parts.get(part.id, TranscriptPart())
        piece = TranscriptPart(is_complete=part.time.end is not None)
        if part.type == "text":
            piece.text = truncate_text(part.text or "")
            piece.size = OVERHEAD_BYTES + len(piece.text)
        elif part.type == "tool" and part.state is not None:
            piece.run = convert_tool_run(part, self._owner, self._origin)
            piece.size = OVERHEAD_BYTES + len(piece.run.output or "") + len(msgspec.json.encode(piece.run.input))
        else:
            return
        entry.parts[part.id] = piece
        self.size += piece.size - previous.size

    def _append_text(self, entry: TranscriptMessage, part_id: str, text: str) -> None:
        """Append text to a part."""
        piece = entry.parts.get(part_id)
        # A complete part has this text already: it was read after the event was sent.
        if piece is not None and piece.run is None and not piece.is_complete:
            piece.appended.append(text)
            piece.size += len(text)
            self.size += len(text)
            self._touch(entry)

    def _touch(self, entry: TranscriptMessage) -> None:
        self.version += 1
        entry.version = self.version
        self._by_change[entry.info.id] = self._by_change.pop(entry.info.id)

    def _drop(self, id_: str) -> None:
        self.size -= self._entries.pop(id_).size
        del self._by_change[id_]

    def _sort(self) -> None:
        self._entries = dict(sorted(self._entries.items(), key=lambda item: item[1].order))

    def _trim(self) -> None:
        while self.size > self.limit and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))
            self.left_out += 1

    def _make_record(self, entry: TranscriptMessage, running: bool) -> SessionMessage:
        """Return a message as a record. The last message of a running session is still incomplete."""
        info = entry.info
        pieces = entry.parts.values()
        is_over = not running or info.role == "user" or info.error is not None or info.time.completed is not None
        if entry.cached_record is not None and entry.cached_record[:2] == (is_over, entry.version):
            return entry.cached_record[2]
        parts = (
            piece.full_text if piece.run is None else mark_aborted(piece.run) if is_over else piece.run
            for piece in pieces
        )
        message = convert_message(info, self.session, parts)
        entry.cached_record = is_over, entry.version, message
        return message
