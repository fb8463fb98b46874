"""What a demo tells while it goes on: a line a step, with the seconds that it takes, and what happens meanwhile."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

from rookery.cli import output
from rookery.system.clock import SYSTEM_CLOCK
from rookery.system.tasks import TaskSet
from rookery.system.visible import visible

# How often the seconds are told: on a terminal they count, elsewhere each is a line.
_TICK, _SELDOM = 1.0, 10.0
_INDENT = "    "


class Telling:
    """`step` is the one under way, for whoever has to say where something failed."""

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False) -> None:
        self.step_name = ""
        self._stream = stream or sys.stderr
        self._silent = silent
        self._live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = 0.0
        self._detail = ""

    @asynccontextmanager
    async def step(self, text: str) -> AsyncGenerator[None]:
        """Around one step. A step that fails is left as the last line."""
        self.step_name, self._began, self._detail = text, SYSTEM_CLOCK.monotonic(), ""
        ticking = TaskSet("telling")
        self._show() if self._live else self._write(f"{text} ...")
        ticking.start(self._tick(), "seconds")
        try:
            yield
        except BaseException:
            self._end("✗", "red", text)
            raise
        else:
            self._end("✓", "green", text)
        finally:
            await ticking.close()

    def detail(self, text: str) -> None:
        """How far the step is: part of its line on a terminal, a line of its own elsewhere."""
        self._detail = text
        self._show() if self._live else self._write(f"{_INDENT}{visible(text)}")

    def line(self, text: str, style: str | None = None) -> None:
        """What has happened, as a line that stays."""
        shown = _INDENT + visible(text)
        self._write(output.paint(shown, style, self._stream) if style else shown)
        if self._live and self.step_name:
            self._show()

    def say(self, text: str = "") -> None:
        """A line of its own, outside of any step."""
        self._write(text)

    def _end(self, sign: str, style: str, text: str) -> None:
        self.detail_gone()
        took = SYSTEM_CLOCK.monotonic() - self._began
        seconds = output.paint(f"  {took:.1f} s", "dim", self._stream) if took >= _TICK else ""
        if self._live:
            self._write(f"{output.paint(sign, style, self._stream)} {text}{seconds}")
        elif sign == "✗" or seconds:
            self._write(f"{sign} {text}{seconds}")
        if sign == "✓":
            self.step_name = ""

    def detail_gone(self) -> None:
        self._detail = ""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK if self._live else _SELDOM)
            took = SYSTEM_CLOCK.monotonic() - self._began
            self._show() if self._live else self._write(f"{_INDENT}{took:.0f} s so far")

    def _show(self) -> None:
        took = SYSTEM_CLOCK.monotonic() - self._began
        seconds = f"  {took:.0f} s" if took >= _TICK else ""
        text = visible(f"· {self.step_name} ...{seconds}  {self._detail}".rstrip())
        if not self._silent:
            self._stream.write(f"\r\x1b[K{text[: (output.columns(self._stream) or 80) - 1]}")
            self._stream.flush()

    def _write(self, line: str) -> None:
        if not self._silent:
            self._stream.write(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")
            self._stream.flush()
