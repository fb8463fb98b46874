"""Whether a screen shows its whole conversation, with screens as OpenCode draws them step by step."""

import pytest

from rookery.sessions.records import SessionMessage, ToolRun
from rookery.sessions.terminal.cells import Cell, Cursor, Screen
from rookery.sessions.terminal.readiness import (
    ConversationEnd,
    find_conversation_end,
    has_conversation,
    has_prompt,
    shows_conversation_end,
    shows_other_session,
)
from rookery.sessions.terminal.regions import find_regions
from tests.support.opencode.screens import recorded

COLUMNS, ROWS = 60, 24
PROMPT = [
    "",
    "  ┃",
    "  ┃",
    "  ┃",
    "  ┃  Build · Scripted",
    f"  ╹{'▀' * 55}",
    "   /tmp/app      8.1K (4%)  ctrl+p commands",
]
SIGNED = ["", "     ▣  Build · Scripted · 12.1s"]


def screen(*conversation: str, rows: int = ROWS) -> Screen:
    """A conversation above the prompt; of a long one the end, as OpenCode scrolls to it."""
    room = rows - len(PROMPT)
    lines = [*conversation[-room:], *[""] * (room - len(conversation)), *PROMPT]
    return Screen(COLUMNS, rows, [[Cell(text) for text in line.ljust(COLUMNS)] for line in lines], Cursor(0, 0))


def asked(*lines: str) -> list[str]:
    return ["", "  ┃", *(f"  ┃  {line}" for line in lines), "  ┃", ""]


def said(role: str, content: str, **more: object) -> SessionMessage:
    return SessionMessage(id="1", role=role, content=content, time=1, **more)  # pyright: ignore[reportArgumentType]


def answered(question: str, answer: str) -> ConversationEnd:
    return find_conversation_end([said("user", question), said("assistant", answer)])


def test_a_prompt_alone_is_not_a_conversation_that_was_drawn() -> None:
    bare = screen()
    assert has_prompt(find_regions(bare)) and not has_conversation(bare)
    assert shows_conversation_end(bare, find_conversation_end([])) and not shows_conversation_end(
        bare, answered("hello", "Good morning.")
    )
    assert not has_prompt(find_regions(Screen(20, 1, [[Cell()] * 20], Cursor(0, 0))))


def test_an_answer_has_to_stand_below_what_was_asked() -> None:
    expected = answered("Say done", "done")
    # Its frame is drawn first, and the question has the word too.
    assert not shows_conversation_end(screen(*asked("Say done"), *SIGNED), expected)
    assert has_conversation(screen(*asked("Say done"), *SIGNED))
    assert shows_conversation_end(screen(*asked("Say done"), "     done", *SIGNED), expected)
    before = [*asked("Say done"), "     done", *SIGNED, *asked("Say done")]
    assert not shows_conversation_end(screen(*before, *SIGNED), expected)
    assert shows_conversation_end(screen(*before, "     done", *SIGNED), expected)
    # Neither a part of a word, nor a number in the line below, is the answer.
    assert not shows_conversation_end(screen(*asked("Say 12"), "     312 commands", *SIGNED), answered("Say 12", "12"))


def test_every_paragraph_code_block_and_quotation_has_to_be_there() -> None:
    markdown = (
        "# A plan\n\nSome **bold** text, a [link](https://example.org) and `code`.\n\n1. first\n2. *second*\n\n"
        "| Name | Value |\n| --- | --- |\n| alpha | one |\n\n```python\ndef f(x): pass\n```\n\n> quoted\n\n"
        "<!-- not drawn --> The end &amp; more."
    )
    expected = answered("A plan please", markdown)
    blocks = [
        ["     A plan", "", "     Some bold text, a link (https://example.org) and", "     code.", ""],
        ["     1. first", "     2. second", ""],
        ["     ┌─────┬─────┐", "     │Name │Value│", "     │alpha│one  │", "     └─────┴─────┘", ""],
        ["     def f(x): pass", ""],
        ["     │ quoted", ""],
        ["     The end & more."],
    ]
    drawn = [line for block in blocks for line in block]
    assert shows_conversation_end(screen(*asked("A plan please"), *drawn, *SIGNED, rows=40), expected)
    for missing in range(len(blocks)):
        some = [line for at, block in enumerate(blocks) if at != missing for line in block]
        assert not shows_conversation_end(screen(*asked("A plan please"), *some, *SIGNED, rows=40), expected), missing


def test_of_an_answer_that_is_longer_than_the_screen_the_end_has_to_be_there() -> None:
    expected = answered("A story", "\n\n".join(f"Paragraph {number} of the story." for number in range(40)))
    rows = [line for number in range(40) for line in (f"     Paragraph {number} of the story.", "")]
    assert shows_conversation_end(screen(*asked("A story"), *rows, *SIGNED), expected)
    assert not shows_conversation_end(screen(*asked("A story"), *rows[:-2], *SIGNED), expected)
    assert not shows_conversation_end(screen(*asked("A story"), *rows[:-10], *rows[-8:], *SIGNED), expected)
    # What is all there is not taken for the end of something longer.
    assert not shows_conversation_end(screen(*asked("A story"), *rows[-4:], *SIGNED), expected)


def test_words_that_are_broken_at_the_edge_are_found() -> None:
    text = "漢字とかなが混ざった文章です。最後の文。"
    drawn = ["     漢字とかなが混", "     ざった文章です。最後", "     の文。"]
    assert shows_conversation_end(screen(*asked("x"), *drawn, *SIGNED), answered("x", text))
    assert not shows_conversation_end(screen(*asked("x"), *drawn[:-1], *SIGNED), answered("x", text))
    assert shows_conversation_end(
        screen(*asked("x"), f"     {'a' * 50}", f"     {'a' * 30}b", *SIGNED), answered("x", "a" * 80 + "b")
    )


def test_a_message_of_a_person_an_error_and_a_tool_are_endings_too() -> None:
    question = find_conversation_end([said("user", "Is *this* there?")])
    assert shows_conversation_end(screen(*asked("Is *this* there?")), question) and not shows_conversation_end(
        screen(*SIGNED), question
    )
    failed = find_conversation_end([said("user", "fail"), said("assistant", "", error="no credit left")])
    assert shows_conversation_end(screen(*asked("fail"), *asked("no credit left")), failed)
    assert not shows_conversation_end(screen(*asked("fail"), *SIGNED), failed)
    for given, row in (
        ({"command": "make test"}, "  ┃  $ make test"),
        ({"filePath": "/tmp/app/notes.txt"}, "     → Read notes.txt"),
        ({"pattern": "needle"}, '     ✱ Grep "needle"'),
    ):
        run = ToolRun(id="1", session_id="ses_1", tool="some", input=given, status="completed")
        last = [said("user", "go"), said("assistant", "", parts=(run,))]
        assert shows_conversation_end(
            screen(*asked("go"), row), find_conversation_end(last)
        ) and not shows_conversation_end(screen(*asked("go")), find_conversation_end(last))
        # One that is being written says nothing yet.
        assert shows_conversation_end(screen(*asked("go")), find_conversation_end(last, running=True))
    odd = ToolRun(id="1", session_id="ses_1", tool="some", input="text", status="completed")
    assert shows_conversation_end(screen(), find_conversation_end([said("assistant", "", parts=(odd,))]))


def test_a_toast_and_a_permission_do_not_hide_that_all_is_there() -> None:
    assert shows_conversation_end(
        recorded("toast"), answered("hello", "Good **morning**.\n\n# A heading\n\nSome bold text and `code`.")
    )
    assert shows_conversation_end(recorded("permission"), find_conversation_end([said("user", "ask")]))


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
    assert shows_other_session(window, title) is another
