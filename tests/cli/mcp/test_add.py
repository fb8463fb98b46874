"""`rookery mcp add` and `add-json`, with a real daemon, and on a real terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.user import TerminalUser, at_a_terminal, user
from tests.support.daemon.jobs import as_child
from tests.support.daemon.process import Daemon, rookery, unused_port
from tests.support.mcp.client import PROGRAMS
from tests.support.npm.mcp_servers import everything_at_a_port
from tests.support.requirements import requirement

SHOWY = [sys.executable, str(PROGRAMS / "showy_server.py")]

pytestmark = requirement("hub.cli.add")


def user_file() -> Path:
    return Path(os.environ["HOME"]) / ".config" / "rookery" / "mcp.json"


def entries() -> dict[str, Any]:
    return json.loads(user_file().read_text())["servers"]


@pytest.fixture
def app(daemon: Daemon, tmp_path: Path) -> Path:
    """A project without servers."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "app")], check=True, timeout=30)
    assert rookery("project", "add", str(tmp_path / "app")).returncode == 0
    return (tmp_path / "app").resolve()


@requirement("hub.cli.add-check")
def test_a_local_server_is_written_to_the_users_file_and_connected(daemon: Daemon) -> None:
    done = user("mcp", "add", "showy", "--env", "A=b=c", "--", *SHOWY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"added showy to {user_file()}\n"
    assert done.stderr == "connecting showy ...\nconnected (2025-11-25), 7 tools\n"
    assert entries() == {"showy": {"command": SHOWY, "environment": {"A": "b=c"}}}
    assert user_file().stat().st_mode & 0o777 == 0o600


@requirement("hub.cli.add-check")
def test_a_remote_server_is_tried_and_its_headers_are_kept_as_they_were_written(daemon: Daemon) -> None:
    with everything_at_a_port() as url:
        words = ["--header", "X-One=1", "--header", "Authorization: Bearer {env:HOME}"]
        done = user("mcp", "add", "far", "--url", url, *words)
        assert done.returncode == 0, done.stderr
        assert "connected (2025-11-25)" in done.stderr
    assert entries()["far"] == {"url": url, "headers": {"X-One": "1", "Authorization": "Bearer {env:HOME}"}}


@requirement("hub.cli.add-check", "hub.cli.failed")
def test_a_server_that_cannot_connect_stays_in_the_file_and_the_command_fails(daemon: Daemon) -> None:
    url = f"http://127.0.0.1:{unused_port()}/mcp"
    done = user("mcp", "add", "far", "--url", url)
    assert done.returncode == 1
    assert 'MCP server "far" failed: ' in done.stderr
    assert "the entry stays in the file; see the details: rookery mcp debug far" in done.stderr
    assert entries() == {"far": {"url": url}}
    told = user("mcp", "add", "gone", "--json", "--", "/nowhere/at-all")
    assert told.returncode == 1
    assert json.loads(told.stdout)["record"]["status"] == "failed"
    assert json.loads(told.stderr.splitlines()[-1])["error"]["code"] == "upstream-failed"
    assert user("mcp", "add", "untried", "--no-check", "--", "/nowhere/at-all").returncode == 0


@requirement("hub.cli.add-check", "hub.cli.failed")
def test_the_error_for_a_slow_start_suggests_that_the_server_was_downloading(daemon: Daemon) -> None:
    entry = {"command": ["sleep", "600"], "timeouts": {"startup": 0.2}}
    done = user("mcp", "add-json", "my files", json.dumps(entry))
    assert done.returncode == 1 and "not connected within the start-up timeout of 0.2 s" in done.stderr
    assert "download the server; try again: rookery mcp connect 'my files'" in done.stderr


@requirement("hub.cli.add-check", "house.cli.exit")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--url", "ftp://example.com"], "must begin with http:// or https://"),
        (["x", "--url", "http://"], "name a host"),
        (["x", "--url", "http://a:99999/"], "name a host"),
        (["x", "--url", "example.com/mcp"], "must begin with http:// or https://"),
        (["a/b", "--", "true"], 'must not contain "/"'),
        (["", "--", "true"], "give a NAME"),
        ([" x ", "--", "true"], "starts or ends with a space"),
        (["a\x1b[2Jb", "--", "true"], "control characters"),
        (["x" * 201, "--", "true"], "longer than 200"),
        (["x", "--url", "http://a/", "--", "true"], "either local"),
        (["x", "--url", "http://a/", "--env", "A=b"], "--env is for local"),
        (["x", "--header", "A=b", "--", "true"], "--header and --transport are for remote"),
        (["x", "--env", "nothing", "--", "true"], "'nothing' is not NAME=VALUE"),
        (["x", "-y", "package"], "put -- before that command"),
        (["x"], "give a NAME"),
        ([], "give a NAME"),
        (["x", "--client", "claude", "--", "true"], "Rookery reads no file of claude"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(daemon: Daemon, words: list[str], said: str) -> None:
    done = user("mcp", "add", *words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
    assert not user_file().exists()


def test_an_entry_of_that_name_is_replaced_only_by_force_and_comments_are_kept(daemon: Daemon) -> None:
    user_file().parent.mkdir(parents=True)
    before = '{\n  // mine\n  "servers": {\n    "showy": {"command": ["false"]}, // old\n  },\n}\n'
    user_file().write_text(before)
    refused = user("mcp", "add", "showy", "--", *SHOWY)
    assert refused.returncode == 2
    assert "server 'showy' already exists in" in refused.stderr and "(replace it with --force)" in refused.stderr
    assert user_file().read_text() == before
    assert user("mcp", "add", "showy", "--force", "--", *SHOWY).returncode == 0
    assert "// mine" in user_file().read_text() and "// old" in user_file().read_text()
    assert user("mcp", "add", "other", "--no-check", "--", "true").returncode == 0
    assert set(json.loads(user("mcp", "list", "--json").stdout)) == {"showy", "other"}
    assert "// mine" in user_file().read_text()


@pytest.mark.parametrize(
    ("client", "file", "path", "entry"),
    [
        ("rookery", ".rookery/mcp.json", ["servers"], {"command": SHOWY}),
        ("opencode", "opencode.json", ["mcp"], {"type": "local", "command": SHOWY}),
        ("claude", ".mcp.json", ["mcpServers"], {"command": SHOWY[0], "args": SHOWY[1:]}),
    ],
)
def test_in_a_projects_file_it_waits_for_approval_and_that_is_said(
    daemon: Daemon, app: Path, client: str, file: str, path: list[str], entry: dict[str, Any]
) -> None:
    (app / "sub").mkdir()
    done = user("mcp", "add", "showy", "--scope", "project", "--client", client, "--", *SHOWY, cwd=app / "sub")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"added showy to {app / file}\n"
    assert "needs approval (review and approve it: rookery guard approve showy)" in done.stderr
    assert json.loads((app / file).read_text())[path[0]] == {"showy": entry}
    listed = json.loads(user("mcp", "list", "--json", cwd=app).stdout)
    assert listed["showy"]["status"] == "needs_approval"
    with at_a_terminal("guard", "approve", "showy", cwd=app) as person:
        person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0
    assert user("mcp", "connect", "showy", cwd=app).returncode == 0


def test_the_file_is_any_that_the_user_names(daemon: Daemon, app: Path, tmp_path: Path) -> None:
    done = user("mcp", "add", "showy", "--file", "some.json", "--", *SHOWY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "connection not tested: Rookery does not read this file here" in done.stderr
    assert json.loads((tmp_path / "some.json").read_text()) == {"servers": {"showy": {"command": SHOWY}}}
    done = user("mcp", "add", "showy", "--file", "opencode.jsonc", "--", *SHOWY, cwd=app)
    assert done.returncode == 0, done.stderr
    assert json.loads((app / "opencode.jsonc").read_text())["mcp"]["showy"]["type"] == "local"


def test_one_that_another_stands_before_is_told_of(daemon: Daemon, app: Path) -> None:
    (app / ".mcp.json").write_text('{"mcpServers": {"showy": {"command": "true"}}}')
    done = user("mcp", "add", "showy", "--", *SHOWY, cwd=app)
    assert done.returncode == 0, done.stderr
    assert f"connection not tested: {app}/.mcp.json:1 overrides it" in done.stderr
    assert user("mcp", "add", "showy", "--global", "--force", "--", *SHOWY, cwd=app).returncode == 0


def test_a_projects_file_needs_a_project(daemon: Daemon, tmp_path: Path) -> None:
    done = user("mcp", "add", "showy", "--scope", "project", "--", *SHOWY, cwd=tmp_path)
    assert done.returncode == 3
    assert "this folder is not in a project of Rookery (rookery project add PATH)" in done.stderr


def test_an_entry_is_taken_as_json_from_the_words_or_from_stdin(daemon: Daemon) -> None:
    claude = {"command": SHOWY[0], "args": SHOWY[1:]}
    assert user("mcp", "add-json", "one", json.dumps(claude)).returncode == 0
    assert user("mcp", "add-json", "two", "-", given=json.dumps({"command": SHOWY})).returncode == 0
    assert entries() == {"one": claude, "two": {"command": SHOWY}}
    for text, said in (("{", "not JSON"), ("[]", "must be a JSON object"), ("{}", "neither a command nor a url")):
        refused = user("mcp", "add-json", "three", text)
        assert refused.returncode == 2
        assert said in refused.stderr


def test_c23_a_process_that_rookery_started_adds_nothing(daemon: Daemon) -> None:
    refused = rookery("mcp", "add", "mine", "--", "true", env=as_child(daemon))
    assert refused.returncode == 4
    assert "started by Rookery" in refused.stderr
    assert not user_file().exists()


# ---- on a terminal


def answers(person: TerminalUser, question: str, typed: str) -> None:
    person.reads(question)
    person.types(typed + "\n")


@requirement("hub.cli.add-check")
def test_a_person_is_asked_for_what_is_left_out_of_a_local_server(daemon: Daemon) -> None:
    with at_a_terminal("mcp", "add") as person:
        answers(person, "Name", "a/b")
        answers(person, 'must not contain "/"', "my notes")
        answers(person, "A local program, or a remote server (local, remote) [local]", "elsewhere")
        answers(person, "is not one of", "local")
        answers(person, "Command", "unfinished 'quote")
        answers(person, "cannot be split", f"{SHOWY[0]} '{SHOWY[1]}' ~/x \"two words\"")
        person.reads("connected (2025-11-25)")
        assert person.ends() == 0, person.text
    assert entries() == {"my notes": {"command": [*SHOWY, f"{os.environ['HOME']}/x", "two words"]}}


@requirement("hub.cli.add-check")
def test_a_person_is_asked_for_what_is_left_out_of_a_remote_server(daemon: Daemon) -> None:
    with everything_at_a_port() as url, at_a_terminal("mcp", "add", "far") as person:
        answers(person, "A local program, or a remote server", "remote")
        answers(person, "URL", "not-an-address")
        answers(person, "must begin with http:// or https://", url)
        person.reads("connected (2025-11-25)")
        assert person.ends() == 0, person.text
        assert "Name" not in person.text
    assert entries() == {"far": {"url": url}}


def test_a_person_can_leave_and_nothing_is_written(daemon: Daemon) -> None:
    with at_a_terminal("mcp", "add") as person:
        person.reads("Name")
        person.types("\x04")
        assert person.ends() == 130
    assert not user_file().exists()
