"""The progress of a demo: plain lines, and on a terminal a line that counts seconds."""

import io

import pytest

from rookery.demo.progress import StepProgress
from tests.support.clock import SetClock

pytestmark = pytest.mark.anyio


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_elsewhere_each_thing_is_a_line_and_only_what_takes_long_tells_how_long() -> None:
    stream, clock = io.StringIO(), SetClock()
    telling = StepProgress(stream, clock=clock)
    async with telling.step("A quick one"):
        telling.detail("half of it")
    async with telling.step("A slow one"):
        clock.now += 2.5
        telling.line("a\x1b[2Jb")
    assert stream.getvalue() == "A quick one ...\n  half of it\nA slow one ...\n  a\\e[2Jb\n  ✓ 2.5 s\n"
    assert telling.step_name == ""


async def test_on_a_terminal_the_detail_is_replaced_by_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    stream, clock = Terminal(), SetClock()
    telling = StepProgress(stream, clock=clock)
    async with telling.step("One"):
        clock.now += 3
        telling.detail("a text that is too long for it")
        telling.line("done")
    cleared = "\r\x1b[K"
    assert stream.getvalue() == (f"{cleared}One ...\n{cleared}  · 3 s  a text tha{cleared}  done\n{cleared}  ✓ 3.0 s\n")


async def test_a_step_that_fails_is_marked_and_remembered() -> None:
    stream = io.StringIO()
    telling = StepProgress(stream)
    with pytest.raises(RuntimeError):
        async with telling.step("This one"):
            raise RuntimeError
    assert stream.getvalue() == "This one ...\n  ✗ failed\n"
    assert telling.step_name == "This one"


async def test_a_program_that_asks_for_json_is_told_nothing_else() -> None:
    stream = io.StringIO()
    telling = StepProgress(stream, silent=True)
    async with telling.step("One"):
        telling.line("x")
        telling.detail("y")
    assert stream.getvalue() == ""


class Closed(io.StringIO):
    def write(self, s: str) -> int:
        raise OSError("nobody reads it")


async def test_a_terminal_that_was_closed_keeps_nothing_from_being_done() -> None:
    done = list[str]()
    async with StepProgress(Closed()).step("One"):
        done.append("One")
    assert done == ["One"]
