"""What happens to a workspace, told while it happens: from the daemon's events to a line that a person reads."""

import json
import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from rookery.cli import link, output
from rookery.cli.failure import Failure
from rookery.cli.visible import visible


class Watch:
    """The daemon's events from here on. Opened before something is begun, so that nothing of it is missed."""

    def __init__(self, *, start: bool) -> None:
        self._link = link.reach(start=start)
        # One for all, as what was read belongs to whoever reads on.
        self._lines = self._link.lines()

    def __enter__(self) -> Self:
        try:
            self._link.request("GET", "/api/events")
        except (OSError, ValueError, IndexError):
            self._link.close()
            raise _lost() from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    def end(self) -> None:
        """Hear nothing more, also in another thread that is listening."""
        self._link.cut()

    def events(self, project: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens to one workspace, without `workspace.` before it."""
        for kind, told in self.about(project, name):
            if kind.startswith("workspace."):
                yield kind.removeprefix("workspace."), told

    def about(self, project: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens to one workspace and to its agent."""
        for kind, told in self.every():
            if (told.get("project"), told.get("name")) == (project, name):
                yield kind, told

    def every(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens to workspaces and agents; fails if the daemon goes away."""
        kind = ""
        try:
            for line in self._lines:
                if line.startswith(b"event: "):
                    kind = line[7:].decode()
                elif line.startswith(b"data: ") and kind == "end":
                    raise _lost(json.loads(line[6:])["reason"])
                elif line.startswith(b"data: ") and kind.startswith(("workspace.", "agent.")):
                    yield kind, json.loads(line[6:])
        except (OSError, ValueError):
            raise _lost() from None
        raise _lost()


def _lost(why: str = "the daemon has gone") -> Failure:
    return Failure("daemon-unreachable", f"nothing more is heard of it: {why}", "see how it is: rookery ws show")


class Narration:
    """One line that changes on a terminal, else a line for each phase; nothing if the answer is for a program."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._phase = ""
        self._shown = False

    def tell(self, phase: str, text: str) -> None:
        if self.silent:
            return
        if self.live:
            width = output.columns(sys.stderr) or 80
            sys.stderr.write(f"\r\x1b[K{output.cut(visible(text), width - 1)}")
            self._shown = True
        elif phase != self._phase:
            sys.stderr.write(f"{visible(text)}\n")
        self._phase = phase
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away, for what comes after it."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = False

    def remark(self, text: str) -> None:
        """A line that stays."""
        self.end()
        if not self.silent:
            sys.stderr.write(f"{visible(text)}\n")
