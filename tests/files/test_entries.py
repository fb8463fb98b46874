"""Rows of a listing: a run of files is the same as its entries, in parts and in JSON."""

import msgspec

from rookery.files.entries import Entry, Files, Row, count, in_json, is_plain, last_path, split, spread

ROWS: list[Row] = [
    Entry("a", "folder"),
    Files("a/", ["x", "y z", "z.py"], None),
    Entry('a/"quoted"\n', "file", 3),
    Entry("b\udcff", "link", None, "it is kept for secrets"),
    Files("", ["c", "d"], [0, None]),
]


def test_a_run_in_json_is_what_its_entries_are() -> None:
    told = msgspec.json.decode(in_json(ROWS, '{"entries":', "}"), type=dict[str, list[Entry]])
    assert told == {"entries": spread(ROWS)}
    assert [entry.path for entry in spread(ROWS)][-3:] == ["b\\xff", "c", "d"]
    assert in_json([], "<", ">") == "<[]>"


def test_rows_come_apart_anywhere() -> None:
    for first in range(count(ROWS) + 2):
        before, after = split(ROWS, first)
        assert spread(before) + spread(after) == spread(ROWS)
        assert count(before) == min(first, count(ROWS))
    assert last_path(ROWS) == "d"
    assert last_path(ROWS[:3]) == 'a/"quoted"\n'


def test_only_what_json_does_not_change_is_plain() -> None:
    assert is_plain("a b/c-d_e.f~")
    for odd in ('"', "\\", "\n", "\x7f", "\x1b", "é", "\udcff"):
        assert not is_plain(f"a{odd}")
