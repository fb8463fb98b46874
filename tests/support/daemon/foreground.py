"""Daemons under the direct control of a test: in the foreground, on a terminal, or with children."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.daemon.process import ROOKERY, SECONDS, Daemon

WITH_CHILDREN = Path(__file__).parents[2] / "programs" / "daemon_with_children.py"


def wait_for_line(stream: int, wanted: bytes, seconds: float = SECONDS) -> bytes:
    """Read from a descriptor until `wanted` has been read."""
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([stream], [], [], seconds)
        assert ready, f"{wanted!r} did not come; seen: {seen!r}"
        data = os.read(stream, 65_536)
        assert data, f"ended before {wanted!r} came; seen: {seen!r}"
        seen += data
    return seen


@contextmanager
def foreground(*words: str, env: Mapping[str, str] | None = None) -> Generator["subprocess.Popen[bytes]"]:
    """Start `rookery up` and wait for its line `up at`; kill it at the end if it still runs."""
    yield from _running([str(ROOKERY), "up", *words], env)


@contextmanager
def with_children(
    notes: Path, *trees: str, env: Mapping[str, str] | None = None
) -> Generator["subprocess.Popen[bytes]"]:
    """Run a daemon that starts these trees; `pids_in(notes)` returns their pids."""
    yield from _running([sys.executable, "-P", str(WITH_CHILDREN), str(notes), *trees], env)


def pids_in(notes: Path) -> list[int]:
    return [int(line.split()[1]) for line in notes.read_text().splitlines()]


def _running(argv: list[str], env: Mapping[str, str] | None) -> Generator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        argv,
        env=os.environ | dict(env or {}),
        cwd=os.environ["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process:
        try:
            wait_for_line(process.stderr.fileno(), b"up at")
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def on_a_terminal(*words: str) -> Generator[tuple[int, int]]:
    """Run `rookery` with its own controlling terminal, and yield its pid and our end of the terminal."""
    pid, ours = pty.fork()
    if pid == 0:
        # As a person's shell has it, whatever the tests were started by.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(os.environ["HOME"])
        os.execv(ROOKERY, [str(ROOKERY), *words])
    try:
        yield pid, ours
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        with suppress(OSError):
            os.close(ours)


def read_daemon(state: Path) -> Daemon:
    return Daemon(state, json.loads((state / "daemon.json").read_text()))
