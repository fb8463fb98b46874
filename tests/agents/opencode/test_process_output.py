"""The output of an agent is logged, bounded, and passed to listeners."""

import asyncio
import stat
from pathlib import Path

import pytest

from rookery.agents.opencode.process import AgentLog, ListenDetector

pytestmark = pytest.mark.anyio


async def test_the_log_is_private_and_never_holds_much_more_than_its_limit(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "logs" / "agent.log", max_bytes=1000)
    for number in range(100):
        log.write(b"%04d %s\n" % (number, b"x" * 94))
        log.flush()
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert log.path.stat().st_size <= 1000
    assert log.older.stat().st_size <= 1000
    assert log.path.read_text().splitlines()[-1].startswith("0099")
    assert sorted(path.name for path in log.path.parent.iterdir()) == ["agent.log", "agent.log.1"]


async def test_what_comes_in_many_pieces_is_kept_soon_and_in_order(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "agent.log")
    text = b"".join(b"line %d\n" % number for number in range(200))
    for start in range(0, len(text), 7):
        log.write(text[start : start + 7])
    assert log.path.read_bytes() == text[:7]
    async with asyncio.timeout(20):
        while log.path.read_bytes() != text:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
    log.write(b"the end\n")
    log.write(b"and behind it\n")
    log.flush()
    assert log.path.read_bytes() == text + b"the end\nand behind it\n"
    log.path.unlink()
    log.flush()
    assert not log.path.exists()


async def test_the_last_lines_are_at_hand_whatever_came_before(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "agent.log")
    log.write(b"y" * 100_000 + b"\n\nbefore\n" + "das Ende ü\n".encode() + b"\xff\n")
    assert log.last_lines(2) == "das Ende ü\n�"


async def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    log = AgentLog(tmp_path / "file" / "agent.log")
    log.write(b"one\n")
    log.write(b"two\n")
    log.flush()
    assert log.last_lines() == "one\ntwo"
    assert caplog.text.count("the agent's output cannot be written") == 1


async def test_the_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("mine\n")
    (tmp_path / "agent.log").symlink_to("target")
    AgentLog(tmp_path / "agent.log").write(b"theirs\n")
    assert (tmp_path / "target").read_text() == "mine\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_d15_the_announcement_is_heard_once_however_it_arrives(size: int, tmp_path: Path) -> None:
    heard: list[int] = []
    log = AgentLog(tmp_path / "agent.log")
    sink = ListenDetector(log, heard.append)
    text = b"Warning: something\nnot opencode server listening on http://127.0.0.1:1\n"
    text += b"opencode server listening on http://127.0.0.1:14001\nopencode server listening on http://127.0.0.1:2\n"
    for start in range(0, len(text), size):
        sink.write(text[start : start + size])
    log.flush()
    assert heard == [14001]
    assert not sink.guarded
    assert (tmp_path / "agent.log").read_bytes() == text
