"""mcp.lock with the real daemon: who may write it, which servers are in it, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.guard.lock.file import parse_lock
from rookery.guard.pins.definition import compute_digest
from tests.cli.guard.test_lock import PYTHON_SERVER, READ
from tests.support.cli.user import at_a_terminal, user
from tests.support.daemon.jobs import as_child
from tests.support.daemon.operation_calls import REFUSALS
from tests.support.daemon.process import Daemon
from tests.support.gateway.gateway import user_file, write
from tests.support.requirements import requirement
from tests.support.workspaces.service import make_repository

SERVER = {"command": [sys.executable, "server.py"]}


@pytest.fixture
def app(daemon: Daemon, tmp_path: Path) -> Path:
    """A registered repository without servers, and a server of the user's own that its workspaces have."""
    made = make_repository(tmp_path / "app", {"server.py": PYTHON_SERVER, "tools.json": json.dumps([READ])})
    write({"own": SERVER})
    assert user("project", "add", cwd=made).returncode == 0
    return made


def run(app: Path, *words: str) -> tuple[int, Any]:
    done = user("guard", *words, "--json", cwd=app)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def locked(app: Path) -> list[str]:
    return list(parse_lock((app / "mcp.lock").read_text()))


def test_the_users_own_servers_are_locked_by_name_or_where_there_are_no_others(app: Path) -> None:
    code, written = run(app, "lock")
    assert (code, [server["name"] for server in written["servers"]]) == (0, ["own"])
    assert "own level user" in (app / "mcp.lock").read_text()
    assert run(app, "check")[0] == 0
    # A server of the repository that waits for approval is neither started nor locked.
    write({"theirs": SERVER}, app / ".rookery" / "mcp.json")
    code, written = run(app, "lock")
    assert (code, locked(app)) == (1, ["own"])
    assert [(each["server"], each["message"]) for each in written["problems"]] == [
        ("theirs", "it needs approval: rookery guard approve")
    ]
    (app / "mcp.lock").unlink()
    assert run(app, "lock")[0] == 1 and locked(app) == []
    assert run(app, "lock", "own")[0] == 0 and locked(app) == ["own"]
    code, report = run(app, "check")
    assert (code, [(each["server"], each["rule"]) for each in report["differences"]]) == (
        1,
        [("theirs", "server-not-locked")],
    )
    # Where the user's own server is not defined, it is kept and noted.
    write({})
    code, report = run(app, "check", "own")
    assert (code, [each["rule"] for each in report["differences"]]) == (0, ["own-server-missing"])
    assert run(app, "lock")[0] == 1 and locked(app) == ["own"]


def test_a_disabled_server_is_no_drift_and_keeps_its_lines(app: Path) -> None:
    assert run(app, "lock")[0] == 0
    text = (app / "mcp.lock").read_text()
    assert user("mcp", "disable", "own", cwd=app).returncode == 0
    code, report = run(app, "check")
    assert (code, [each["rule"] for each in report["differences"]]) == (0, ["server-disabled"])
    assert run(app, "lock")[0] == 0 and (app / "mcp.lock").read_text() == text


@requirement("guard.pin.lock")
def test_drift_of_what_servers_listed_last_is_shown_without_starting_them(app: Path) -> None:
    def drift() -> list[tuple[str, str]]:
        found = json.loads(user("guard", "diff", "--json", cwd=app).stdout)
        return [(each["subject"], each["rule"]) for each in found["drift"]]

    assert drift() == []
    assert run(app, "lock")[0] == 0 and drift() == []
    (app / "tools.json").write_text(json.dumps([READ | {"title": "Read"}, READ | {"name": "more"}]))
    # Nothing was listed yet, apart from what the lock was made of.
    assert drift() == []
    assert user("mcp", "connect", "own", cwd=app).returncode == 0
    assert drift() == [("tool more", "definition-new"), ("tool read", "definition-changed")]
    done = user("guard", "diff", cwd=app)
    assert done.returncode == 1
    assert "differs from mcp.lock:\n✗ own: tool more is listed, but not locked [definition-new]" in done.stdout
    found = json.loads(user("guard", "diff", "own", "--json", cwd=app).stdout)
    assert [each["subject"] for each in found["drift"]] == ["tool more", "tool read"]
    write({"own": {**SERVER, "cwd": "."}})
    assert ("cwd", "server-changed") in drift()
    (app / "mcp.lock").write_text("no lock\n")
    done = user("guard", "diff", cwd=app)
    assert done.returncode == 1 and "mcp.lock:1: the first line is not" in done.stdout
    # Where there is no checkout, there is no lock.
    assert "mcp.lock" not in user("guard", "diff").stdout


@requirement("guard.lock.file", "guard.pin.lock")
def test_c06_a_lock_that_the_user_approved_releases_what_a_colleague_reviewed(app: Path) -> None:
    assert run(app, "lock")[0] == 0
    first = (app / "mcp.lock").read_text()
    changed = READ | {"description": "Read a page of the book."}
    (app / "tools.json").write_text(json.dumps([changed]))
    assert user("mcp", "connect", "own", cwd=app).returncode == 0
    assert "read" not in user("mcp", "tools", "own", cwd=app).stdout
    assert "mcp.lock" not in user("guard", "list", cwd=app).stdout
    # A colleague has locked the new definition.
    old, new = (compute_digest(json.dumps(each).encode()) for each in (READ, changed))
    (app / "mcp.lock").write_text(first.replace(old, new))
    assert "read" not in user("mcp", "tools", "own", cwd=app).stdout
    assert "mcp.lock" in user("guard", "list", cwd=app).stdout
    with at_a_terminal("guard", "approve", "mcp.lock", cwd=app) as person:
        shown = person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0, person.text
    assert "mcp-lock" in shown and new in shown
    assert "read" in user("mcp", "tools", "own", cwd=app).stdout
    assert user("guard", "diff", cwd=app).stdout == "nothing is withheld\n"
    assert run(app, "check")[0] == 0


def test_a_missing_a_broken_and_a_linked_file_are_reported(app: Path, tmp_path: Path) -> None:
    code, error = run(app, "check")
    assert code == 3 and "there is no mcp.lock in" in error and "rookery guard lock" in error
    (app / "mcp.lock").write_text("# rookery mcp.lock 1\n<<<<<<< HEAD\n")
    code, error = run(app, "check")
    assert code == 1 and "mcp.lock:2: git left a conflict here" in error
    assert "mcp.lock:2: git left a conflict here" in run(app, "lock", "own")[1]
    code, written = run(app, "lock")
    assert code == 0 and "the old file was not used" in written["notes"][0]["message"]
    # A link that leads out of the repository is neither read nor written through.
    target = tmp_path / "target"
    target.write_text("mine")
    (app / "mcp.lock").unlink()
    (app / "mcp.lock").symlink_to(target)
    assert "mcp.lock cannot be read: mcp.lock is a symbolic link" in run(app, "check")[1]
    assert run(app, "lock")[0] == 0
    assert target.read_text() == "mine" and not (app / "mcp.lock").is_symlink()


def test_outside_of_a_repository_there_is_nothing_to_lock(daemon: Daemon) -> None:
    write({"own": SERVER})
    code, error = run(user_file().parent, "lock")
    assert code == 2 and "no workspace is selected" in error


def test_c23_what_rookery_started_cannot_write_the_lock(app: Path, daemon: Daemon) -> None:
    code = (
        "import json, sys\n"
        "from rookery.daemon_client.connection import connect\n"
        "link = connect()\n"
        f"status = link.request('POST', '/api/guard/lock?workspace={app}', b'{{}}')\n"
        "print(json.dumps([status, json.loads(link.read())]))\n"
    )
    env = os.environ | as_child(daemon)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True, timeout=60)
    status, answer = json.loads(done.stdout)
    assert status == 403 and answer["error"]["code"] in REFUSALS
    assert not (app / "mcp.lock").exists()
