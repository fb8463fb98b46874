"""The last lines of a log."""

from pathlib import Path

from rookery.agents.opencode.process import read_last_lines


def test_the_last_lines_are_whole_and_no_more_than_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\nthree\n")
    assert read_last_lines(log, 2) == ["two", "three"]
    assert read_last_lines(log, 9) == ["one", "two", "three"]
    assert read_last_lines(log, 0) == []


def test_of_a_large_log_only_the_end_is_read_and_no_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100 + b"\nlast but one\nl\xc3\xa4st\n")
    assert read_last_lines(log, 9, max_bytes=25) == ["last but one", "läst"]


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_last_lines(tmp_path / "none", 5) == []
