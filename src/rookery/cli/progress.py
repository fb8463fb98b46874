"""Progress on stderr: the daemon's events as a stream, and a line that shows the progress of a command.

The line counts the seconds while the command waits for the daemon, so that a person sees that it is working.
"""

import json
import os
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from rookery.cli import output
from rookery.cli.output import visible
from rookery.daemon_client.connection import connect_or_start
from rookery.daemon_client.failure import Failure

_TICK_SECONDS = 1.0


class EventStream:
    """The daemon's events from now on. Open it before an operation starts, so that none of its events is missed."""

    def __init__(self, *, start: bool) -> None:
        self._connection = connect_or_start(start=start)
        # One iterator for all methods, since it buffers what was read.
        self._lines = self._connection.lines()

    def __enter__(self) -> Self:
        try:
            self._connection.request("GET", "/api/events")
        except (OSError, ValueError, IndexError):
            self._connection.close()
            raise _stream_failure() from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def stop(self) -> None:
        """Stop the stream, also for another thread that reads it."""
        self._connection.shutdown()

    def workspace_events(self, project: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of one workspace, with `workspace.` removed from their kinds."""
        for kind, data in self.workspace_and_agent_events(project, name):
            if kind.startswith("workspace."):
                yield kind.removeprefix("workspace."), data

    def workspace_and_agent_events(self, project: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of one workspace and of its agent."""
        for kind, data in self.all_events():
            if (data.get("project"), data.get("name")) == (project, name):
                yield kind, data

    def all_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of all workspaces and agents. Raise `Failure` when the stream ends."""
        kind = ""
        try:
            for line in self._lines:
                if line.startswith(b"event: "):
                    kind = line[7:].decode()
                elif line.startswith(b"data: ") and kind == "end":
                    raise _stream_failure(json.loads(line[6:])["reason"])
                elif line.startswith(b"data: ") and kind.startswith(("workspace.", "agent.")):
                    yield kind, json.loads(line[6:])
        except (OSError, ValueError):
            raise _stream_failure() from None
        raise _stream_failure()


def _stream_failure(reason: str = "the daemon has stopped") -> Failure:
    return Failure(
        "daemon-unreachable", f"no further progress is available: {reason}", "see its state: rookery ws show"
    )


class ProgressLine:
    """Progress on stderr: one line that is redrawn on a terminal, elsewhere a line for each phase.

    Nothing is written if it is `is_silent`, as for output that a program reads.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self.is_silent = silent
        self.is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._phase = ""
        self._is_drawn = False

    def show(self, phase: str, text: str) -> None:
        """Show the text. Off a terminal it is written only if the phase is a new one."""
        if self.is_silent:
            return
        if self.is_live:
            width = output.get_line_width(sys.stderr) or 80
            sys.stderr.write(f"\r\x1b[K{output.cut(visible(text), width - 1)}")
            self._is_drawn = True
        elif phase != self._phase:
            sys.stderr.write(f"{visible(text)}\n")
        self._phase = phase
        sys.stderr.flush()

    def erase(self) -> None:
        """Erase the line, so that other output can follow."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._is_drawn = False

    def write_line(self, text: str) -> None:
        """Write a line that stays."""
        self.erase()
        if not self.is_silent:
            sys.stderr.write(f"{visible(text)}\n")


@contextmanager
def show_progress(text: str, *, silent: bool = False, at_once: bool = False) -> Generator[None]:
    """Show progress while the block runs, which may take long.

    Nothing is shown for the first second, nor off a terminal. With `at_once` the text is written immediately, also off
    a terminal.
    """
    progress = ProgressLine(silent=silent)
    if at_once:
        progress.show(text, f"{text} ...")
    if silent or not progress.is_live:
        yield
        return
    finished = threading.Event()
    thread = threading.Thread(target=_tick, args=(finished, progress, text), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        progress.erase()


def _tick(finished: threading.Event, progress: ProgressLine, text: str) -> None:
    seconds = 0
    while not finished.wait(_TICK_SECONDS):
        seconds += 1
        progress.show(text, f"{text} ... {seconds} s")
