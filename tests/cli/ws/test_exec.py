"""`rookery ws exec` and `rookery ws meta`, with a real daemon and real git."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, run, told, ws
from tests.support.daemon.foreground import on_a_terminal, wait_for_line
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement

pytestmark = requirement("ws.cli.verbs")


@pytest.fixture
def checkout(daemon: Daemon, tmp_path: Path) -> Path:
    return app(tmp_path / "app")


@requirement("ws.daily.ports")
def test_a_program_runs_in_the_folder_with_the_workspaces_environment(checkout: Path) -> None:
    fix, other = made("fix", cwd=checkout), made("other", cwd=checkout)
    script = 'echo "$PWD|$(pwd -P)|$ROOKERY_WORKSPACE_NAME|$MINE|$GIT_DIR"; echo $ROOKERY_PORT $ROOKERY_PORTS'
    shown = ws("exec", "fix", "--", "sh", "-c", script, cwd=checkout, env={"MINE": "yes", "GIT_DIR": "/nowhere"})
    place, ports = shown.splitlines()
    assert place == f"{fix}|{fix}|fix|yes|"
    first, both = ports.split()
    assert both == f"{first}-{int(first) + 9}"
    assert ports not in ws("exec", "--", "sh", "-c", script, cwd=other)


def test_words_behind_the_dashes_are_the_programs_own(checkout: Path) -> None:
    fix = made("fix", cwd=checkout)
    shown = ws("exec", "--", "printf", "%s|", "--all", "--", "-h", "a b", cwd=fix)
    assert shown == "--all|--|-h|a b|"
    missing = run("exec", "fix", "ls", cwd=checkout)
    assert missing.returncode == 2
    for words in (["exec", "fix"], ["exec", "fix", "--"], ["exec", "--all", "fix", "--", "ls"]):
        assert run(*words, cwd=checkout).returncode == 2


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], -signal.SIGKILL),
        (["sh", "-c", "kill -13 $$"], -signal.SIGPIPE),
        (["no-such-program"], 127),
        (["/"], 126),
    ],
)
def test_the_exit_code_is_the_programs(checkout: Path, command: list[str], code: int) -> None:
    done = run("exec", "--", *command, cwd=checkout)
    assert done.returncode == code
    assert (done.stderr != "") == (code in (126, 127))


def test_all_runs_in_each_of_the_project_one_after_another(checkout: Path, tmp_path: Path) -> None:
    elsewhere = app(tmp_path / "elsewhere")
    fix, other = made("fix", cwd=checkout), made("other", cwd=checkout)
    done = run("exec", "--all", "--", "sh", "-c", 'pwd; test "$ROOKERY_WORKSPACE_NAME" != fix || exit 5', cwd=fix)
    assert done.returncode == 5
    assert done.stdout.splitlines() == [str(checkout), str(fix), str(other)]
    assert done.stderr.splitlines() == ["== @main", "== fix", "== other"]
    assert ws("exec", "--all", "--project", "elsewhere", "--", "pwd", cwd=fix) == f"{elsewhere}\n"
    assert run("exec", "--all", "--", "no-such-program", cwd=fix).returncode == 127


def test_ctrl_c_ends_the_program_and_what_would_come_after_it(checkout: Path) -> None:
    made("fix", cwd=checkout)
    words = ["ws", "exec", "--all", "--project", "app", "--", "sh", "-c", "echo here; exec sleep 60"]
    with on_a_terminal(*words) as (pid, ours):
        seen = wait_for_line(ours, b"here")
        os.write(ours, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
        assert (seen + os.read(ours, 65_536)).count(b"== ") == 1
    with at_a_terminal("ws", "exec", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes", cwd=checkout) as person:
        assert person.ends() == 0
    assert person.text == "yes\n"


@requirement("ws.face.same")
def test_metadata_is_set_read_and_removed(daemon: Daemon, checkout: Path) -> None:
    fix = made("fix", cwd=checkout)
    assert told("meta", cwd=fix) == {"base": "main"}
    assert ws("meta", "set", "note", "waits for\nreview", cwd=fix) == "fix: note is set\n"
    assert ws("meta", "get", "note", "-w", "fix", cwd=checkout) == "waits for\nreview\n"
    assert json.loads(ws("meta", "get", "note", "--json", cwd=fix)) == "waits for\nreview"
    assert ws("meta", "fix", cwd=checkout) == ws("meta", "list", "fix", cwd=checkout)
    assert ws("meta", cwd=fix).splitlines() == ["KEY   VALUE", "base  main", "note  waits for\\nreview"]
    project = json.loads(rookery("project", "list", "--json").stdout)[0]["id"]
    assert daemon.http("GET", f"/api/workspaces/{project}/fix/metadata").json()["note"] == "waits for\nreview"
    assert told("meta", "unset", "note", cwd=fix) == {"base": "main"}
    gone = run("meta", "get", "note", cwd=fix)
    assert gone.returncode == 3 and "fix has no note" in gone.stderr
    wrong = run("meta", "set", "1st", "x", cwd=fix)
    assert wrong.returncode == 2 and "begin with a letter" in wrong.stderr
    assert told("meta", cwd=checkout)["base"] == "main"


def test_with_sandbox_the_program_reaches_its_workspace_and_not_its_neighbour(checkout: Path) -> None:
    fix, other = made("fix", cwd=checkout), made("other", cwd=checkout)
    script = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m inside && echo $TMPDIR"
    private = ws("exec", "--sandbox", "fix", "--", "sh", "-c", script, cwd=checkout).strip()
    assert Path(private).is_dir() and "sandbox" in private
    assert run("exec", "fix", "--", "ls", str(other), cwd=checkout).returncode == 0
    refused = run("exec", "--sandbox", "fix", "--", "ls", str(other), cwd=checkout)
    assert refused.returncode != 0 and "Permission denied" in refused.stderr
    assert run("exec", "--strict", "fix", "--", "ls", str(fix), cwd=checkout).returncode == 0


def test_the_main_checkout_cannot_be_confined_and_the_reason_is_named(checkout: Path) -> None:
    refused = run("exec", "--sandbox", "@main", "--", "true", cwd=checkout)
    assert refused.returncode == 1
    assert "cannot be confined" in refused.stderr and "ws create" in refused.stderr
    assert run("exec", "--sandbox", "--all", "--", "true", cwd=checkout).returncode == 2
