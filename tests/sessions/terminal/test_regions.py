"""The parts of screens that the real OpenCode drew, kept as their text and where their backgrounds change."""

from pathlib import Path

import pytest

from rookery.sessions.readiness import is_ready, last_words, may_be_ready, shows_another
from rookery.sessions.records import MessageShown
from rookery.sessions.regions import regions
from rookery.sessions.screen import Cell, Cursor, Screen, Style
from rookery.sessions.screen_records import Region, shown
from tests.support.requirements import requirement

FOLDER = Path(__file__).parent / "screens"


def recorded(name: str) -> Screen:
    """Letters stand for backgrounds, `a` for what is left out."""
    head, *rest = (FOLDER / f"{name}.txt").read_text().split("\n")
    columns, rows = map(int, head.split("x"))
    texts, backs = rest[:rows], rest[rows + 1 :]
    cells = [
        [
            Cell(text, Style(background=f"#{back * 6}"))
            for text, back in zip(said.ljust(columns), back.ljust(columns, "a"), strict=True)
        ]
        for said, back in zip(texts, backs[:rows], strict=True)
    ]
    return Screen(columns, rows, cells, Cursor(0, 0))


def place(region: Region | None) -> tuple[int, int, int, int] | None:
    return None if region is None else (region.row, region.column, region.rows, region.columns)


@requirement("term.state.get")
def test_a_toast_is_told_apart_from_the_messages_below_it() -> None:
    found = regions(recorded("toast"))
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
    found = regions(recorded(name))
    assert found.dialog is not None and [word for word in words if word not in found.dialog.text] == []
    assert found.prompt is None and found.status is None and found.toast is None
    assert found.dialog.row + found.dialog.rows >= 20 and found.dialog.column == 2


@requirement("term.state.get")
def test_a_dialog_in_the_middle_is_one_too() -> None:
    found = regions(recorded("commands"))
    assert place(found.dialog) == (6, 2, 12, 60)
    assert found.dialog is not None and found.dialog.text.split()[:3] == ["Commands", "esc", "Search"]


@requirement("term.state.get")
def test_a_wide_screen_has_a_sidebar_and_the_prompt_beside_it() -> None:
    found = regions(recorded("sidebar"))
    assert place(found.sidebar) == (0, 90, 22, 42)
    assert found.sidebar is not None and "a fine title\n\nContext\n8,217 tokens" in found.sidebar.text
    assert found.prompt is not None and found.prompt.text == "typed\nsecond"
    assert found.prompt.column + found.prompt.columns < found.sidebar.column


def test_the_home_screen_has_a_prompt_in_its_middle_and_nothing_else_is_seen_there() -> None:
    found = regions(recorded("home"))
    assert found.prompt is not None and found.prompt.text.startswith("Ask anything…")
    assert found.prompt.column > 2 and found.dialog is None and found.toast is None and found.sidebar is None


def test_a_screen_of_another_program_has_no_regions() -> None:
    rows = ["$ ls", "┃ a ┃ b ┃", "┃ c ┃ d ┃", "┃ e ┃ f ┃", "esc"]
    screen = Screen(20, 5, [[Cell(text) for text in row.ljust(20)] for row in rows], Cursor(4, 3))
    assert regions(screen) == regions(Screen(20, 1, [[Cell()] * 20], Cursor(0, 0)))


def test_wide_characters_shift_nothing() -> None:
    screen = recorded("toast")
    cells = [list(row) for row in screen.cells]
    back = cells[4][5].style
    cells[4][5:9] = [Cell("漢", back, 2), Cell("字", back, 2)]
    found = regions(Screen(screen.columns, screen.rows, cells, screen.cursor))
    assert place(found.toast) == (2, 44, 5, 18)
    assert found.toast is not None and found.toast.text == "Tests\n\nAll 41 pass."


def test_a_screen_is_ready_when_the_conversation_stands_above_a_prompt() -> None:
    said = [
        MessageShown(id="1", role="user", content="hello", time=1),
        MessageShown(id="2", role="assistant", content="Good **morning**, `f(x)`", time=2),
    ]
    words = last_words(said)
    assert words == {"Good", "morning"} and last_words(said[:1]) == {"hello"}
    assert is_ready(recorded("toast"), words)
    assert not is_ready(recorded("home"), words) and is_ready(recorded("home"), last_words([]))
    assert may_be_ready(" Good evening ", words) and not may_be_ready("\n \n", frozenset())
    assert is_ready(recorded("permission"), last_words([MessageShown(id="1", role="user", content="ask", time=1)]))
    assert not is_ready(Screen(20, 1, [[Cell()] * 20], Cursor(0, 0)), frozenset())


@pytest.mark.parametrize(
    ("window", "title", "another"),
    [
        ("OC | a title", "a title", False),
        ("OC | another", "a title", True),
        (f"OC | {'y' * 37}…", "y" * 41, False),
        (f"OC | {'y' * 37}…", "x" * 41, True),
        ("OpenCode", "New session - 2026-11-16T11:39:32.743Z", False),
        ("OpenCode", "a title", True),
        ("", "a title", False),
    ],
)
def test_whether_a_terminal_has_left_its_session_is_told_by_its_window(window: str, title: str, another: bool) -> None:
    assert shows_another(window, title) is another


@requirement("term.state.get")
def test_what_is_told_of_a_screen_has_its_text_and_its_colours_on_request() -> None:
    bold = Style(foreground="#ff0000", bold=True)
    cells = [[Cell("a", bold), Cell("b", bold), Cell("漢", Style(), 2), *[Cell()] * 3], [Cell()] * 7]
    screen = Screen(7, 2, cells, Cursor(1, 2, visible=False), "a title")
    told = shown("ses_1", screen, "terminal", regions(screen)).as_dict()
    assert told["text"] == "ab漢" and told["lines"] == ("ab漢", "") and told["runs"] is None
    assert told["cursor"] == {"row": 1, "column": 2, "visible": False}
    assert (told["sessionId"], told["title"], told["columns"], told["rows"]) == ("ses_1", "a title", 7, 2)
    coloured = shown("ses_1", screen, "terminal", regions(screen), colours=True).as_dict()
    red = {"column": 0, "text": "ab", "foreground": "#ff0000", "background": None, "marks": ("bold",)}
    plain = {"column": 2, "text": "漢   ", "foreground": None, "background": None, "marks": ()}
    assert coloured["runs"] == ((red, plain), ())
