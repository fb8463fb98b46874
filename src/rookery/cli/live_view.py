"""Views that are drawn again after each change: `--watch`.

On a terminal a view uses the alternate screen, and always restores the terminal at its end. Elsewhere, and with
`--json`, each change is printed below the one before.
"""

import errno
import os
import select
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rookery.cli import output
from rookery.daemon_client.connection import connect_or_start
from rookery.daemon_client.failure import Failure

# Events arrive in bursts: those within this time after the first one are drawn together.
_BURST_SECONDS = 0.25
# How often to try to connect to a daemon that has stopped.
_SEARCH_SECONDS = 1.0

# Enter the alternate screen and hide the cursor; leave it and show the cursor.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?2026l\x1b[?25h\x1b[?1049l"
# Synchronised output: terminals that support it show a frame only when it is complete.
_BEGIN_FRAME = "\x1b[?2026h\x1b[H"
_END_FRAME = "\x1b[?2026l"
# Erase the rest of the line, and of the screen. Both are written before the text of a line: after a text that fills the
# line, the cursor is on the last character, which would be erased too.
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_DISCONNECTED = "the daemon has stopped; the view continues when it runs again (rookery up -d)"

Fetch = Callable[[], bytes]
Render = Callable[[Any], str]


def run_live_view(
    fetch: Fetch, render: Render, *, title: str, as_json: bool, key: Callable[[Any], object] = lambda data: data
) -> None:
    """Show the JSON that `fetch` returns, now and after each event, until a signal or `q` ends the view.

    Off a terminal, data with the same `key` as before is not printed again.
    """
    # An error of the first fetch is reported before the view uses the screen.
    first = fetch()
    if not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        view: _View = _ScreenView(render, title)
    else:
        view = _LineView(render, as_json, key)
    waiter = _Waiter(view)
    with waiter.signals(), view.activate():
        view.show(first)
        _follow(fetch, view, waiter)


class _View(ABC):
    """The output of a live view."""

    reads_keys = False

    @contextmanager
    def activate(self) -> Generator[None]:
        """Keep the view open while the block runs."""
        yield

    @abstractmethod
    def show(self, data: bytes) -> None:
        """Show fetched data."""

    @abstractmethod
    def show_notice(self, notice: str) -> None:
        """Show why the data is not current; an empty notice removes it."""

    @abstractmethod
    def redraw(self) -> None:
        """Draw again, after the terminal was resized or used by another program."""


class _LineView(_View):
    """Prints each change below the one before."""

    def __init__(self, render: Render, as_json: bool, key: Callable[[Any], object]) -> None:
        self._render = render
        self._as_json = as_json
        self._key = key
        self._last_key: object = None
        self._notice = ""

    def show(self, data: bytes) -> None:
        import json

        content = json.loads(data)
        key = self._key(content)
        if key == self._last_key:
            return
        if self._as_json:
            output.write(json.dumps(content, ensure_ascii=False, separators=(",", ":")))
        else:
            output.write(("" if self._last_key is None else "\n") + self._render(content))
        self._last_key = key

    def show_notice(self, notice: str) -> None:
        if notice and notice != self._notice:
            output.write_note(f"rookery: {notice}")
        self._notice = notice

    def redraw(self) -> None:
        """Do nothing: printed lines stay."""


class _ScreenView(_View):
    """Draws on the alternate screen of the terminal."""

    reads_keys = True

    def __init__(self, render: Render, title: str) -> None:
        self._render = render
        self._title = title
        self._data: Any = None
        self._notice = ""
        self._terminal_settings: list[Any] | None = None
        self._is_active = False

    @contextmanager
    def activate(self) -> Generator[None]:
        previous = signal.signal(signal.SIGTSTP, self._on_stop_signal)
        try:
            self._enter_screen()
            yield
        finally:
            self._leave_screen()
            signal.signal(signal.SIGTSTP, previous)

    def show(self, data: bytes) -> None:
        import json

        self._data = json.loads(data)
        self.redraw()

    def show_notice(self, notice: str) -> None:
        if notice != self._notice:
            self._notice = notice
            self.redraw()

    def redraw(self) -> None:
        if self._data is None or not self._is_active:
            return
        rows = os.get_terminal_size(sys.stdout.fileno()).lines or 24
        width = output.get_line_width(sys.stdout) or 80
        head = [output.paint(output.cut(f"{self._title}   q quits", width), "dim")]
        if self._notice:
            head.append(output.paint(output.shorten(self._notice, width), "yellow"))
        lines = [*head, "", *(_fit_line(line, width) for line in self._render(self._data).split("\n"))]
        if len(lines) > rows:
            more = f"... {len(lines) - rows + 1} more lines"
            lines = [*lines[: rows - 1], output.paint(output.cut(more, width), "dim")]
        drawn = [*(_ERASE_LINE + line for line in lines[:-1]), _ERASE_BELOW + lines[-1]]
        self._write(_BEGIN_FRAME + "\r\n".join(drawn) + _END_FRAME)

    def _enter_screen(self) -> None:
        """Enter the alternate screen, with echo off and keys readable without waiting for the end of a line."""
        import termios

        with suppress(termios.error, OSError):
            self._terminal_settings = termios.tcgetattr(sys.stdin.fileno())
            quiet = [*self._terminal_settings]
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, quiet)
        self._is_active = True
        self._write(_ENTER)

    def _leave_screen(self) -> None:
        """Leave the alternate screen and restore the terminal's settings."""
        import termios

        if not self._is_active:
            return
        self._is_active = False
        # The view may end because the terminal was closed.
        with suppress(OSError):
            self._write(_LEAVE)
        if self._terminal_settings is not None:
            with suppress(termios.error, OSError):
                # Discard typed input, which was not meant for the shell.
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._terminal_settings)

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-Z: restore the terminal, stop the process, and show the view again once it is continued."""
        self._leave_screen()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # The process has been continued.
        signal.signal(signal.SIGTSTP, self._on_stop_signal)
        self._enter_screen()
        self.redraw()

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]


def _fit_line(line: str, width: int) -> str:
    """Return the line, shortened and without colours if it is too wide."""
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return line if output.measure_width(plain) <= width else output.shorten(plain, width)


class _Events:
    """Reads the daemon's events in a thread, which writes a byte to a pipe for each and closes the pipe at the end."""

    def __init__(self) -> None:
        self._connection = connect_or_start(start=False)
        try:
            self._connection.request("GET", "/api/events")
        except (OSError, ValueError, IndexError):
            self._connection.close()
            raise Failure("daemon-unreachable", "the daemon closed the connection", "see `rookery logs`") from None
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            for line in self._connection.lines():
                if line.startswith(b"event: end"):
                    break
                if line.startswith(b"event: "):
                    # A full pipe already wakes the reader.
                    with suppress(BlockingIOError):
                        os.write(self._writer, b"e")
        os.close(self._writer)

    def close(self) -> None:
        self._connection.shutdown()
        self._thread.join()
        self._connection.close()
        os.close(self.reader)


class _Waiter:
    """Waits for events, and meanwhile handles resizing, keys and the end of the terminal."""

    def __init__(self, view: _View) -> None:
        self._view = view
        self._wakeup_reader, self._wakeup_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._keys = sys.stdin.fileno() if view.reads_keys and sys.stdin.isatty() else None

    @contextmanager
    def signals(self) -> Generator[None]:
        """Exit on SIGTERM and SIGHUP by an exception, so that the terminal is restored."""
        handlers: dict[int, Any] = {
            signal.SIGTERM: _exit_on_signal,
            signal.SIGHUP: _exit_on_signal,
            signal.SIGWINCH: _ignore,
        }
        old_handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        old_wakeup = signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_wakeup)
            for number, handler in old_handlers.items():
                signal.signal(number, handler)
            os.close(self._wakeup_reader)
            os.close(self._wakeup_writer)

    def wait(self, seconds: float | None, events: int | None = None) -> bool:
        """Wait. Return True on the first event or when time is up, and False when the stream of events has ended."""
        from rookery.system.clock import SYSTEM_CLOCK

        until = None if seconds is None else SYSTEM_CLOCK.monotonic() + seconds
        poll = select.poll()
        # Reports only errors and hang-ups: the reader of stdout is gone.
        poll.register(sys.stdout.fileno(), 0)
        for handle in (self._wakeup_reader, self._keys, events):
            if handle is not None:
                poll.register(handle, select.POLLIN)
        while True:
            remaining = None if until is None else max(until - SYSTEM_CLOCK.monotonic(), 0) * 1000
            ready = {handle for handle, _ in poll.poll(remaining)}
            if sys.stdout.fileno() in ready:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if self._wakeup_reader in ready:
                drain_pipe(self._wakeup_reader)
                self._view.redraw()
            if self._keys is not None and self._keys in ready and not self._read_keys():
                poll.unregister(self._keys)
                self._keys = None
            if events is not None and events in ready:
                return drain_pipe(events)
            if not ready:
                return True

    def _read_keys(self) -> bool:
        assert self._keys is not None
        typed = os.read(self._keys, 1024)
        if typed.lower().strip() == b"q":
            raise SystemExit(0)
        return bool(typed)


def drain_pipe(fd: int) -> bool:
    """Read all that is in a pipe, and return False if its other end is closed."""
    with suppress(BlockingIOError):
        while data := os.read(fd, 4096):
            pass
        return bool(data)
    return True


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wakeup descriptor reports the signal."""


def _follow(fetch: Fetch, view: _View, waiter: _Waiter) -> None:
    """Show every change, also across restarts of the daemon, until an exception ends the view."""
    while True:
        try:
            events = _Events()
        except Failure:
            view.show_notice(_DISCONNECTED)
            waiter.wait(_SEARCH_SECONDS)
            continue
        try:
            view.show_notice("")
            _show_changes(fetch, view, waiter, events)
        finally:
            events.close()
        view.show_notice(_DISCONNECTED)


def _show_changes(fetch: Fetch, view: _View, waiter: _Waiter, events: _Events) -> None:
    """Show the data now and after every burst of events, until the stream of events ends."""
    while True:
        try:
            view.show(fetch())
            view.show_notice("")
        except Failure as failure:
            if failure.code == "daemon-unreachable":
                return
            view.show_notice(failure.message)
        if not waiter.wait(None, events.reader):
            return
        # Wait for the rest of the burst.
        waiter.wait(_BURST_SECONDS)
        if not drain_pipe(events.reader):
            return
