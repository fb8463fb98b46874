"""A user at a terminal, as the daemon sees one: not a child of the test, no marker, a separate terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from rookery.sessions.terminal.emulator import Emulator
from rookery.system.process.table import MARKER
from tests.support.daemon.process import ROOKERY, SECONDS

# Leaves its parent, takes the terminal, runs the command there and tells how it ended. `above` is the environment of
# this program, `env` that of the command.
_SHELL = """
import fcntl, json, os, signal, subprocess, sys, termios
terminal, told = int(sys.argv[1]), int(sys.argv[2])
if os.fork():
    os._exit(0)
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.write(told, b"%d\\n" % os.getpid())
asked = json.loads(sys.argv[3])
streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
# Ctrl-C reaches all who have the terminal; this one has to tell how the command ended.
signal.signal(signal.SIGINT, signal.SIG_IGN)
begin = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
done = subprocess.run(asked["argv"], env=asked["env"], cwd=asked["cwd"], preexec_fn=begin, **streams)
os.write(told, b"%d\\n" % done.returncode)
"""


class TerminalUser:
    def __init__(self, terminal: int, told: int, size: tuple[int, int] | None, settings: list[Any]) -> None:
        self.seen = b""
        # How the terminal was set before the command began.
        self.first_settings = settings
        self._terminal = terminal
        self._told = told
        self._fed = 0
        self._emulator = Emulator(*size, self._answer) if size is not None else None
        self.shell = int(self._line())

    @property
    def emulator(self) -> Emulator:
        """Return the current terminal, with all output so far drawn on it."""
        assert self._emulator is not None, "give the terminal a size"
        self._emulator.feed(self.seen[self._fed :])
        self._fed = len(self.seen)
        return self._emulator

    def sees(self, true: Callable[[str], object], seconds: float = SECONDS) -> str:
        """Wait until the text of the screen meets the condition, and return it. Partial frames do not count."""
        while self.emulator.is_drawing or not true(self.emulator.text):
            assert self._look(seconds), f"that did not come; the screen:\n{self.emulator.text}"
        return self.emulator.text

    def resizes(self, columns: int, rows: int) -> None:
        self.emulator.resize(columns, rows)
        termios.tcsetwinsize(self._terminal, (rows, columns))

    @property
    def settings(self) -> list[Any]:
        """Return the terminal's settings from `tcgetattr`."""
        return termios.tcgetattr(self._terminal)

    def _answer(self, data: bytes) -> None:
        os.write(self._terminal, data)

    def reads(self, wanted: str, seconds: float = SECONDS) -> str:
        """Wait until `wanted` is in the output, and return all output since the last call."""
        began = len(self.seen)
        while wanted.encode() not in self.seen[began:]:
            assert self._look(seconds), f"{wanted!r} did not come; seen: {self.text}"
        return self.seen[began:].decode().replace("\r\n", "\n")

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ends(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        code = int(self._line())
        while self._look(0):
            pass
        return code

    @property
    def text(self) -> str:
        """Return all output so far."""
        return self.seen.decode().replace("\r\n", "\n")

    def close(self) -> None:
        if self._emulator is not None:
            self._emulator.close()

    def _look(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return False
        with suppress(OSError):  # the last one has left the terminal
            data = os.read(self._terminal, 65_536)
            self.seen += data
            return bool(data)
        return False

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            # The screen has to be read meanwhile, or the command could not go on writing.
            ready, _, _ = select.select([self._told, self._terminal], [], [], SECONDS)
            assert ready, f"it does not end; seen: {self.text}"
            if self._told in ready:
                data = os.read(self._told, 1)
                assert data, f"it has gone; seen: {self.text}"
                line += data
            else:
                self._look(0)
        return line


@contextmanager
def at_a_terminal(
    *words: str,
    argv: Sequence[str] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    above: Mapping[str, str] | None = None,
    size: tuple[int, int] | None = None,
) -> Generator[TerminalUser]:
    """Run `rookery` with these words, or `argv`, on a terminal, in a process that Rookery did not start.

    `size` is in columns and rows; without it the terminal has no size.
    """
    plain = {name: value for name, value in os.environ.items() if name != MARKER} | {"NO_COLOR": "1"}
    ours, theirs = pty.openpty()
    if size is not None:
        termios.tcsetwinsize(ours, (size[1], size[0]))
    settings = termios.tcgetattr(ours)
    hear, tell = os.pipe()
    asked = {
        "argv": [*argv] or [str(ROOKERY), *words],
        "env": plain | dict(env or {}),
        "cwd": str(cwd or os.environ["HOME"]),
    }
    person: TerminalUser | None = None
    try:
        subprocess.run(
            [sys.executable, "-c", _SHELL, str(theirs), str(tell), json.dumps(asked)],
            env=plain | dict(above or {}),
            pass_fds=(theirs, tell),
            timeout=SECONDS,
            check=True,
        )
        os.close(tell)
        os.close(theirs)
        person = TerminalUser(ours, hear, size, settings)
        yield person
    finally:
        if person is not None:
            _end_session(person.shell)
            person.close()
        for handle in (ours, hear):
            os.close(handle)


def _end_session(leader: int) -> None:
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


def user_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != MARKER} | dict(env or {})


def user(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `given` is its input."""
    return subprocess.run(
        [ROOKERY, *words],
        env=user_environment(env),
        cwd=cwd or os.environ["HOME"],
        input=given,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
