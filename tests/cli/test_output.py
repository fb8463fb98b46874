"""Tables fit the terminal, and ids are shown abbreviated."""

import io
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rookery.cli import output
from rookery.cli.output import Column
from rookery.sessions.terminal.emulator import Emulator
from rookery.system.ids import match_prefix
from tests.support.cli.tables import WITH_SESSIONS, WITHOUT_SESSIONS
from tests.support.requirements import requirement

pytestmark = requirement("house.table.width")

# Letters, wide ones, emoji, marks that take no room, and what must not reach a terminal as it is.
_LETTERS = st.text(st.sampled_from("abcXYZ 019-/…äß東京語한글🙂🚀e\u0301\u0e31\x1b\n\t\u202e\u200b"), max_size=60)
_KINDS = st.builds(
    Column,
    head=st.sampled_from(["", "ID", "NAME", "NEEDS YOU", "LAST ACTIVE"]),
    importance=st.sampled_from([output.MINOR, output.USUAL, output.VITAL]),
    min_width=st.sampled_from([None, 1, 8, 20]),
    wraps=st.booleans(),
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal; COLUMNS tells how wide."""

    def isatty(self) -> bool:
        return True


def without_marks(line: str) -> str:
    """A mark that stands alone is not drawn."""
    return "".join(char for char in line if unicodedata.category(char) != "Mn").rstrip()


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    kinds = draw(st.lists(_KINDS, min_size=1, max_size=7))
    row = st.lists(_LETTERS, min_size=len(kinds), max_size=len(kinds))
    return kinds, draw(st.lists(row, min_size=1, max_size=5))


def laid_out(rows: list[list[str]], kinds: list[Column | str], width: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("NO_COLOR", "1")
        return output.format_table(rows, kinds, stream=Terminal()).split("\n")


@given(tables(), st.integers(10, 160))
def test_no_line_of_a_table_is_wider_than_the_terminal(table: tuple[list[Column], list[list[str]]], width: int) -> None:
    kinds, rows = table
    lines = laid_out(rows, [*kinds], width)
    assert all(line.isprintable() for line in lines)
    # An emulator is the judge: a line that is too long would go on in the next one, and push others away.
    emulator = Emulator(width, len(lines) + 1, lambda _: None)
    try:
        emulator.feed("\r\n".join(lines).encode())
        shown = [without_marks(line) for line in emulator.text.split("\n")]
        assert shown + [""] * (len(lines) - len(shown)) == [without_marks(line) for line in lines]
        assert emulator.screen().cursor.row == len(lines) - 1
    finally:
        emulator.close()


@given(
    st.lists(st.builds(Column, st.just("HEAD"), st.sampled_from([1, 2, 3]), st.sampled_from([1, 8, 20])), max_size=6),
    st.lists(st.text("abcdefgh", min_size=1, max_size=90), min_size=7, max_size=7),
    st.integers(40, 160),
)
def test_what_needs_the_user_is_never_lost(kinds: list[Column], cells: list[str], width: int) -> None:
    *others, needs = cells
    heads = [*kinds, Column("NEEDS YOU", output.VITAL, 20, wraps=True)]
    head, *lines = laid_out([[*others[: len(kinds)], needs]], [*heads], width)
    column = head.rindex("NEEDS")
    assert "".join(line[column:].strip() for line in lines if "YOU" not in line) == needs


def test_the_least_important_columns_are_shortened_and_left_out_first() -> None:
    heads: list[Column | str] = [
        Column("NAME", output.VITAL, 16),
        Column("BRANCH", output.MINOR),
        "STATE",
        "CHANGES",
        Column("NEEDS YOU", output.VITAL, 20, wraps=True),
    ]
    name = "a-name-of-thirty-two-characters1"
    row = [name, name, "ready", "dirty, 3 unmerged, +3 -12", "it asks: may it run make test?"]
    whole = laid_out([row], heads, 200)
    assert whole[1].split("  ") == [name, name, "ready", "dirty, 3 unmerged, +3 -12", row[4]]
    # The branch is shortened, and nothing else.
    (_, line) = laid_out([row], heads, 115)
    assert [cell.strip() for cell in line.split("  ")] == [name, name[:14] + "…", *row[2:]]
    # The branch is left out before anything else is shortened.
    (_, line) = laid_out([row], heads, 98)
    assert [cell.strip() for cell in line.split("  ")] == [name, *row[2:]]
    # Then the others are shortened, and what needs the user is whole, in several lines.
    head, line, *more = laid_out([row], heads, 80)
    column = head.index("NEEDS YOU")
    assert line.startswith(name) and "dirty" in line and "…" in line
    assert " ".join(each[column:].strip() for each in [line, *more]) == row[4]
    # On a terminal that is too narrow for that, too.
    head, *lines = laid_out([row], heads, 42)
    column = head.index("NEEDS YOU")
    assert " ".join(each[column:].strip() for each in lines) == row[4] and "CHANGES" not in head


def test_off_a_terminal_nothing_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "x" * 300
    assert long in output.format_table([[long, "y"]], ["NAME", "BRANCH"], stream=io.StringIO())
    assert output.shorten_ids(["ses_" + long], stream=io.StringIO()) == {"ses_" + long: "ses_" + long}


def test_colours_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    monkeypatch.setenv("FORCE_COLOR", "1")
    lines = output.format_table([["x" * 30]], [Column("NAME", output.VITAL)], ["red"], stream=Terminal()).split("\n")
    assert lines == ["\x1b[2mNAME\x1b[0m", f"\x1b[31m{'x' * 11}…\x1b[0m"]


def test_the_width_is_the_terminals_own_where_columns_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    import termios

    termios.tcsetwinsize(ours, (24, 33))
    with open(theirs, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        for value, width in (("", 33), ("0", 33), ("57", 57)):
            monkeypatch.setenv("COLUMNS", value)
            assert output.get_line_width(stream) == width
    os.close(ours)


@given(st.sets(st.text("abc", min_size=12, max_size=30), min_size=1, max_size=30))
def test_a_shortened_id_is_unique_and_means_what_it_was_made_from(ids: set[str]) -> None:
    for id_, short in output.shorten_ids(ids, stream=Terminal()).items():
        assert len(short) >= 12 and match_prefix(short, ids, "things") == id_
        # Unless it is as short as ids are shown, one character less would not do.
        if len(short) > 12:
            assert sum(other.startswith(short[:-1]) for other in ids) > 1


def test_every_table_of_every_command_is_laid_out_by_the_one_mechanism() -> None:
    source = Path(output.__file__).parents[1]
    calls = [path for path in source.rglob("*.py") if "output.format_table(" in path.read_text()]
    # Each of them is looked at on a terminal of 80 columns.
    walked = {*WITHOUT_SESSIONS, *WITH_SESSIONS} - {"daemon/doctor/checks.py"}
    assert {str(path.relative_to(source)) for path in calls} == walked
    for path in calls:
        # Somebody has thought about what is important in it.
        assert "Column(" in path.read_text(), path
