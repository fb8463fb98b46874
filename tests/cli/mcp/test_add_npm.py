"""The first steps with servers from npm, as in the guide: add, list, tools, call."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.user import user
from tests.support.daemon.process import Daemon, rookery, up
from tests.support.npm.mcp_servers import OFFLINE, everything_at_a_port, on_the_path
from tests.support.requirements import requirement

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "mcp-servers.md"

pytestmark = [requirement("hub.cli.add", "hub.cli.verbs"), pytest.mark.timeout(300)]


@pytest.fixture
def npm_daemon() -> Iterator[Daemon]:
    """A daemon whose user has installed both servers."""
    running = up(env={"PATH": on_the_path("everything", "filesystem")})
    yield running
    assert rookery("down").returncode == 0


def test_the_filesystem_server_is_added_listed_and_called_as_the_guide_says(npm_daemon: Daemon) -> None:
    home = os.environ["HOME"]
    notes = Path(home) / "notes"
    notes.mkdir()
    (notes / "todo.txt").write_text("Water the plants.\n")
    added = user("mcp", "add", "files", "--", "mcp-server-filesystem", str(notes))
    assert added.returncode == 0, added.stderr
    listed = user("mcp", "list")
    read = user("mcp", "call", "files", "read_text_file", f"path={notes}/todo.txt")
    shown = [added.stdout + added.stderr, f"$ rookery mcp list\n{listed.stdout}"]
    shown += [f"$ rookery mcp call files read_text_file path=/home/you/notes/todo.txt\n{read.stdout}"]
    guide = GUIDE.read_text(encoding="utf-8")
    assert all(part.replace(home, "/home/you") in guide for part in shown), shown
    told = user("mcp", "tools", "files").stdout
    assert told.startswith("files: 14 tools, about ")
    assert "read_text_file" in told
    written = user("mcp", "call", "files", "write_file", f"path={notes}/new.txt", "content=12")
    assert written.returncode == 0, written.stdout
    assert (notes / "new.txt").read_text() == "12"
    outside = user("mcp", "call", "files", "read_text_file", "path=/etc/passwd")
    assert outside.returncode == 1
    assert "Access denied" in outside.stdout
    checked = user("mcp", "check", "--json")
    (judged,) = json.loads(checked.stdout)["servers"]
    assert checked.returncode == 0 and (judged["status"], judged["tools"]) == ("reachable", 14)


@pytest.mark.parametrize("way", ["local", "remote"])
def test_the_everything_server_is_added_listed_and_called(npm_daemon: Daemon, way: str, tmp_path: Path) -> None:
    with everything_at_a_port() as url:
        offline = [word for name, value in OFFLINE.items() for word in ("--env", f"{name}={value}")]
        local = ["mcp", "add", "everything", *offline, "--", "mcp-server-everything", "stdio"]
        added = user(*local) if way == "local" else user("mcp", "add", "everything", "--url", url)
        assert added.returncode == 0, added.stderr
        assert "connected (2025-11-25)" in added.stderr
        record = json.loads(user("mcp", "list", "--json").stdout)["everything"]
        assert (record["status"], record["kind"]) == ("connected", way)
        names = {tool["tool"] for tool in json.loads(user("mcp", "tools", "everything", "--json").stdout)}
        assert {"echo", "get-sum", "get-tiny-image"} <= names
        assert user("mcp", "call", "everything", "echo", "message=hi there").stdout == "Echo: hi there\n"
        assert "The sum of 2 and 3 is 5" in user("mcp", "call", "everything", "get-sum", "a=2", "b=3").stdout
        picture = user("mcp", "call", "everything", "get-tiny-image", "--save", str(tmp_path))
        assert picture.returncode == 0, picture.stderr
        assert [path.read_bytes()[:4] for path in tmp_path.glob("*.png")] == [b"\x89PNG"]
        slow = user("mcp", "call", "everything", "trigger-long-running-operation", "duration=0.2", "steps=2")
        assert slow.returncode == 0, slow.stdout
        assert [line.split()[:3] for line in slow.stderr.splitlines()] == [["1", "of", "2"], ["2", "of", "2"]]
        for verb, status in (("disconnect", "stopped"), ("connect", "connected"), ("disable", "disabled")):
            assert user("mcp", verb, "everything").returncode == 0, verb
            assert json.loads(user("mcp", "get", "everything", "--json").stdout)["status"] == status
        assert user("mcp", "enable", "everything").returncode == 0
        assert user("mcp", "remove", "everything").returncode == 0
        assert json.loads(user("mcp", "list", "--json").stdout) == {}
