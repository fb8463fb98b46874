"""The messages of one session, from a reading and the events since. Touches nothing outside."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

import msgspec

from rookery.agents.events import OfMessages
from rookery.agents.message_events import MessageGone, MessageSeen, PartGone, PartGrew, PartSeen
from rookery.agents.records import Message, MessageInfo, Part
from rookery.sessions.book_entries import OVERHEAD, Entry, Piece
from rookery.sessions.records import MessageShown
from rookery.sessions.shown import cut, cut_short, message_shown, tool_run

_read_part = msgspec.json.Decoder(Part)


class Book:
    """Holds at most `limit` bytes, about: the oldest messages go first, and `left_out` counts them."""

    def __init__(self, session: str, limit: int, *, owner: str | None = None, origin: str | None = None) -> None:
        self.session, self.limit = session, limit
        # Whose the tools are that ran in it, and where they come from.
        self._owner, self._origin = owner or session, origin
        self.size = self.left_out = self.version = 0
        # Whether all messages were read.
        self.whole = True
        # Kept while somebody waits for something of it.
        self.pins = 0
        self._entries: dict[str, Entry] = {}
        # The same, in the order in which they changed last.
        self._touched: dict[str, Entry] = {}

    def fill(self, messages: Sequence[Message]) -> None:
        """All that there is, in its order."""
        for message in messages:
            entry = self._entry(message.info)
            for part in message.parts:
                self._put(entry, part)
        self._sort()
        self._trim()

    def hear(self, event: OfMessages) -> None:
        """Events about messages that are not held say nothing here."""
        match event:
            case MessageSeen(_, info):
                last = next(reversed(self._entries.values()), None) if info.id not in self._entries else None
                entry = self._entry(info)
                self._touch(entry)
                if last is not None and last.order > entry.order:
                    self._sort()
            case MessageGone(_, id_):
                if id_ in self._entries:
                    self._drop(id_)
                    self.version += 1
            case PartSeen(_, raw):
                part = _read_part.decode(raw)
                if (entry := self._entries.get(part.message)) is not None:
                    self._put(entry, part)
                    self._touch(entry)
            case PartGrew(_, id_, part_id, name, text):
                if (entry := self._entries.get(id_)) is not None and name == "text":
                    self._grow(entry, part_id, text)
            case PartGone(_, id_, part_id):
                if (entry := self._entries.get(id_)) is not None:
                    self.size -= entry.pieces[part_id].size if part_id in entry.pieces else 0
                    entry.pieces.pop(part_id, None)
                    self._touch(entry)
        self._trim()

    # ---- what is read

    def __len__(self) -> int:
        return len(self._entries)

    def messages(
        self, *, running: bool, limit: int | None = None, since: float | None = None
    ) -> tuple[MessageShown, ...]:
        """The newest, in the order in which they were made. While the session is `running` its last is not whole."""
        found = [one for one in self._entries.values() if since is None or one.info.time.created > since]
        if limit is not None:
            found = found[max(len(found) - limit, 0) :]
        return tuple(self._shown(one, running) for one in found)

    def note(self, shown: int, limit: int | None) -> str | None:
        """What is to be told where so many were shown, though there were more."""
        if shown < len(self) or (limit is not None and shown >= limit) or (self.whole and not self.left_out):
            return None
        return f"older messages are left out: only the newest {self.limit // 2**20} MB of a session are kept"

    def changed(self, version: int, *, running: bool) -> Iterator[MessageShown]:
        """Those that have changed since this version, the newest first."""
        newer = takewhile(lambda entry: entry.version > version, reversed(self._touched.values()))
        for entry in sorted(newer, key=lambda entry: entry.order, reverse=True):
            yield self._shown(entry, running)

    def after(self, id_: str, *, running: bool) -> tuple[MessageShown, ...]:
        """Those that were made after a message, which need not be here."""
        return tuple(self._shown(one, running) for one in self._entries.values() if one.info.id > id_)

    def infos(self) -> Iterable[MessageInfo]:
        return (one.info for one in self._entries.values())

    def info(self, id_: str) -> MessageInfo | None:
        return self._entries[id_].info if id_ in self._entries else None

    # ---- how it is kept

    def _entry(self, info: MessageInfo) -> Entry:
        entry = self._entries.get(info.id)
        if entry is None:
            entry = self._entries[info.id] = self._touched[info.id] = Entry(info)
            self.size += entry.size
        entry.info = info
        return entry

    def _put(self, entry: Entry, part: Part) -> None:
        before = entry.pieces.get(part.id, Piece())
        piece = Piece(whole=part.time.end is not None)
        if part.type == "text":
            piece.text = cut(part.text or "")
            piece.size = OVERHEAD + len(piece.text)
        elif part.type == "tool" and part.state is not None:
            piece.run = tool_run(part, self._owner, self._origin)
            piece.size = OVERHEAD + len(piece.run.output or "") + len(msgspec.json.encode(piece.run.input))
        else:
            return
        entry.pieces[part.id] = piece
        self.size += piece.size - before.size

    def _grow(self, entry: Entry, part_id: str, text: str) -> None:
        piece = entry.pieces.get(part_id)
        # One that is whole has it already: it was read after this was said.
        if piece is not None and piece.run is None and not piece.whole:
            piece.grown.append(text)
            piece.size += len(text)
            self.size += len(text)
            self._touch(entry)

    def _touch(self, entry: Entry) -> None:
        self.version += 1
        entry.version = self.version
        self._touched[entry.info.id] = self._touched.pop(entry.info.id)

    def _drop(self, id_: str) -> None:
        self.size -= self._entries.pop(id_).size
        del self._touched[id_]

    def _sort(self) -> None:
        self._entries = dict(sorted(self._entries.items(), key=lambda one: one[1].order))

    def _trim(self) -> None:
        while self.size > self.limit and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))
            self.left_out += 1

    def _shown(self, entry: Entry, running: bool) -> MessageShown:
        info, pieces = entry.info, entry.pieces.values()
        over = not running or info.role == "user" or info.error is not None or info.time.completed is not None
        if entry.shown is not None and entry.shown[:2] == (over, entry.version):
            return entry.shown[2]
        runs = [piece.run for piece in pieces if piece.run is not None]
        shown = message_shown(
            info, self.session, (piece.words for piece in pieces), map(cut_short, runs) if over else runs
        )
        entry.shown = over, entry.version, shown
        return shown
