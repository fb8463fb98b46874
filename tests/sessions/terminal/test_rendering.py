"""The conversation rendered as a screen, without a terminal."""

from hypothesis import given, settings, strategies

from rookery.sessions.records import SessionInfo, SessionMessage, ToolRun
from rookery.sessions.terminal.cells import Screen
from rookery.sessions.terminal.rendering import RENDERING_NOTICE, render_conversation
from tests.support.requirements import requirement

INFO = SessionInfo(
    id="ses_1", directory="/w", status="idle", message_count=2, last_activity=1, title="The tests", workspace="fix"
)


def said(role: str, content: str, *parts: ToolRun, error: str | None = None) -> SessionMessage:
    return SessionMessage(id="msg_1", role=role, content=content, time=1, parts=parts, error=error)


def require_whole(screen: Screen) -> None:
    assert len(screen.cells) == screen.rows
    assert {sum(cell.width for cell in row) for row in screen.cells} == {screen.columns}


@requirement("term.real.tui")
def test_it_says_in_its_first_line_that_it_is_a_rendering() -> None:
    screen = render_conversation([], INFO, 60, 10)
    assert screen.lines[0].strip() == RENDERING_NOTICE
    assert screen.lines[1] == " The tests · fix · idle"
    assert "There are no messages yet." in screen.text
    assert not screen.cursor.visible
    assert RENDERING_NOTICE.startswith("A rendering of the conversation")


def test_it_shows_who_said_what_which_tools_ran_and_what_failed() -> None:
    run = ToolRun(id="1", session_id="ses_1", tool="bash", title="make test", status="error", error="exit code 2")
    screen = render_conversation(
        [said("user", "Run the tests"), said("assistant", "They fail.", run, error="no credit")], INFO, 60, 20
    )
    assert screen.lines[3:] == [
        "┃ Run the tests",
        "",
        "  ▪ bash make test error: exit code 2",
        "  They fail.",
        "  failed: no credit",
        *[""] * 12,
    ]
    require_whole(screen)


def test_of_a_long_conversation_the_newest_lines_are_there_and_it_says_so() -> None:
    screen = render_conversation([said("assistant", f"number {one}") for one in range(500)], INFO, 40, 12)
    assert screen.lines[3] == "… earlier messages are not shown"
    assert screen.lines[-1] == "  number 499"
    large = render_conversation([said("assistant", "word " * 200_000)], INFO, 40, 12)
    assert large.lines[-1].startswith("  word word")
    require_whole(large)


def test_what_a_tool_or_a_model_says_when_it_fails_may_be_as_long_as_it_likes() -> None:
    """In a line of its own each, which took minutes of the loop's time."""
    run = ToolRun(id="1", session_id="ses_1", tool="bash", status="error", error="x" * 1_000_000)
    screen = render_conversation([said("assistant", "y" * 1_000_000, run, error="z" * 1_000_000)], INFO, 400, 200)
    require_whole(screen)
    assert "z" * 300 in screen.text


def test_lines_are_broken_at_blanks_and_long_words_in_the_middle() -> None:
    screen = render_conversation([said("user", "one two three four five six " + "x" * 30)], INFO, 20, 10)
    assert screen.lines[3:8] == ["┃ one two three four", "┃ five six", "┃ " + "x" * 18, "┃ " + "x" * 12, ""]


@given(strategies.text(max_size=60), strategies.integers(-5, 50), strategies.integers(-5, 20))
@settings(max_examples=100, deadline=None)
def test_whatever_was_said_it_is_a_screen_that_can_be_drawn(text: str, columns: int, rows: int) -> None:
    screen = render_conversation(
        [said("user", text), said("assistant", f"日本{text}", error=text)], INFO, columns, rows
    )
    require_whole(screen)
    assert screen.columns >= columns
    assert "\x1b" not in screen.text
