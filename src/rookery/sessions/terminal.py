"""OpenCode's own interface at one session, on a terminal of ours: seen as cells, driven by keys."""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rookery.sessions.emulator import Emulator, warm_up
from rookery.sessions.interface import FOLDER, Interface, Size, require_size
from rookery.system.errors import RookeryError
from rookery.system.pty import Pty
from rookery.system.spawn import Spawner

if TYPE_CHECKING:
    from rookery.sessions.screen import Screen
    from rookery.system.child import Child

# A frame that was begun comes to its end within milliseconds.
_FRAME_SECONDS = 1.0

T = TypeVar("T")


class Terminal:
    """Made by `start`, ended by `close`, which has to be called however it ends."""

    def __init__(self, session: str, size: Size) -> None:
        self.session = session
        # Called with what is drawn, as it comes; and after each frame.
        self.taps: list[Callable[[bytes], None]] = []
        self.listeners: list[Callable[[], None]] = []
        # How many frames were drawn.
        self.frames = 0
        self._child: Child | None = None
        self._emulator = Emulator(*size, self._said)
        try:
            self._pty = Pty(*size, self)
        except BaseException:
            self._emulator.close()
            raise
        self._closed = False

    @staticmethod
    async def start(spawner: Spawner, interface: Interface, session: str, size: Size) -> "Terminal":
        """Once it has begun; what it shows comes later."""
        await asyncio.to_thread(warm_up)
        made = Terminal(session, require_size(size))
        argv = [os.fspath(interface.opencode), "attach", interface.url, "--session", session]
        try:
            # Nothing is awaited from here on that could be cancelled before the child is known.
            made._child = await made._pty.start(
                spawner, argv, name=f"terminal {session}", cwd=FOLDER, env=interface.environment
            )
        except BaseException:
            made._release()
            raise
        return made

    # ---- what it shows

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def alive(self) -> bool:
        return not self._closed and self._child is not None and self._child.returncode is None

    @property
    def size(self) -> Size:
        return self._shown.size

    @property
    def text(self) -> str:
        return self._shown.text

    @property
    def title(self) -> str:
        return self._shown.title

    def now(self) -> "Screen":
        """As it is, perhaps in the middle of a frame."""
        return self._shown.screen()

    async def screen(self) -> "Screen":
        """A frame that is whole."""
        await self.until(lambda: not self._shown.drawing or None, _FRAME_SECONDS)
        return self.now()

    async def until(self, look: Callable[[], T | None], seconds: float) -> T | None:
        """What `look` finds, now or after a frame; None when time has run out or the terminal has ended."""
        news = asyncio.Event()
        self.listeners.append(news.set)
        try:
            async with asyncio.timeout(seconds):
                while (hit := look()) is None and self.alive:
                    news.clear()
                    await news.wait()
                return hit
        except TimeoutError:
            return None
        finally:
            self.listeners.remove(news.set)

    async def drawn(self, frames: int, seconds: float) -> bool:
        """Whether more than so many frames were drawn."""
        return await self.until(lambda: self.frames > frames or None, seconds) is not None

    # ---- what it is told

    def write(self, data: bytes) -> None:
        self._require_open()
        self._pty.write(data)

    @property
    def pastes(self) -> bool:
        return self._shown.pastes

    async def resize(self, size: Size, seconds: float) -> None:
        """Waits until it is drawn in its new size."""
        self._require_open()
        if require_size(size) != self.size:
            self._emulator.resize(*size)
            self._pty.resize(*size)
            await self.until(lambda: (not self._shown.drawing and self._shown.painted) or None, seconds)

    # ---- its end

    async def ended(self) -> None:
        """Returns when its program has ended."""
        assert self._child is not None
        await self._child.wait()
        self._tell()

    async def close(self) -> None:
        """End its program and all that this has started, also if whoever wants that goes away meanwhile."""
        try:
            if self._child is not None:
                await self._child.stop()
        finally:
            self._release()

    def _release(self) -> None:
        if not self._closed:
            self._closed = True
            self._pty.close()
            self._emulator.close()
            self._tell()

    @property
    def _shown(self) -> Emulator:
        self._require_open()
        return self._emulator

    def _require_open(self) -> None:
        if self._closed:
            raise RookeryError("agent-unavailable", "the terminal has ended", "ask again: another one is started")

    # ---- the pty's feed

    def data(self, data: bytes) -> None:
        for tap in self.taps:
            tap(data)
        self._emulator.feed(data)
        if not self._emulator.drawing:
            self.frames += 1
            self._tell()

    def end(self) -> None:
        """The program's end is known by its process."""

    def _said(self, data: bytes) -> None:
        self._pty.write(data)

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()
