"""The regions of recorded screens of the real OpenCode."""

import pytest

from rookery.sessions.records import ScreenRegion, describe_screen
from rookery.sessions.terminal.cells import Cell, Cursor, Screen, Style
from rookery.sessions.terminal.regions import find_regions
from tests.support.opencode.screens import recorded
from tests.support.requirements import requirement


def place(region: ScreenRegion | None) -> tuple[int, int, int, int] | None:
    return None if region is None else (region.row, region.column, region.rows, region.columns)


@requirement("term.state.get")
def test_a_toast_is_told_apart_from_the_messages_below_it() -> None:
    found = find_regions(recorded("toast"))
    assert place(found.toast) == (2, 44, 5, 18)
    assert found.toast is not None and found.toast.text == "Tests\n\nAll 41 pass."
    assert place(found.prompt) == (15, 2, 5, 60)
    assert found.prompt is not None and found.prompt.text == ""
    assert found.status is not None and found.status.text.split() == ["/tmp/app", "8.1K", "(4%)", "ctrl+p", "commands"]
    assert found.dialog is None and found.sidebar is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("permission", ["△ Permission required", "echo asked > asked.txt", "Allow once   Allow always   Reject"]),
        ("question", ["Which colour?", "1. Red", "2. Blue", "3. Type your own answer", "esc dismiss"]),
    ],
)
@requirement("term.state.get")
def test_f03_what_asks_for_an_answer_is_a_dialog_in_the_place_of_the_prompt(name: str, words: list[str]) -> None:
    found = find_regions(recorded(name))
    assert found.dialog is not None and [word for word in words if word not in found.dialog.text] == []
    assert found.prompt is None and found.status is None and found.toast is None
    assert found.dialog.row + found.dialog.rows >= 20 and found.dialog.column == 2


@requirement("term.state.get")
def test_a_dialog_in_the_middle_is_one_too() -> None:
    found = find_regions(recorded("commands"))
    assert place(found.dialog) == (6, 2, 12, 60)
    assert found.dialog is not None and found.dialog.text.split()[:3] == ["Commands", "esc", "Search"]


@requirement("term.state.get")
def test_a_wide_screen_has_a_sidebar_and_the_prompt_beside_it() -> None:
    found = find_regions(recorded("sidebar"))
    assert place(found.sidebar) == (0, 90, 22, 42)
    assert found.sidebar is not None and "a fine title\n\nContext\n8,217 tokens" in found.sidebar.text
    assert found.prompt is not None and found.prompt.text == "typed\nsecond"
    assert found.prompt.column + found.prompt.columns < found.sidebar.column


def test_the_home_screen_has_a_prompt_in_its_middle_and_nothing_else_is_seen_there() -> None:
    found = find_regions(recorded("home"))
    assert found.prompt is not None and found.prompt.text.startswith("Ask anything…")
    assert found.prompt.column > 2 and found.dialog is None and found.toast is None and found.sidebar is None


def test_a_screen_of_another_program_has_no_regions() -> None:
    rows = ["$ ls", "┃ a ┃ b ┃", "┃ c ┃ d ┃", "┃ e ┃ f ┃", "esc"]
    screen = Screen(20, 5, [[Cell(text) for text in row.ljust(20)] for row in rows], Cursor(4, 3))
    assert find_regions(screen) == find_regions(Screen(20, 1, [[Cell()] * 20], Cursor(0, 0)))


def test_wide_characters_shift_nothing() -> None:
    screen = recorded("toast")
    cells = [list(row) for row in screen.cells]
    back = cells[4][5].style
    cells[4][5:9] = [Cell("漢", back, 2), Cell("字", back, 2)]
    found = find_regions(Screen(screen.columns, screen.rows, cells, screen.cursor))
    assert place(found.toast) == (2, 44, 5, 18)
    assert found.toast is not None and found.toast.text == "Tests\n\nAll 41 pass."


@requirement("term.state.get")
def test_what_is_told_of_a_screen_has_its_text_and_its_colours_on_request() -> None:
    bold = Style(foreground="#ff0000", bold=True)
    cells = [[Cell("a", bold), Cell("b", bold), Cell("漢", Style(), 2), *[Cell()] * 3], [Cell()] * 7]
    screen = Screen(7, 2, cells, Cursor(1, 2, visible=False), "a title")
    told = describe_screen("ses_1", screen, "terminal", find_regions(screen)).as_dict()
    assert told["text"] == "ab漢" and told["lines"] == ("ab漢", "") and told["runs"] is None
    assert told["cursor"] == {"row": 1, "column": 2, "visible": False}
    assert (told["sessionId"], told["title"], told["columns"], told["rows"]) == ("ses_1", "a title", 7, 2)
    coloured = describe_screen("ses_1", screen, "terminal", find_regions(screen), colours=True).as_dict()
    red = {"column": 0, "text": "ab", "foreground": "#ff0000", "background": None, "marks": ("bold",)}
    plain = {"column": 2, "text": "漢   ", "foreground": None, "background": None, "marks": ()}
    assert coloured["runs"] == ((red, plain), ())
