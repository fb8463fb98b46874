"""A person at a terminal, as the daemon sees one: no child of the test, no marker, a terminal of their own."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from rookery.system.processes import MARKER
from tests.support.house import ROOKERY, SECONDS

# Leaves its parent, takes the terminal, runs the command there and tells how it ended. `above` is the environment of
# this program, `env` that of the command.
_SHELL = """
import fcntl, json, os, subprocess, sys, termios
terminal, told = int(sys.argv[1]), int(sys.argv[2])
if os.fork():
    os._exit(0)
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.write(told, b"%d\\n" % os.getpid())
asked = json.loads(sys.argv[3])
streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
done = subprocess.run(asked["argv"], env=asked["env"], cwd=asked["cwd"], **streams)
os.write(told, b"%d\\n" % done.returncode)
"""


class Person:
    def __init__(self, terminal: int, told: int) -> None:
        self.seen = b""
        self._terminal = terminal
        self._told = told
        self.shell = int(self._line())

    def reads(self, wanted: str, seconds: float = SECONDS) -> str:
        """Look at the screen until `wanted` stands there; answers all that was read since the last look."""
        began = len(self.seen)
        while wanted.encode() not in self.seen[began:]:
            assert self._look(seconds), f"{wanted!r} did not come; seen: {self.text}"
        return self.seen[began:].decode().replace("\r\n", "\n")

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ends(self) -> int:
        """The exit code of the command, once it has ended."""
        code = int(self._line())
        while self._look(0):
            pass
        return code

    @property
    def text(self) -> str:
        """All that was on the screen so far."""
        return self.seen.decode().replace("\r\n", "\n")

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
) -> Generator[Person]:
    """`rookery` with these words, or `argv`, on a terminal, run by someone whom Rookery did not start."""
    plain = {name: value for name, value in os.environ.items() if name != MARKER} | {"NO_COLOR": "1"}
    ours, theirs = pty.openpty()
    hear, tell = os.pipe()
    asked = {
        "argv": [*argv] or [str(ROOKERY), *words],
        "env": plain | dict(env or {}),
        "cwd": str(cwd or os.environ["HOME"]),
    }
    person: Person | None = None
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
        person = Person(ours, hear)
        yield person
    finally:
        if person is not None:
            _end_session(person.shell)
        for handle in (ours, hear):
            os.close(handle)


def _end_session(leader: int) -> None:
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
