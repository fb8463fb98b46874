"""The event stream and the live log of the real daemon."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon.events import Reader
from tests.support.daemon.foreground import wait_for_line
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery, up
from tests.support.requirements import requirement


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    return tmp_path / "app"


@requirement("house.api.events")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_changes_are_told_as_they_happen_and_again_from_any_known_id(state: Path, repository: Path, loop: str) -> None:
    daemon = up("--set", f"daemon.loop={loop}")
    reader = Reader(daemon, "/api/events?since=0")
    assert reader.status == 200
    gap = reader.next()
    assert gap is not None and gap["event"] == "gap"
    started = reader.until("daemon.started")
    assert started["data"]["instance"] == daemon.runtime["instance"]
    assert rookery("project", "add", str(repository)).returncode == 0
    added = reader.until("project.added")
    assert added["data"]["project"]["path"] == str(repository)
    assert int(added["id"]) > int(started["id"])
    again = Reader(daemon, f"/api/events?since={started['id']}")
    assert again.next() == added
    again.close()
    assert rookery("down").returncode == 0
    assert reader.until("daemon.stopping")
    end = reader.next()
    assert end is not None and (end["event"], end["data"]) == ("end", {"reason": "shutdown"})
    assert reader.next() is None
    reader.close()


@requirement("house.api.events")
def test_a_since_that_is_no_id_is_refused(daemon: Daemon) -> None:
    for since in ("x", "-1", "1.5", "9" * 30, "%D9%A1"):
        answer = daemon.http("GET", f"/api/events?since={since}")
        assert answer.status == 400
        assert answer.json()["error"]["code"] == "invalid-input"


@requirement("house.cli.logs")
def test_the_log_is_shown_filtered_and_followed_and_its_level_changed_while_it_runs(daemon: Daemon) -> None:
    shown = rookery("logs", "--json", "-n", "5")
    assert shown.returncode == 0
    assert any("up at" in json.loads(line)["message"] for line in shown.stdout.splitlines())
    assert rookery("logs", "--level", "error").stdout == ""
    with subprocess.Popen([ROOKERY, "logs", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        wait_for_line(follower.stdout.fileno(), b"up at")
        done = rookery("config", "set", "log.level", "debug")
        assert "has applied it" in done.stderr
        wait_for_line(follower.stdout.fileno(), b"settings applied: log.level")
        daemon.http("GET", "/api/status", token=None)
        wait_for_line(follower.stdout.fileno(), b"refused with 401")
        assert rookery("down").returncode == 0
        assert b"shutdown" in wait_for_line(follower.stderr.fileno(), b"the log ended")
        assert follower.wait(SECONDS) == 0
    assert any(one["level"] == "debug" for one in daemon.log())


def test_following_the_log_of_no_daemon_exits_with_5() -> None:
    done = rookery("logs", "-f")
    assert done.returncode == 5
    assert rookery("logs").returncode == 3
