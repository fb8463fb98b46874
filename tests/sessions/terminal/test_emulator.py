"""The output of programs, as cells."""

import random

import pytest
from hypothesis import given, settings, strategies as st

from rookery.sessions.terminal.cells import DEFAULT_BACKGROUND, DEFAULT_FOREGROUND, Cell, Style
from rookery.sessions.terminal.emulator import Emulator
from tests.support.requirements import requirement


def drawn(data: str | bytes, columns: int = 20, rows: int = 5) -> Emulator:
    made = Emulator(columns, rows, lambda _: None)
    made.feed(data if isinstance(data, bytes) else data.encode())
    return made


@requirement("term.state.get")
def test_text_cursor_and_title_are_those_of_the_terminal() -> None:
    screen = drawn("\x1b]0;A title\x07one\r\n  two\x1b[4;7H\x1b[?25l").screen()
    assert screen.lines == ["one", "  two", "", "", ""]
    assert (screen.cursor.row, screen.cursor.column, screen.cursor.visible) == (3, 6, False)
    assert screen.title == "A title"
    assert all(sum(cell.width for cell in row) == 20 for row in screen.cells)


def test_colours_are_as_they_are_seen() -> None:
    row = drawn("\x1b[38;2;1;2;3;48;5;196;1;3mA\x1b[0;7mB\x1b[0;2;4:3;9mC\x1b[0mD\x1b[31mE").screen().cells[0]
    assert row[0] == Cell("A", Style("#010203", "#ff0000", bold=True, italic=True))
    assert row[1] == Cell("B", Style(DEFAULT_BACKGROUND, DEFAULT_FOREGROUND))
    assert row[2] == Cell("C", Style(dim=True, underline=True, strike=True))
    assert row[3] == Cell("D")
    assert row[4].style.foreground is not None and row[5] == Cell()


def test_what_is_hidden_is_not_read_and_what_is_erased_keeps_its_colour() -> None:
    screen = drawn("\x1b[8msecret\x1b[0m.\r\n\x1b[48;2;9;9;9m\x1b[K").screen()
    assert screen.lines[0] == "      ."
    assert {cell.style.background for cell in screen.cells[1]} == {"#090909"}


def test_characters_keep_what_combines_with_them_and_wide_ones_take_two_places() -> None:
    row = drawn("\x1b[?2027he\u0301漢👩‍👩‍👧x").screen().cells[0]
    assert [(cell.text, cell.width) for cell in row[:4]] == [("e\u0301", 1), ("漢", 2), ("👩‍👩‍👧", 2), ("x", 1)]
    assert sum(cell.width for cell in row) == 20


@requirement("term.real.tui")
def test_the_terminal_answers_with_its_dark_colours_and_shows_no_pictures() -> None:
    said: list[bytes] = []
    made = Emulator(20, 5, said.append)
    made.feed(b"\x1b]10;?\x07\x1b]11;?\x07")
    assert said == [b"\x1b]10;rgb:d8d8/dede/e9e9\x07", b"\x1b]11;rgb:0a0a/0a0a/0a0a\x07"]
    said.clear()
    # A file by its name, and a look into the clipboard: neither is answered.
    made.feed(b"\x1b_Gi=1,a=q,t=f,f=24,s=1,v=1;L2V0Yy9wYXNzd2Q=\x1b\\\x1b]52;c;?\x07\x1b[21t")
    assert said == []


def test_a_frame_is_whole_when_the_program_says_so() -> None:
    made = drawn("\x1b[?2026hha")
    assert made.is_drawing and not made.accepts_paste
    made.feed(b"lf\x1b[?2026l\x1b[?2004h")
    assert not made.is_drawing and made.accepts_paste and made.text.strip() == "half"


def test_another_size_is_taken_at_once() -> None:
    made = drawn("\x1b[31mone\x1b[2;2H")
    made.resize(30, 3)
    screen = made.screen()
    assert (screen.columns, screen.rows, len(screen.cells), len(screen.cells[0])) == (30, 3, 3, 30)
    assert made.size == (30, 3) and (screen.cursor.row, screen.cursor.column) == (1, 1)
    # What stood there is seen again when the program has drawn it.
    assert screen.text.strip() == "" and not made.is_painted
    made.feed(b"two\x1b[1;1H" + b" " * 30 + b"\x1b[3;1H" + b" " * 30)
    assert made.is_painted and made.screen().lines == ["", " two", ""]
    assert made.screen().cells[1][1].style.foreground is not None
    made.close()


def test_rows_that_have_not_changed_are_not_read_again_and_are_right_all_the_same() -> None:
    made = drawn("one\r\ntwo")
    first = made.screen()
    made.feed(b"\x1b[2;1H\x1b[32mTWO")
    second = made.screen()
    assert second.lines[:2] == ["one", "TWO"] and second.cells[0] is first.cells[0]
    assert first.lines[:2] == ["one", "two"]
    assert made.screen().cells[1] is second.cells[1]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_kept_is_what_would_be_read_anew(seed: int) -> None:
    chance = random.Random(seed)
    kept = drawn("", 30, 8)
    lines = ["\r\n", "\x1b[L", "\x1b[M", "\x1b[T", "\x1b[2K"]
    steps = ["x漢", "e\u0301", "\x1b[5;3H", "\x1b[31m", "\x1b[0m", "\x1b[44m\x1b[K", *lines]
    everything = ""
    for _ in range(200):
        everything += (step := chance.choice(steps))
        kept.feed(step.encode())
        kept.screen()
    assert kept.screen() == drawn(everything, 30, 8).screen()


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_whatever_comes_leaves_rows_that_are_whole(data: bytes) -> None:
    screen = drawn(data).screen()
    assert len(screen.cells) == 5 and all(sum(cell.width for cell in row) == 20 for row in screen.cells)
    screen.text.encode()
