"""Rows of a listing: a run of files equals its entries, in parts and in JSON."""

import msgspec

from rookery.files.entries import (
    Entry,
    FileRun,
    ListingRow,
    count_entries,
    expand_rows,
    is_json_safe,
    last_path,
    rows_to_json,
    split_rows,
)

ROWS: list[ListingRow] = [
    Entry("a", "folder"),
    FileRun("a/", ["x", "y z", "z.py"], None),
    Entry('a/"quoted"\n', "file", 3),
    Entry("b\udcff", "link", None, "the folder is for secrets"),
    FileRun("", ["c", "d"], [0, None]),
]


def test_a_run_in_json_is_what_its_entries_are() -> None:
    told = msgspec.json.decode(rows_to_json(ROWS, '{"entries":', "}"), type=dict[str, list[Entry]])
    assert told == {"entries": expand_rows(ROWS)}
    assert [entry.path for entry in expand_rows(ROWS)][-3:] == ["b\\xff", "c", "d"]
    assert rows_to_json([], "<", ">") == "<[]>"


def test_rows_come_apart_anywhere() -> None:
    for first in range(count_entries(ROWS) + 2):
        before, after = split_rows(ROWS, first)
        assert expand_rows(before) + expand_rows(after) == expand_rows(ROWS)
        assert count_entries(before) == min(first, count_entries(ROWS))
    assert last_path(ROWS) == "d"
    assert last_path(ROWS[:3]) == 'a/"quoted"\n'


def test_only_what_json_does_not_change_is_plain() -> None:
    assert is_json_safe("a b/c-d_e.f~")
    for odd in ('"', "\\", "\n", "\x7f", "\x1b", "é", "\udcff"):
        assert not is_json_safe(f"a{odd}")
