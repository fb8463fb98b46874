"""The log continues whatever happens to its file, and contains no secrets."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.system import log
from tests.support.requirements import requirement
from tests.support.small_disk import SmallDisk

SECRET = "rk_the-owners-own-token"
QUOTED = 'with "quotes" and \\ in it'


@pytest.fixture
def file(state: Path) -> Iterator[Path]:
    """A log file that the root logger writes to, and nothing left of that afterwards."""
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield state / "logs" / "daemon.jsonl"
    for handler in [handler for handler in root.handlers if handler not in before[0]]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[1])
    logging.captureWarnings(False)


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().split("\n") if line]


@requirement("house.log.format")
def test_each_line_is_json_with_time_level_logger_and_message(file: Path) -> None:
    log.set_up(file, level="info", max_bytes=10_000, files=2, terminal=False)
    logging.getLogger("rookery.mcp.wire").warning("a %s\nof two", "line", extra={"workspace": "w"})
    (one,) = records(file)
    assert one["level"] == "warning"
    assert one["logger"] == "rookery.mcp.wire"
    assert one["message"] == "a line\nof two"
    assert one["workspace"] == "w"
    assert one["time"].endswith("Z")
    assert file.stat().st_mode & 0o777 == 0o600


@requirement("house.log.format")
def test_a20_no_secret_gets_into_file_terminal_or_tap(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tapped: list[dict[str, Any]] = []
    monkeypatch.setattr(log, "REDACTOR", log.Redactor())
    log.REDACTOR.add(SECRET)
    log.REDACTOR.add(QUOTED)
    log.set_up(file, level="info", max_bytes=10_000, files=2, terminal=True)
    logging.getLogger().addHandler(log.CallbackHandler(tapped.append))
    try:
        raise RuntimeError(f"bad token {SECRET}")
    except RuntimeError:
        logging.getLogger("rookery").exception("with %s", SECRET, extra={"given": {"deep": [SECRET, QUOTED, object()]}})
    logging.getLogger("rookery").error(QUOTED)
    written = file.read_text() + capsys.readouterr().err + repr(tapped)
    assert SECRET not in written
    assert "quotes" not in written
    assert "[secret]" in written


def test_the_level_can_be_changed_at_any_time(file: Path) -> None:
    log.set_up(file, level="warning", max_bytes=10_000, files=2, terminal=False)
    logger = logging.getLogger("rookery.x")
    logger.info("one")
    log.set_level("debug")
    logger.debug("two")
    assert [one["message"] for one in records(file)] == ["two"]


@requirement("house.log.format")
def test_d19_the_file_is_rotated_and_old_ones_are_let_go(file: Path) -> None:
    log.set_up(file, level="info", max_bytes=2000, files=3, terminal=False)
    for number in range(100):
        logging.getLogger("rookery").info("record %d %s", number, "x" * 50)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "daemon.jsonl",
        "daemon.jsonl.1",
        "daemon.jsonl.2",
    ]
    assert all(path.stat().st_size <= 2000 for path in file.parent.iterdir())
    assert records(file)[-1]["message"].startswith("record 99")


@pytest.mark.parametrize("how", ["removed", "renamed", "folder removed"])
def test_d19_the_log_goes_on_when_its_file_is_taken_away(file: Path, how: str) -> None:
    handler = log.set_up(file, level="info", max_bytes=10_000, files=2, terminal=False)
    logging.getLogger("rookery").info("one")
    if how == "renamed":
        file.rename(file.with_name("elsewhere"))
    else:
        file.unlink()
    if how == "folder removed":
        file.parent.rmdir()
    logging.getLogger("rookery").info("two")
    assert [one["message"] for one in records(file)] == ["two"]
    assert handler.lost_records == 0


def test_d19_a_full_disk_loses_records_and_nothing_else(small_disk: SmallDisk) -> None:
    told = small_disk.run(
        """
        import logging
        from rookery.system import log
        handler = log.set_up(disk / "logs" / "l", level="info", max_bytes=10**9, files=2, terminal=False)
        logger = logging.getLogger("rookery")
        for _ in range(400):
            logger.info("x" * 10_000)
        print(handler.lost_records > 0)
        (disk / "logs" / "l").unlink()
        lost = handler.lost_records
        logger.info("goes on")
        print("goes on" in (disk / "logs" / "l").read_text(), handler.lost_records == lost)
        """
    )
    assert told == ["True", "True True"]


def test_a_terminal_that_was_closed_is_no_reason_to_fail(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.set_up(file, level="info", max_bytes=10_000, files=2, terminal=True)
    stream = next(one for one in logging.getLogger().handlers if isinstance(one, log.QuietStreamHandler))
    with (file.parent / "gone").open("w") as gone:
        stream.setStream(gone)
    logging.getLogger("rookery").info("one")
    assert [one["message"] for one in records(file)] == ["one"]


def test_no_message_or_exception_can_move_the_cursor_or_forge_a_line(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    log.set_up(file, level="info", max_bytes=10_000, files=2, terminal=True)
    forged = "12:00:00 info    guard: approved"
    trick = f"it said \x1b[2J\x9b1A\u202egnp\r\n{forged}\u2028x"
    try:
        raise ValueError(trick)
    except ValueError:
        logging.getLogger("rookery.mcp").exception(trick)
    shown = capsys.readouterr().err
    first, *rest = shown.splitlines()
    assert first.endswith(rf" error   mcp: it said \e[2J\u{{9b}}1A\u{{202e}}gnp\r\n{forged}\u{{2028}}x")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert f"    {forged}\\u{{2028}}x" in rest
    assert records(file)[0]["message"] == trick


def test_people_see_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.makeLogRecord({"name": "rookery.http", "levelname": "INFO", "levelno": 20, "msg": "hello"})
    assert log.HumanFormatter(colour=False).format(record).endswith(" info    http: hello")
    assert "\x1b[" not in log.HumanFormatter(colour=False).format(record)
    record.levelno = logging.ERROR
    assert log.HumanFormatter(colour=True).format(record).startswith("\x1b[31m")
