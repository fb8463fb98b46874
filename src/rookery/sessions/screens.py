"""The screens of sessions: seen, waited for, and driven by keys. Without a terminal they are renderings, and say so."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rookery.sessions.asking import require_owner
from rookery.sessions.finding import Finding, Found
from rookery.sessions.following import Following
from rookery.sessions.interface import COLUMNS, ROWS, Size, require_size
from rookery.sessions.keys import pasted, pressed, typed
from rookery.sessions.readiness import is_ready, last_words, may_be_ready
from rookery.sessions.records import Progress, Waited, not_found
from rookery.sessions.rendering import render
from rookery.sessions.screen_records import ScreenShown
from rookery.sessions.seen import Seen, may_see, still
from rookery.sessions.terminal import Terminal
from rookery.sessions.terminals import Seat, Terminals
from rookery.sessions.waits import Waits
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

# Until the first frame with a prompt, and then until the conversation is there too.
_START_SECONDS, _SETTLE_SECONDS = 60.0, 5.0
# Until what was pressed, or another size, shows.
_DRAW_SECONDS = 1.0
_MESSAGES = 50
# What a rendering would only hide.
_NOT_RENDERED = ("invalid-input", "limit-reached", "session-not-found")


class Screens(Waits):
    def __init__(self, finding: Finding, following: Following, clock: Clock, terminals: Terminals) -> None:
        super().__init__(finding, following, clock)
        self.terminals = terminals

    async def which(self, id_: str | None = None, scope: Path | None = None) -> Found:
        """The session that is meant: without an id the one that was active last."""
        return await self._finding.find(id_, scope) if id_ is not None else await self._finding.last(scope)

    async def screen(
        self,
        id_: str | None = None,
        scope: Path | None = None,
        *,
        size: Size | None = None,
        colours: bool = False,
        terminal: bool = True,
        progress: Progress | None = None,
    ) -> ScreenShown:
        """What stands on a session's screen; without an id that of the session that was active last."""
        seen = await self.see(id_, scope, size=size, terminal=terminal, progress=progress)
        return seen.told(colours=colours)

    async def see(
        self,
        id_: str | None = None,
        scope: Path | None = None,
        *,
        size: Size | None = None,
        terminal: bool = True,
        progress: Progress | None = None,
    ) -> Seen:
        """The same as cells. `size` is (columns, rows), None for what it is; without `terminal` it is a rendering."""
        found = await self.which(id_, scope)
        columns, rows = require_size(size or (COLUMNS, ROWS))
        note = None
        if terminal:
            try:
                async with self._terminal(found, size, progress) as (seat, late):
                    return still(found, await seat.terminal.screen(), late, scope)
            except RookeryError as error:
                if error.code in _NOT_RENDERED:
                    raise
                note = f"there is no terminal: {error.message}"
        book = await found.room.ledger.book(found.session)
        messages = book.messages(running=found.running, limit=_MESSAGES)
        return Seen(found, render(messages, await found.info(), columns, rows), "rendering", note)

    async def press(
        self,
        id_: str,
        scope: Path | None = None,
        *,
        text: str = "",
        paste: str = "",
        keys: Sequence[str] = (),
        size: Size | None = None,
    ) -> ScreenShown:
        """Type `text`, paste `paste` and press `keys`, in this order; answers the first screen that is drawn then.

        For the owner only: keys can answer what a session asks.
        """
        require_owner(scope)
        found = await self._finding.find(id_, scope)
        # What cannot be pressed is refused before anything is.
        parts = [typed(text), pasted(paste, marked=True), pressed(keys)]
        async with self._terminal(found, size) as (seat, note):
            terminal = seat.terminal
            if paste and not terminal.pastes:
                parts[1] = pasted(paste, marked=False)
            for part, wanted in zip(parts, (text, paste, keys), strict=True):
                if wanted:
                    frames = terminal.frames
                    terminal.write(part)
                    # OpenCode takes a paste in later than keys that come right behind it.
                    await terminal.drawn(frames, _DRAW_SECONDS)
            return Seen(found, await terminal.screen(), "terminal", note).told()

    async def wait_for_screen(
        self,
        id_: str,
        pattern: str,
        timeout: float = 30.0,
        *,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> Waited:
        """Until what stands on the terminal of the session fits, now or after any frame that it draws."""
        found, wanted = await self._finding.find(id_, scope), self._patterns.compile(pattern)
        async with self._terminal(found, None, progress) as (seat, _):
            terminal, news = seat.terminal, asyncio.Event()
            last = [""]

            async def look() -> Waited | None:
                if not terminal.alive:
                    return Waited(found=False, note="the terminal has ended")
                last[0] = text = terminal.text if may_see(found, terminal.title, scope) else ""
                match = await wanted.search(text)
                return Waited(found=True, match=match, screen=text) if match is not None else None

            terminal.listeners.append(news.set)
            try:
                return await self._waited(found, look, timeout, progress, lambda: _squeezed(last[0]), news)
            finally:
                terminal.listeners.remove(news.set)

    @asynccontextmanager
    async def _terminal(
        self, found: Found, size: Size | None, progress: Progress | None = None
    ) -> AsyncGenerator[tuple[Seat, str | None]]:
        """That of a session once it shows the conversation, and what it does not show yet."""
        if size is not None:
            require_size(size)
        async with found.room.used() as life, self.terminals.used(life, found.id, size) as seat:
            if found.room.session(found.id) is None:
                # Closed while its terminal was started, which nothing else would end then.
                await self.terminals.end(found.id)
                raise not_found(found.id)
            if progress is not None and not seat.ready:
                await progress("OpenCode's interface starts")
            note = await self._ready(found, seat)
            if size is None:
                yield seat, note
                return
            async with seat.sizing:
                await seat.terminal.resize(size, _DRAW_SECONDS)
                yield seat, note

    async def _ready(self, found: Found, seat: Seat) -> str | None:
        if seat.ready:
            return None
        terminal = seat.terminal
        book = await found.room.ledger.book(found.session)
        words = last_words(book.messages(running=found.running, limit=_MESSAGES))
        if await _shows(terminal, frozenset(), _START_SECONDS) is None:
            said = _squeezed(terminal.text) if terminal.alive else "it has ended"
            raise RookeryError("agent-unavailable", f"OpenCode's interface does not show: {said or 'it is blank'}")
        late = None
        if await _shows(terminal, words, _SETTLE_SECONDS) is None:
            late = "the conversation may not be on the screen yet"
        # Whoever comes next does not wait once more for what may be drawn in a way that is not known.
        seat.ready = True
        return late


async def _shows(terminal: Terminal, words: frozenset[str], seconds: float) -> bool | None:
    def look() -> bool | None:
        return (may_be_ready(terminal.text, words) and is_ready(terminal.now(), words)) or None

    return await terminal.until(look, seconds)


def _squeezed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
