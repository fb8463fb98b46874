"""The doctor reports problems and changes nothing."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon.process import Daemon, rookery
from tests.support.opencode.process import installed
from tests.support.requirements import requirement

PROGRAMS = ["python", "git", "git-user", "node", "npm", "opencode", "ripgrep", "models", "just"]
# Nobody listens there.
NO_REGISTRY = {"npm_config_registry": "http://127.0.0.1:9"}
EXPECTED = [*PROGRAMS, "state", "store", "daemon", "ports", "disk", "inotify", "sandbox"]


def checks(**env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = rookery("doctor", "--json", env=NO_REGISTRY | env)
    rows = json.loads(done.stdout)["checks"]
    return done.returncode, {row["id"]: row for row in rows}


def tree(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@requirement("house.cli.doctor")
def test_there_is_a_row_for_everything_and_nothing_is_changed(tmp_path: Path) -> None:
    before = tree(Path.home().parent)
    folders = {f"XDG_{kind}_HOME": str(Path.home() / kind) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    # With the real OpenCode, which makes folders in its home and among temporary files even to say its version.
    code, found = checks(
        PATH=f"{installed().search_path}:{os.environ['PATH']}",
        ROOKERY_AGENTS_VERSION="path",
        TMPDIR=str(tmp_path),
        **folders,
    )
    assert found["opencode"]["status"] == "ok", found["opencode"]
    assert [*EXPECTED, "modes", "config", "auth", "servers"] == list(found)
    assert code == 0
    assert all(set(row) == {"id", "status", "summary", "remedy"} for row in found.values())
    assert all(row["remedy"] for row in found.values() if row["status"] != "ok")
    assert tree(Path.home().parent) == before
    assert list(tmp_path.iterdir()) == []


@requirement("house.cli.doctor")
def test_npm_leaves_nothing_among_temporary_files(tmp_path: Path) -> None:
    # The one from PyPI keeps compiled code there.
    search = tmp_path / "bin"
    search.mkdir()
    (search / "git").symlink_to(shutil.which("git") or "")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    _, found = checks(PATH=str(search), TMPDIR=str(temporary))
    assert found["npm"]["summary"].startswith("npm ") and "ECONNREFUSED" in found["npm"]["summary"]
    assert list(temporary.iterdir()) == []


@requirement("house.cli.doctor")
def test_what_is_missing_is_told_with_a_remedy(tmp_path: Path) -> None:
    code, found = checks(PATH=str(tmp_path))
    assert code == 1
    assert found["git"]["status"] == "failed"
    assert found["git"]["remedy"] == "install git"
    for tool in ("node", "npm", "opencode", "ripgrep", "models", "just"):
        assert found[tool]["status"] == "warning"
        assert found[tool]["remedy"]


@requirement("house.cli.doctor")
def test_a_git_that_does_not_know_its_user_is_told_with_the_commands_that_tell_it() -> None:
    _, found = checks()
    row = found["git-user"]
    assert row["status"] == "warning" and "no user.name and no user.email" in row["summary"]
    # The remedy is one as it stands.
    for line in row["remedy"].split("; "):
        assert line.startswith("git config --global user.")
        subprocess.run(shlex.split(line), check=True)
    assert checks()[1]["git-user"]["status"] == "ok"
    (Path.home() / ".gitconfig").write_text("[user]\nname = Somebody\n")
    row = checks()[1]["git-user"]
    assert "no user.email" in row["summary"] and "user.name" not in row["remedy"]
    given = {f"GIT_{role}_{what}": "x@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    assert checks(**given)[1]["git-user"]["status"] == "ok"


def test_old_and_broken_programs_are_recognised(tmp_path: Path) -> None:
    for name, script in {
        "git": "echo git version 2.20.1",
        "node": "echo v18.1.0",
        "npm": "echo rubbish",
        "just": "echo just 1.59.0",
        "rg": "sleep 60 & exit 3",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    code, found = checks(PATH=f"{tmp_path}:/usr/bin:/bin")
    assert code == 1
    assert "too old" in found["git"]["summary"]
    assert "is old" in found["node"]["summary"]
    assert "cannot read the version of npm" in found["npm"]["summary"]
    assert found["just"]["status"] == "ok"
    assert found["ripgrep"]["status"] == "warning"


@requirement("house.cli.doctor")
def test_an_error_is_never_taken_for_a_version(tmp_path: Path) -> None:
    for name in ("git", "node", "npm", "just", "rg"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho \"cannot open '/opt/lib-99.9/x': Read-only file system\"; exit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    code, found = checks(PATH=f"{tmp_path}:/usr/bin:/bin", ROOKERY_AGENTS_VERSION="path")
    assert code == 1 and found["git"]["status"] == "failed"
    for row, name in {"git": "git", "node": "node", "npm": "npm", "just": "just", "ripgrep": "rg"}.items():
        assert found[row]["status"] != "ok"
        told = f"cannot read the version of {name}: the file system is read-only: /opt/lib-99.9/x"
        assert found[row]["summary"] == told


@requirement("house.cli.doctor")
def test_a_running_and_a_killed_daemon_are_told_apart(daemon: Daemon) -> None:
    _, found = checks()
    assert f"pid {daemon.pid}" in found["daemon"]["summary"]
    os.kill(daemon.pid, 9)
    _, found = checks()
    assert "killed" in found["daemon"]["summary"]


@requirement("house.cli.doctor")
def test_secrets_that_others_can_read_and_bad_config_are_failures(daemon: Daemon, tmp_path: Path) -> None:
    (daemon.state / "token").chmod(0o644)
    code, found = checks()
    assert code == 1
    assert found["modes"]["remedy"] == f"rm {daemon.state / 'token'}"
    (daemon.state / "token").chmod(0o600)
    config = Path.home() / ".config" / "rookery" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[log\n")
    code, found = checks()
    assert code == 1
    assert str(config) in found["config"]["summary"]
    config.unlink()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    config = tmp_path / ".rookery" / "config.toml"
    config.parent.mkdir()
    config.write_text("[log\n")
    done = rookery("doctor", env=NO_REGISTRY, cwd=tmp_path)
    (line,) = [line for line in done.stdout.splitlines() if "config" in line and str(config) in line]
    assert line.startswith("!") and "repair or remove it" in line


def test_what_would_keep_a_start_from_working_is_told(state: Path) -> None:
    (state / "file").touch()
    code, found = checks(ROOKERY_HOME=str(state / "file" / "state"))
    assert code == 1
    assert found["state"]["status"] == "failed"
    header = b"SQLite format 3\0" + bytes(44) + (99).to_bytes(4, "big") + bytes(36)
    (state / "rookery.db").write_bytes(header)
    code, found = checks()
    assert code == 1
    assert "schema 99 is newer" in found["store"]["summary"]


def test_people_see_one_line_a_check() -> None:
    shown = rookery("doctor", env=NO_REGISTRY).stdout.splitlines()
    assert len(shown) == len(EXPECTED) + 4
    assert shown[0].startswith("✓ python")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_is_no_reason_to_fail(encoding: str) -> None:
    done = rookery("doctor", env=NO_REGISTRY | {"PYTHONIOENCODING": encoding})
    assert done.returncode == 0, done.stderr


@requirement("house.cli.doctor")
def test_what_is_wrong_in_the_files_that_define_servers_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = Path.home() / ".config" / "rookery" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"servers": {"good": {"command": ["true"]}}}')
    assert checks()[1]["servers"] == {
        "id": "servers",
        "status": "ok",
        "summary": "1 defined",
        "remedy": "",
    }
    file.write_text('{"servers": {\n"good": {"command": ["true"], "enviroment": {}},\n"b\\u202ead": {}}}')
    code, found = checks()
    assert code == 1
    assert found["servers"]["status"] == "failed"
    done = rookery("doctor", env=NO_REGISTRY)
    told = [line for line in done.stdout.splitlines() if "servers" in line and str(file) in line]
    assert [line[0] for line in told] == ["!", "✗"]
    assert f"{file}:2" in told[0] and 'did you mean "environment"?' in told[0]
    assert f"{file}:3" in told[1]
    assert "\u202e" not in done.stdout
