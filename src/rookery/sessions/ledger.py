"""The messages of the sessions of one agent: read once, and kept as they are by what is heard of them."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import msgspec

from rookery.agents.client import AgentClient
from rookery.agents.events import OfMessages, TurnFailed
from rookery.agents.life import Life
from rookery.agents.message_events import MessageGone, MessageSeen
from rookery.agents.records import Message, MessageInfo, Session
from rookery.sessions.book import Book
from rookery.sessions.hidden import ORIGIN, is_hidden
from rookery.sessions.shelf import Shelf
from rookery.sessions.shown import in_short
from rookery.sessions.tally import Tally
from rookery.system.errors import RookeryError

logger = logging.getLogger("rookery.sessions")

# Where all messages together are more than can be read at once, the newest are: so many, or so many.
_FEWER = (500, 50, 5)

T = TypeVar("T")


class _Head(msgspec.Struct, frozen=True):
    """Of a message, without its parts."""

    info: MessageInfo


class Ledger:
    """`used` gives the agent, awake and with its sessions known."""

    def __init__(self, shelf: Shelf, used: Callable[[], AbstractAsyncContextManager[Life]]) -> None:
        self._shelf, self._used = shelf, used
        self._tallies: dict[str, Tally] = {}
        # What was heard of a session while it was being read.
        self._meanwhile: dict[str, list[OfMessages | TurnFailed]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        # Grows when events may have been missed.
        self._epoch = 0

    # ---- what is heard

    def hear(self, event: OfMessages | TurnFailed) -> None:
        id_ = event.session
        if (tally := self._tallies.get(id_)) is not None and isinstance(event, MessageSeen | MessageGone | TurnFailed):
            tally.hear(event)
        if (meanwhile := self._meanwhile.get(id_)) is not None:
            meanwhile.append(event)
        elif not isinstance(event, TurnFailed) and (book := self._shelf.look(id_)) is not None:
            self._write(book, event)

    def seen(self, session: Session) -> None:
        if (tally := self._tallies.get(session.id)) is not None:
            tally.updated = session.time.updated

    def renewed(self, unchanged: Callable[[str, float], bool]) -> None:
        """Events were missed: only what is known to be unchanged is still right."""
        self._epoch += 1
        for id_, tally in list(self._tallies.items()):
            if not unchanged(id_, tally.updated):
                self.drop(id_)

    def drop(self, session: str) -> None:
        self._tallies.pop(session, None)
        self._shelf.drop(session)
        if session in self._turns and not self._turns[session].locked():
            del self._turns[session]

    def clear(self) -> None:
        for session in list(self._tallies):
            self.drop(session)

    def last_words(self, session: str) -> str | None:
        """What was seen last of it, if its messages are held."""
        book = self._shelf.look(session)
        newest = book.messages(running=True, limit=1) if book is not None else ()
        return in_short(newest[0]) if newest else None

    # ---- what is read

    async def tally(self, session: Session) -> Tally:
        if (found := self._tallies.get(session.id)) is not None:
            return found
        async with self._turns[session.id]:
            if (found := self._tallies.get(session.id)) is not None:
                return found
            heads, meanwhile, _ = await self._gathered(session, _Head)
            return self._count(session, [one.info for one in heads], meanwhile)

    async def book(self, session: Session) -> Book:
        """Its messages; read only if they are not held."""
        if (book := self._shelf.take(session.id)) is not None:
            return book
        async with self._turns[session.id]:
            if (book := self._shelf.take(session.id)) is not None:
                return book
            messages, meanwhile, whole = await self._gathered(session, Message)
            self._count(session, [one.info for one in messages], meanwhile)
            hidden = is_hidden(session)
            book = Book(
                session.id,
                self._shelf.book_limit,
                owner=session.parent if hidden else None,
                origin=ORIGIN if hidden else None,
            )
            book.fill(messages)
            book.whole = whole
            self._shelf.put(book)
            for event in meanwhile:
                if not isinstance(event, TurnFailed):
                    self._write(book, event)
            return book

    @asynccontextmanager
    async def held(self, session: Session) -> AsyncGenerator[None]:
        """Its messages are not let go of before the end of the block, as long as no event was missed."""
        book = await self.book(session)
        book.pins += 1
        try:
            yield
        finally:
            book.pins -= 1

    async def _gathered(self, session: Session, kind: type[T]) -> tuple[list[T], list[OfMessages | TurnFailed], bool]:
        """All messages, what was heard of them meanwhile, and whether there are no more; anew if events were missed."""
        while True:
            async with self._used() as life:
                epoch, meanwhile = self._epoch, list[OfMessages | TurnFailed]()
                self._meanwhile[session.id] = meanwhile
                try:
                    found, whole = await _all_of(life.client, session.id, kind)
                finally:
                    self._meanwhile.pop(session.id, None)
                if epoch == self._epoch:
                    return found, meanwhile, whole

    def _count(self, session: Session, infos: list[MessageInfo], meanwhile: list[OfMessages | TurnFailed]) -> Tally:
        found = self._tallies[session.id] = Tally.of(infos, session.time.updated)
        for event in meanwhile:
            if isinstance(event, MessageSeen | TurnFailed):
                found.hear(event)
        return found

    def _write(self, book: Book, event: OfMessages) -> None:
        before = book.size
        try:
            book.hear(event)
        except ValueError as error:
            # It is read again when it is wanted.
            logger.warning("what OpenCode says of a message is not what was expected: %s", error)
            self._shelf.drop(book.session)
            return
        if self._shelf.look(book.session) is book:
            self._shelf.grown(book, before)


async def _all_of(client: AgentClient, session: str, kind: type[T]) -> tuple[list[T], bool]:
    for newest in (None, *_FEWER):
        try:
            return await client.whole(session, kind, newest), newest is None
        except RookeryError as error:
            if "larger than" not in error.message or newest == _FEWER[-1]:
                raise
    raise AssertionError("the last try answers or raises")
