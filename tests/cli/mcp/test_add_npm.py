"""The first steps with servers from npm, as in the guide: add, list, tools, call."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import NODE
from tests.support.cli.user import user
from tests.support.daemon.process import SECONDS, Daemon, rookery, up
from tests.support.npm.mcp_servers import OFFLINE, everything_at_a_port, installed, on_the_path
from tests.support.requirements import requirement

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "mcp-servers.md"

pytestmark = [requirement("hub.cli.add", "hub.cli.verbs"), pytest.mark.timeout(300)]


@pytest.fixture
def npm_daemon() -> Iterator[Daemon]:
    """A daemon whose user has installed both servers."""
    running = up(env={"PATH": on_the_path("everything", "filesystem")})
    yield running
    assert rookery("down").returncode == 0


@pytest.fixture
def daemon_with_npx(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with npx on its PATH: that of the package with Node.js cannot find its own modules."""
    (tmp_path / "npx").symlink_to(NODE / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js")
    running = up(env={"PATH": os.pathsep.join([str(tmp_path), on_the_path()])})
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


@requirement("servers.roots.switch")
def test_the_guides_first_example_works_inside_and_outside_a_project(
    daemon_with_npx: Daemon,
) -> None:
    """The server replaces the folders in its arguments by its roots as soon as it has any."""
    home = Path(os.environ["HOME"])
    app = home / "src" / "app"
    subprocess.run(["git", "init", "-q", str(app)], check=True, timeout=30)
    (app / "README.md").write_text("An app.\n")
    (home / "notes").mkdir()
    (home / "notes" / "todo.txt").write_text("Water the plants.\n")
    for folder in (home, app):  # where npx finds the package, and fetches nothing
        (folder / "node_modules").symlink_to(installed("filesystem").parents[1])
    example = next(line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("$ rookery"))
    _, program, *words = shlex.split(example.replace("~", str(home)))
    assert program == "rookery" and words[-3:-1] == ["-y", "@modelcontextprotocol/server-filesystem"]
    assert user(*words).returncode == 0
    assert user("project", "add", str(app)).returncode == 0

    def read(path: Path, folder: Path) -> tuple[int, str]:
        done = user("mcp", "call", "files", "read_text_file", f"path={path}", cwd=folder)
        return done.returncode, done.stdout

    def roots(folder: Path) -> str:
        return user("mcp", "call", "files", "list_allowed_directories", cwd=folder).stdout

    def switch(**options: Any) -> None:
        assert user("mcp", "remove", "files").returncode == 0
        entry = {"command": words[words.index("--") + 1 :]} | options
        assert user("mcp", "add-json", "files", json.dumps(entry)).returncode == 0

    for folder in (home, app):
        assert read(home / "notes" / "todo.txt", folder) == (0, "Water the plants.\n")
        assert roots(folder) == f"Allowed directories:\n{home / 'notes'}\n"
    switch(roots=True)
    deadline = time.monotonic() + SECONDS
    # The server asks for the roots after it has connected.
    while roots(app) != f"Allowed directories:\n{app}\n" and time.monotonic() < deadline:
        pass
    assert read(app / "README.md", app) == (0, "An app.\n")
    assert read(home / "notes" / "todo.txt", app)[0] == 1
    assert read(home / "notes" / "todo.txt", home) == (0, "Water the plants.\n")
    switch(roots=False)
    assert read(home / "notes" / "todo.txt", app) == (0, "Water the plants.\n")


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
