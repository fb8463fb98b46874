"""Following a log line by line, also when it is rotated."""

from pathlib import Path

from rookery.system.fs.follow import GrowingFile


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_each_line_comes_once_and_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    growing = GrowingFile(log)
    assert list(growing.lines()) == []
    add(log, "one\ntw")
    assert list(growing.lines()) == ["one"]
    assert list(growing.lines()) == []
    add(log, "o\nthree\n")
    assert list(growing.lines()) == ["two", "three"]


def test_a_log_that_takes_its_place_or_is_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    growing = GrowingFile(log)
    add(log, "old\n")
    assert list(growing.lines()) == ["old"]
    log.rename(tmp_path / "log.1")
    assert list(growing.lines()) == []
    add(log, "new, and longer\n")
    assert list(growing.lines()) == ["new, and longer"]
    log.write_text("short\n")
    assert list(growing.lines()) == ["short"]
