"""Run OpenCode's own interface for one session on a pseudo-terminal.

Its output is read as cells, and keys drive it. Its environment contains nothing of the terminal from which the daemon
may have been started.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rookery.agents.opencode.environment import USERNAME
from rookery.agents.opencode.process import AgentSandbox, require_writable_data
from rookery.sessions.terminal.emulator import Emulator, warm_up_emulator
from rookery.system.confinement.locations import confine_environment
from rookery.system.errors import RookeryError
from rookery.system.process.pty import Pty
from rookery.system.process.spawn import Spawner

if TYPE_CHECKING:
    from rookery.sessions.terminal.cells import Screen
    from rookery.system.process.child import Child


TerminalSize = tuple[int, int]

DEFAULT_COLUMNS = 120
DEFAULT_ROWS = 40
_COLUMNS_RANGE = (20, 400)
_ROWS_RANGE = (5, 200)
# As for `rookery agent attach`: a config in the folder that OpenCode starts in would be code that nobody has approved.
START_FOLDER = Path("/")
_ENVIRONMENT = {
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
}
# These describe the terminal from which the daemon was started, or switch off colours.
_REMOVED_VARIABLES = ("TMUX", "STY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORFGBG", "SSH_TTY")
_REMOVED_PREFIXES = (
    "TERM_",
    "TERMINAL_",
    "KITTY_",
    "WEZTERM_",
    "GHOSTTY_",
    "ITERM_",
    "VTE_",
    "ALACRITTY_",
    "KONSOLE_",
    "WT_",
)

# A frame that was started is complete within milliseconds.
_FRAME_SECONDS = 1.0
T = TypeVar("T")


class InterfaceLaunch(msgspec.Struct, frozen=True):
    """The program, the agent to which it attaches, and the environment of the user."""

    opencode: Path
    url: str
    password: str
    user: Mapping[str, str]
    workspace: Path | None = None
    # The program shows what the agent sends, so it is confined as the agent is.
    sandbox: AgentSandbox | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the program. It contains the password, because everybody can read command lines."""
        user = {
            name: value
            for name, value in self.user.items()
            if name not in _REMOVED_VARIABLES and not name.startswith(_REMOVED_PREFIXES)
        }
        language = {} if any(user.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")) else {"LANG": "C.UTF-8"}
        login = {"OPENCODE_SERVER_USERNAME": USERNAME, "OPENCODE_SERVER_PASSWORD": self.password}
        variables = {**user, **language, **_ENVIRONMENT, **login}
        return variables if self.sandbox is None else confine_environment(variables, self.sandbox.variables)


def require_terminal_size(size: TerminalSize) -> TerminalSize:
    """Return a size in columns and rows. Raise an error if a terminal cannot have it."""
    for value, (minimum, maximum), unit in zip(size, (_COLUMNS_RANGE, _ROWS_RANGE), ("columns", "rows"), strict=True):
        if not minimum <= value <= maximum:
            raise RookeryError("invalid-input", f"a screen cannot have {value} {unit}", f"give {minimum} to {maximum}")
    return size


class Terminal:
    """The terminal of one session. Created by `start`; `close` must be called even if the program ends by itself."""

    def __init__(self, session: str, size: TerminalSize) -> None:
        self.session = session
        # Called with the output as it arrives, and after each frame.
        self.output_listeners: list[Callable[[bytes], None]] = []
        self.listeners: list[Callable[[], None]] = []
        # The number of frames that were drawn.
        self.frames = 0
        self._child: Child | None = None
        self._emulator = Emulator(*size, self._send_reply)
        try:
            self._pty = Pty(*size, self)
        except BaseException:
            self._emulator.close()
            raise
        self._closed = False

    @staticmethod
    async def start(spawner: Spawner, interface: InterfaceLaunch, session: str, size: TerminalSize) -> "Terminal":
        """Start the program and return the terminal. Its screen is drawn later."""
        require_writable_data(interface.environment)
        await asyncio.to_thread(warm_up_emulator)
        terminal = Terminal(session, require_terminal_size(size))
        argv = [os.fspath(interface.opencode), "attach", interface.url, "--session", session]
        try:
            # From here on, nothing is awaited that could be cancelled before the child is known.
            terminal._child = await terminal._pty.start(
                spawner,
                argv,
                name=f"terminal {session}",
                cwd=START_FOLDER,
                env=interface.environment,
                works_for=interface.workspace,
                confinement=interface.sandbox.policy if interface.sandbox is not None else None,
            )
        except BaseException:
            terminal._release()
            raise
        return terminal

    # Screen

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether the program runs."""
        return not self._closed and self._child is not None and self._child.returncode is None

    @property
    def size(self) -> TerminalSize:
        return self._open_emulator.size

    @property
    def text(self) -> str:
        return self._open_emulator.text

    @property
    def title(self) -> str:
        return self._open_emulator.title

    @property
    def is_drawing(self) -> bool:
        """Whether a frame was started that is not complete yet."""
        return self._open_emulator.is_drawing

    def capture(self) -> "Screen":
        """Return the current screen, perhaps in the middle of a frame."""
        return self._open_emulator.screen()

    async def screen(self) -> "Screen":
        """Return the screen once the current frame is complete, or after 1 s."""
        await self.wait_until(lambda: not self._open_emulator.is_drawing or None, _FRAME_SECONDS)
        return self.capture()

    async def wait_until(self, check: Callable[[], T | None], seconds: float) -> T | None:
        """Return the first result of `check` that is not None, checked now and after each frame.

        Return None after the time limit, or if the terminal has ended.
        """
        frame_drawn = asyncio.Event()
        self.listeners.append(frame_drawn.set)
        try:
            async with asyncio.timeout(seconds):
                while (result := check()) is None and self.is_alive:
                    frame_drawn.clear()
                    await frame_drawn.wait()
                return result
        except TimeoutError:
            return None
        finally:
            self.listeners.remove(frame_drawn.set)

    async def wait_until_drawn(self, frames: int, seconds: float) -> bool:
        """Wait until more than `frames` frames were drawn; return whether that happened in time."""
        return await self.wait_until(lambda: self.frames > frames or None, seconds) is not None

    # Input

    def write(self, data: bytes) -> None:
        """Send input to the program."""
        self._require_open()
        self._pty.write(data)

    @property
    def accepts_paste(self) -> bool:
        """Whether the program supports bracketed paste."""
        return self._open_emulator.accepts_paste

    async def resize(self, size: TerminalSize, seconds: float) -> None:
        """Change the size and wait until the program has redrawn its screen, or the time is over."""
        self._require_open()
        if require_terminal_size(size) != self.size:
            self._emulator.resize(*size)
            self._pty.resize(*size)
            await self.wait_until(
                lambda: (not self._open_emulator.is_drawing and self._open_emulator.is_painted) or None, seconds
            )

    # End

    async def wait_ended(self) -> None:
        """Wait until the program has ended."""
        assert self._child is not None
        await self._child.wait()
        self._notify()

    async def close(self) -> None:
        """Stop the program and all processes that it has started, even if the caller is cancelled meanwhile."""
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
            self._notify()

    @property
    def _open_emulator(self) -> Emulator:
        self._require_open()
        return self._emulator

    def _require_open(self) -> None:
        if self._closed:
            raise RookeryError("agent-unavailable", "the terminal has ended", "try again: a new terminal is started")

    # Callbacks of the pseudo-terminal

    def data(self, data: bytes) -> None:
        """Receive output of the program."""
        for tap in self.output_listeners:
            tap(data)
        self._emulator.feed(data)
        if not self._emulator.is_drawing:
            self.frames += 1
            self._notify()

    def end(self) -> None:
        """Do nothing: the end of the program is known from its process."""

    def _send_reply(self, data: bytes) -> None:
        """Send a reply of the emulator to the program."""
        self._pty.write(data)

    def _notify(self) -> None:
        for listener in list(self.listeners):
            listener()
