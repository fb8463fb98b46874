"""Capture the screens of sessions, wait for them, press keys on them, and read toasts from them.

Without a terminal a screen is a rendering of the conversation, and its note says so.

Toasts that OpenCode's own interface raises appear only on the screen. A toast that arrives as an event is on the screen
of every terminal of the workspace too. So a toast that is read from a screen is compared with the events, for slightly
longer than an event may be late, before it is recorded as the interface's own.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.sessions.asks import require_owner
from rookery.sessions.index import SessionIndex, SessionRef
from rookery.sessions.records import (
    Progress,
    ScreenRegions,
    ScreenSource,
    ScreenState,
    Toast,
    WaitResult,
    describe_screen,
    session_not_found,
)
from rookery.sessions.terminal.cells import Screen
from rookery.sessions.terminal.keys import encode_keys, encode_paste, encode_text
from rookery.sessions.terminal.pool import PooledTerminal, TerminalPool
from rookery.sessions.terminal.readiness import (
    ConversationEnd,
    find_conversation_end,
    has_conversation,
    has_prompt,
    shows_conversation_end,
    shows_other_session,
)
from rookery.sessions.terminal.regions import ScreenToast, find_regions, may_have_toast, read_toast
from rookery.sessions.terminal.rendering import render_conversation
from rookery.sessions.terminal.terminal import (
    DEFAULT_COLUMNS,
    DEFAULT_ROWS,
    Terminal,
    TerminalSize,
    require_terminal_size,
)
from rookery.sessions.waits import Waits
from rookery.system.clock import Clock
from rookery.system.errors import RookeryError

# How much later than the screen an event may arrive, and how long a toast may be absent during a redraw.
_EVENT_SECONDS = 0.5
_REDRAW_SECONDS = 0.5
# Time limits until the first frame with a prompt, and from then until the conversation is drawn.
_START_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
# A screen is settled if nothing was drawn for the first time. If it shows only a part of the expected text, the second
# time applies. If the session works and its screen never settles, it is accepted the third time after it shows all.
_QUIET_SECONDS = 0.5
_STUCK_SECONDS = 5.0
_WORKING_SECONDS = 1.0
_INCOMPLETE = "the screen may be incomplete: it did not show the end of the conversation in time"
# The time limit until pressed keys, or another size, show on the screen.
_DRAW_SECONDS = 1.0
_MAX_MESSAGES = 50
# Errors that are raised instead of returning a rendering.
_RAISED_CODES = ("invalid-input", "limit-reached", "session-not-found")


@dataclass(frozen=True)
class ScreenCapture:
    """The screen of a session, as cells. `note` says why it is a rendering, or what is not on it yet."""

    ref: SessionRef
    screen: Screen
    source: ScreenSource
    note: str | None = None

    def make_state(self, *, colours: bool = False) -> ScreenState:
        """Return the screen as a record."""
        regions = find_regions(self.screen) if self.source == "terminal" else ScreenRegions()
        return describe_screen(self.ref.id, self.screen, self.source, regions, note=self.note, colours=colours)


def capture_terminal(ref: SessionRef, screen: Screen, note: str | None, scope: Path | None) -> ScreenCapture:
    """Return the screen of a terminal, with a note if keys have led the terminal to another session.

    Raise an error if the caller may not see that other session.
    """
    message = "its terminal shows something else after key presses"
    if not may_see_terminal(ref, screen.title, scope):
        raise RookeryError("agent-unavailable", message)
    if shows_other_session(screen.title, ref.session.title):
        return ScreenCapture(ref, screen, "terminal", message)
    hidden_asks = describe_asks(ref) if find_regions(screen).dialog is None else None
    return ScreenCapture(ref, screen, "terminal", _join_notes(note, hidden_asks))


def describe_asks(ref: SessionRef) -> str | None:
    """Return what the session asks, and how it is answered; None if it asks nothing.

    OpenCode's interface shows only what is asked while it runs, and asks are no part of the conversation.
    """
    asks = ref.workspace_sessions.asks(ref.id)
    texts = (f"it asks: {ask.text} (rookery session answer {ask.id})" for ask in asks)
    return f"not shown here: {'; '.join(texts)}" if asks else None


def _join_notes(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None


def may_see_terminal(ref: SessionRef, window: str, scope: Path | None) -> bool:
    """Return whether the caller may see a terminal. If keys have led it to another session, only the owner may."""
    return scope is None or not shows_other_session(window, ref.session.title)


@dataclass
class _Appearance:
    """A toast on the screen. Times are in milliseconds since the epoch; `toast` is the record that was added for it."""

    content: ScreenToast
    seen_at: float
    left_at: float | None = None
    is_checked: bool = False
    toast: Toast | None = None


class ScreenToasts:
    """Adds the toasts that a session's terminal shows to those of the workspace, while the terminal runs."""

    def __init__(self, ref: SessionRef, terminal: Terminal, clock: Clock) -> None:
        self._ref = ref
        self._terminal = terminal
        self._clock = clock
        # Toasts that were not compared with the events yet, or may still be on the screen. The current one is the last.
        self._appearances: list[_Appearance] = []

    async def run(self) -> None:
        """Check every frame until the terminal ends."""
        frame = asyncio.Event()
        self._terminal.listeners.append(frame.set)
        try:
            while self._terminal.is_alive:
                frame.clear()
                if not self._terminal.is_drawing:
                    self._check_frame()
                seconds = self._settle()
                try:
                    async with asyncio.timeout(seconds):
                        await frame.wait()
                except TimeoutError:
                    pass
        finally:
            self._terminal.listeners.remove(frame.set)
            for appearance in self._appearances:
                if appearance.toast is not None:
                    self._ref.workspace_sessions.toasts.end(appearance.toast, appearance.left_at or self._now())

    def _check_frame(self) -> None:
        """Record whether a toast has appeared on the screen or left it."""
        now = self._now()
        toast = self._read_toast()
        last = self._appearances[-1] if self._appearances else None
        if last is not None and toast == last.content:
            last.left_at = None
            return
        if last is not None and last.left_at is None:
            last.left_at = now
        if toast is not None:
            self._appearances.append(_Appearance(toast, now))

    def _read_toast(self) -> ScreenToast | None:
        """Return the toast on the screen; None also if keys have led the terminal to another session."""
        session = self._ref.workspace_sessions.session(self._ref.id)
        if session is None or not may_have_toast(self._terminal.text):
            return None
        return (
            None if shows_other_session(self._terminal.title, session.title) else read_toast(self._terminal.capture())
        )

    def _settle(self) -> float | None:
        """Record and end the toasts that are due; return the seconds until the next one is due."""
        now = self._now()
        delays = list[float]()
        for appearance in list(self._appearances):
            if not appearance.is_checked:
                delay = appearance.seen_at + _EVENT_SECONDS * 1000 - now
                if delay > 0:
                    delays.append(delay)
                    continue
                appearance.is_checked = True
                appearance.toast = self._ref.workspace_sessions.add_screen_toast(
                    self._ref.id, appearance.content, appearance.seen_at
                )
            if appearance.left_at is not None:
                delay = appearance.left_at + _REDRAW_SECONDS * 1000 - now
                if delay > 0:
                    delays.append(delay)
                    continue
                self._appearances.remove(appearance)
                if appearance.toast is not None:
                    self._ref.workspace_sessions.toasts.end(appearance.toast, appearance.left_at)
        return min(delays) / 1000 if delays else None

    def _now(self) -> float:
        return self._clock.wall() * 1000


async def read_toasts(ref: SessionRef, terminal: Terminal, clock: Clock) -> None:
    """Read the toasts of a terminal until it ends."""
    try:
        await ScreenToasts(ref, terminal, clock).run()
    except RookeryError:
        # The terminal has ended between two checks.
        return


class Screens:
    """The screens of sessions: capture them, press keys on them, and wait for their text."""

    def __init__(self, index: SessionIndex, waits: Waits, clock: Clock, terminals: TerminalPool) -> None:
        self._index = index
        self._waits = waits
        self._clock = clock
        self._terminals = terminals
        terminals.terminal_tasks.append(self._read_toasts)

    async def resolve(self, id_: str | None = None, scope: Path | None = None) -> SessionRef:
        """Return a session by its id; without an id the one that was used most recently."""
        return await self._index.find(id_, scope) if id_ is not None else await self._index.last(scope)

    async def screen(
        self,
        id_: str | None = None,
        scope: Path | None = None,
        *,
        size: TerminalSize | None = None,
        colours: bool = False,
        terminal: bool = True,
        progress: Progress | None = None,
    ) -> ScreenState:
        """Return the screen of a session; without an id that of the session that was used most recently."""
        capture = await self.capture(id_, scope, size=size, terminal=terminal, progress=progress)
        return capture.make_state(colours=colours)

    async def capture(
        self,
        id_: str | None = None,
        scope: Path | None = None,
        *,
        size: TerminalSize | None = None,
        terminal: bool = True,
        progress: Progress | None = None,
    ) -> ScreenCapture:
        """Return the screen as cells. `size` is (columns, rows), None for the current one.

        Without `terminal`, render the messages.
        """
        ref = await self.resolve(id_, scope)
        columns, rows = require_terminal_size(size or (DEFAULT_COLUMNS, DEFAULT_ROWS))
        note = None
        if terminal:
            try:
                async with self._use_terminal(ref, size, progress) as (pooled, incomplete):
                    return capture_terminal(ref, await pooled.terminal.screen(), incomplete, scope)
            except RookeryError as error:
                if error.code in _RAISED_CODES:
                    raise
                note = f"there is no terminal: {error.message}"
        transcript = await ref.workspace_sessions.transcripts.transcript(ref.session)
        messages = transcript.messages(running=ref.is_running, limit=_MAX_MESSAGES)
        screen = render_conversation(messages, await ref.info(), columns, rows)
        return ScreenCapture(ref, screen, "rendering", _join_notes(note, describe_asks(ref)))

    async def press(
        self,
        id_: str,
        scope: Path | None = None,
        *,
        text: str = "",
        paste: str = "",
        keys: Sequence[str] = (),
        size: TerminalSize | None = None,
    ) -> ScreenState:
        """Type `text`, paste `paste` and press `keys`, in this order; return the first screen that is drawn afterwards.

        For the owner only: keys can answer what a session asks.
        """
        require_owner(scope)
        ref = await self._index.find(id_, scope)
        # Check all input before any of it is sent.
        parts = [encode_text(text), encode_paste(paste, marked=True), encode_keys(keys)]
        async with self._use_terminal(ref, size) as (pooled, note):
            terminal = pooled.terminal
            if paste and not terminal.accepts_paste:
                parts[1] = encode_paste(paste, marked=False)
            for part, requested in zip(parts, (text, paste, keys), strict=True):
                if requested:
                    frames = terminal.frames
                    terminal.write(part)
                    # OpenCode processes a paste later than keys that directly follow it.
                    await terminal.wait_until_drawn(frames, _DRAW_SECONDS)
            return ScreenCapture(ref, await terminal.screen(), "terminal", note).make_state()

    async def wait_for_screen(
        self,
        id_: str,
        pattern: str,
        timeout: float = 30.0,
        *,
        scope: Path | None = None,
        progress: Progress | None = None,
    ) -> WaitResult:
        """Wait until the text on the session's terminal matches, now or after any frame."""
        ref = await self._index.find(id_, scope)
        compiled = self._waits.patterns.compile(pattern)
        # Every frame is checked, so there is no need to wait until the conversation is drawn.
        async with self._use_terminal(ref, None, progress, conversation=False) as (pooled, _):
            terminal = pooled.terminal
            frame_drawn = asyncio.Event()
            last_text = [""]

            async def look() -> WaitResult | None:
                if not terminal.is_alive:
                    return WaitResult(found=False, note="the terminal has ended")
                last_text[0] = text = terminal.text if may_see_terminal(ref, terminal.title, scope) else ""
                match = await compiled.search(text)
                return WaitResult(found=True, match=match, screen=text) if match is not None else None

            terminal.listeners.append(frame_drawn.set)
            try:
                return await self._waits.wait_until(
                    ref, look, timeout, progress, lambda: _drop_blank_lines(last_text[0]), frame_drawn, messages=False
                )
            finally:
                terminal.listeners.remove(frame_drawn.set)

    @asynccontextmanager
    async def _use_terminal(
        self,
        ref: SessionRef,
        size: TerminalSize | None,
        progress: Progress | None = None,
        *,
        conversation: bool = True,
    ) -> AsyncGenerator[tuple[PooledTerminal, str | None]]:
        """Return the terminal of a session, and a note on what it does not show yet.

        Wait until it shows the conversation or, without `conversation`, its first prompt.
        """
        if size is not None:
            require_terminal_size(size)
        async with (
            ref.workspace_sessions.use_agent() as agent_run,
            self._terminals.use(agent_run, ref.id, size) as pooled,
        ):
            if ref.workspace_sessions.session(ref.id) is None:
                # The session was closed while its terminal was started. Nothing else would stop the terminal then.
                await self._terminals.end(ref.id)
                raise session_not_found(ref.id)
            if progress is not None and not pooled.is_ready:
                await progress("starting OpenCode's interface")
            note = await self._wait_until_ready(ref, pooled, conversation=conversation)
            if size is None:
                yield pooled, note
                return
            async with pooled.size_lock:
                await pooled.terminal.resize(size, _DRAW_SECONDS)
                yield pooled, note

    async def _read_toasts(self, session: str, terminal: Terminal) -> None:
        """Add the toasts that a terminal shows to those of its session."""
        try:
            ref = await self._index.find(session, None)
        except RookeryError:
            return  # the session was closed meanwhile
        await read_toasts(ref, terminal, self._clock)

    async def _wait_until_ready(self, ref: SessionRef, pooled: PooledTerminal, *, conversation: bool) -> str | None:
        """Wait until a terminal shows its prompt and, with `conversation`, the conversation.

        Return a note if the end of the conversation was not seen in time.
        """
        if pooled.is_ready:
            return None
        terminal = pooled.terminal
        if (
            await terminal.wait_until(lambda: has_prompt(find_regions(terminal.capture())) or None, _START_SECONDS)
            is None
        ):
            text = _drop_blank_lines(terminal.text) if terminal.is_alive else "it has ended"
            raise RookeryError("agent-unavailable", f"OpenCode's interface did not appear: {text or 'it is blank'}")
        if not conversation:
            return None
        transcript = await ref.workspace_sessions.transcripts.transcript(ref.session)
        running = ref.is_running
        expected = find_conversation_end(transcript.messages(running=running, limit=_MAX_MESSAGES), running=running)
        complete = await _wait_until_settled(terminal, expected, running=running)
        # The next caller does not wait again for text that OpenCode may draw in an unknown way.
        pooled.is_ready = True
        return None if complete else _INCOMPLETE


async def _wait_until_settled(terminal: Terminal, expected: ConversationEnd, *, running: bool) -> bool:
    """Wait until the end of the conversation is drawn and the screen no longer changes; return whether that happened.

    The screen of a working session always changes: the expected text is enough for it, after a moment.
    """
    loop = asyncio.get_running_loop()
    frame = asyncio.Event()
    cells = list[object]()
    drawn_at = loop.time()
    complete_at = None
    complete = stuck = False
    limit = loop.time() + _SETTLE_SECONDS
    terminal.listeners.append(frame.set)
    try:
        while terminal.is_alive:
            frame.clear()
            if not terminal.is_drawing and cells != (screen := terminal.capture()).cells:
                cells = list(screen.cells)
                drawn_at = loop.time()
                complete = shows_conversation_end(screen, expected)
                stuck = not complete and has_conversation(screen)
            complete_at = (complete_at or loop.time()) if complete else None
            deadline = limit
            if terminal.is_drawing:
                pass
            elif complete_at is not None:
                deadline = min(limit, drawn_at + _QUIET_SECONDS, *([complete_at + _WORKING_SECONDS] if running else []))
            elif stuck:
                deadline = min(limit, drawn_at + _STUCK_SECONDS)
            if loop.time() >= deadline:
                return complete
            try:
                async with asyncio.timeout_at(deadline):
                    await frame.wait()
            except TimeoutError:
                pass
        return False
    finally:
        terminal.listeners.remove(frame.set)


def _drop_blank_lines(text: str) -> str:
    """Return the lines of a text that are not blank."""
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
