"""Progress of a demo: a line for each step, its details, and its duration."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

from rookery.cli import output
from rookery.system.clock import SYSTEM_CLOCK, Clock
from rookery.system.tasks import TaskSet
from rookery.system.text import escape_invisible

# How often the elapsed seconds are shown: on a terminal in place, elsewhere as a new line.
_TERMINAL_TICK_SECONDS = 1.0
_LINE_TICK_SECONDS = 10.0
# Durations below this are not shown.
_SHORTEST_SHOWN_SECONDS = 1.0


class StepProgress:
    """Writes the steps of a demo. `step_name` is the current step, or the one that failed."""

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self.step_name = ""
        self._stream = stream or sys.stderr
        self._silent = silent
        self._clock = clock
        self._is_live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._started_at = 0.0
        self._detail = ""

    @asynccontextmanager
    async def step(self, text: str) -> AsyncGenerator[None]:
        """Show a step while the block runs, then its result and duration."""
        self.step_name = text
        self._started_at = self._clock.monotonic()
        self._detail = ""
        self._write(output.paint(f"{text} ...", "bold", self._stream))
        tasks = TaskSet("telling")
        tasks.start(self._tick(), "seconds")
        try:
            yield
        except BaseException:
            self._write(output.paint("  ✗ failed", "red", self._stream))
            raise
        finally:
            await tasks.close()
        elapsed = self._clock.monotonic() - self._started_at
        seconds = f" {elapsed:.1f} s" if elapsed >= _SHORTEST_SHOWN_SECONDS else ""
        if seconds or self._is_live:
            self._write(output.paint("  ✓", "green", self._stream) + seconds)
        self.step_name = ""

    def detail(self, text: str) -> None:
        """Show the progress of the step: on a terminal in a line that is replaced, elsewhere in one that stays."""
        self._detail = text
        self._show() if self._is_live else self.line(text)

    def line(self, text: str, style: str | None = None) -> None:
        """Write a line that stays."""
        indented = f"  {escape_invisible(text)}"
        self._write(output.paint(indented, style, self._stream) if style else indented)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TERMINAL_TICK_SECONDS if self._is_live else _LINE_TICK_SECONDS)
            self._show() if self._is_live else self.line(f"{self._seconds()} so far")

    def _seconds(self) -> str:
        return f"{self._clock.monotonic() - self._started_at:.0f} s"

    def _show(self) -> None:
        text = escape_invisible(f"  · {self._seconds()}  {self._detail}".rstrip())
        self._write_raw(f"\r\x1b[K{output.cut(text, (output.get_line_width(self._stream) or 80) - 1)}")

    def _write(self, line: str) -> None:
        self._write_raw(f"\r\x1b[K{line}\n" if self._is_live else f"{line}\n")

    def _write_raw(self, text: str) -> None:
        if not self._silent:
            # A closed terminal must not prevent the clean-up.
            with contextlib.suppress(OSError):
                self._stream.write(text)
                self._stream.flush()
