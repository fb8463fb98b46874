"""What a demo tells while it goes on: a line a step, what happens in it, and how long it takes."""

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
from rookery.system.visible import visible

# How often the seconds are told: on a terminal they count, elsewhere each time is a line.
_OFTEN, _SELDOM = 1.0, 10.0
# What takes less is not worth a word.
_WORTH_TELLING = 1.0


class Telling:
    """`step_name` is the step under way, or the one that failed."""

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self.step_name = ""
        self._stream = stream or sys.stderr
        self._silent = silent
        self._clock = clock
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = 0.0
        self._detail = ""

    @asynccontextmanager
    async def step(self, text: str) -> AsyncGenerator[None]:
        """Around one step."""
        self.step_name, self._began, self._detail = text, self._clock.monotonic(), ""
        self._write(output.paint(f"{text} ...", "bold", self._stream))
        ticking = TaskSet("telling")
        ticking.start(self._tick(), "seconds")
        try:
            yield
        except BaseException:
            self._write(output.paint("  ✗ not done", "red", self._stream))
            raise
        finally:
            await ticking.close()
        took = self._clock.monotonic() - self._began
        seconds = f" {took:.1f} s" if took >= _WORTH_TELLING else ""
        if seconds or self._live:
            self._write(output.paint("  ✓", "green", self._stream) + seconds)
        self.step_name = ""

    def detail(self, text: str) -> None:
        """How far the step is: a line that the next one replaces on a terminal, and one that stays elsewhere."""
        self._detail = text
        self._show() if self._live else self.line(text)

    def line(self, text: str, style: str | None = None) -> None:
        """What has happened."""
        shown = f"  {visible(text)}"
        self._write(output.paint(shown, style, self._stream) if style else shown)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_OFTEN if self._live else _SELDOM)
            self._show() if self._live else self.line(f"{self._seconds()} so far")

    def _seconds(self) -> str:
        return f"{self._clock.monotonic() - self._began:.0f} s"

    def _show(self) -> None:
        text = visible(f"  · {self._seconds()}  {self._detail}".rstrip())
        self._put(f"\r\x1b[K{output.cut(text, (output.columns(self._stream) or 80) - 1)}")

    def _write(self, line: str) -> None:
        self._put(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")

    def _put(self, text: str) -> None:
        if not self._silent:
            # A terminal that was closed keeps nothing from being ended in order.
            with contextlib.suppress(OSError):
                self._stream.write(text)
                self._stream.flush()
