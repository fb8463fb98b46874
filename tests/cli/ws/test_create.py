"""`rookery ws create` and `prepare`, with a real daemon and real git."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.system.ids import project_id
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, names, run, told, ws
from tests.support.daemon.foreground import on_a_terminal, wait_for_line
from tests.support.daemon.process import Daemon
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git, make_repository

pytestmark = requirement("ws.cli.verbs")


def setup(command: str) -> dict[str, str]:
    return {".rookery/config.toml": f"[workspace]\nsetup = {json.dumps(command)}\n"}


def approve(folder: Path) -> None:
    with at_a_terminal("guard", "approve", cwd=folder) as person:
        person.reads("[y/N] ")
        person.types("y\n")
        assert person.ends() == 0


def test_the_path_is_on_stdout_and_what_happens_on_stderr(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", {".gitignore": "secret\n", ".keepfiles": "secret\n"})
    (checkout / "secret").write_text("key")
    done = run("create", "fix-login", cwd=checkout)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.removesuffix("\n"))
    assert path.is_dir() and git(path, "branch", "--show-current") == "fix-login"
    assert (path / "secret").read_text() == "key"
    assert done.stderr.splitlines()[0] == "creating fix-login ..."
    assert "copying files" in done.stderr
    assert "\x1b" not in done.stderr and "\r" not in done.stderr


@requirement("ws.create.base")
def test_base_and_branch_are_taken(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    first = git(checkout, "rev-parse", "HEAD")
    git(checkout, "branch", "waiting")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    old = made("very/old", "--base", first, cwd=checkout)
    assert git(old, "rev-parse", "HEAD") == first
    assert old == daemon.state.resolve() / "projects" / project_id(checkout) / "workspaces" / "very%old"
    review = made("review", "--branch", "waiting", cwd=checkout)
    assert git(review, "branch", "--show-current") == "waiting"
    missing = run("create", "other", "--branch", "nowhere", cwd=checkout)
    assert missing.returncode == 2 and "there is no branch nowhere" in missing.stderr
    assert names(checkout) == ["@main", "review", "very/old"]


@requirement("ws.create.name")
@pytest.mark.parametrize("name", ["-x/..", "a b", "x.lock", "fix"])
def test_a_name_that_is_taken_or_cannot_be_one_is_refused_and_said(daemon: Daemon, tmp_path: Path, name: str) -> None:
    checkout = app(tmp_path / "app")
    made("fix", cwd=checkout)
    before = git(checkout, "for-each-ref")
    done = run("create", "--", name, cwd=checkout)
    assert done.returncode in (1, 2)
    assert done.stdout == "" and name in done.stderr
    assert git(checkout, "for-each-ref") == before
    assert names(checkout) == ["@main", "fix"]


@requirement("ws.project.add")
def test_in_a_repository_that_is_no_project_it_becomes_one_and_that_is_said(daemon: Daemon, tmp_path: Path) -> None:
    checkout = make_repository(tmp_path / "new")
    inside = checkout / "deep"
    inside.mkdir()
    done = run("create", "first", cwd=inside)
    assert done.returncode == 0
    assert "registered the project new-" in done.stderr
    # From inside a workspace it is the same project.
    again = run("create", "second", cwd=Path(done.stdout.strip()))
    assert again.returncode == 0 and "registered" not in again.stderr
    assert names(checkout) == ["@main", "first", "second"]


def test_outside_of_any_repository_one_says_which_project(daemon: Daemon, tmp_path: Path) -> None:
    app(tmp_path / "app")
    nowhere = run("create", "x", cwd=tmp_path)
    assert nowhere.returncode == 3 and "--project" in nowhere.stderr
    unknown = run("create", "x", "--project", "none", cwd=tmp_path)
    assert unknown.returncode == 3 and "there is no project none" in unknown.stderr
    assert made("x", "--project", "app", cwd=tmp_path).is_dir()


def test_json_is_the_workspace_and_nothing_else_is_said(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    done = run("create", "fix", "--json", cwd=checkout)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["name"], found["branch"], found["state"], found["main"]) == ("fix", "fix", "ready", False)
    assert found == told("show", "fix", cwd=checkout)


@requirement("ws.create.barrier")
def test_an_unapproved_setup_command_waits_for_the_user_and_is_run_by_prepare(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", setup("echo done > $ROOKERY_WORKSPACE_PATH/made"))
    waits = run("create", "fix", cwd=checkout)
    assert waits.returncode == 3, waits.stderr
    assert waits.stdout == ""
    assert "rookery guard approve setup" in waits.stderr and "setting up" not in waits.stderr
    place = Path(told("show", "fix", cwd=checkout)["path"])
    assert not (place / "made").exists()
    approve(checkout)
    # It is prepared again by itself; this waits for it, or does it once more.
    assert ws("prepare", "fix", cwd=checkout) == f"{place}\n"
    assert (place / "made").read_text() == "done\n"


@requirement("ws.create.barrier")
def test_a_setup_that_fails_exits_with_1_and_names_its_log_and_how_to_go_on(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", setup("echo why >&2; ls mend*"))
    run("create", "first", cwd=checkout)
    approve(checkout)
    failed = run("create", "fix", cwd=checkout)
    assert failed.returncode == 1 and failed.stdout == ""
    assert "setting up: echo why" in failed.stderr
    log = Path(failed.stderr.partition("see its log: ")[2].split()[0])
    assert log.read_text().startswith("why\n")
    assert "then: rookery ws prepare fix" in failed.stderr
    as_json = run("prepare", "fix", "--json", cwd=checkout)
    assert json.loads(as_json.stderr)["error"]["code"] == "setup-failed"
    place = Path(told("show", "fix", cwd=checkout)["path"])
    (place / "mended").touch()
    assert ws("prepare", cwd=place) == f"{place}\n"
    assert told("show", cwd=place)["state"] == "ready"


@requirement("ws.create.barrier")
def test_at_a_terminal_it_is_shown_and_asked_about_at_once(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", setup("echo done > $ROOKERY_WORKSPACE_PATH/made"))
    with at_a_terminal("ws", "create", "fix", cwd=checkout) as person:
        seen = person.reads("Approve setup? [y/N] ")
        person.types("y\n")
        assert person.ends() == 0
    assert "echo done > $ROOKERY_WORKSPACE_PATH/made" in seen
    place = Path(told("path", "fix", cwd=checkout)["path"])
    assert (place / "made").read_text() == "done\n"
    assert person.text.endswith(f"{place}\n")


def test_on_a_terminal_only_the_setup_of_the_new_workspace_is_asked_about(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app", setup("true"))
    assert run("create", "old", cwd=checkout).returncode == 3
    commit(checkout, ".rookery/config.toml", setup("echo two")[".rookery/config.toml"])
    with at_a_terminal("ws", "create", "fix", cwd=checkout) as person:
        assert "(setup, 1 of 1)" in person.reads("Approve setup? [y/N] ")
        person.types("y\n")
        assert person.ends() == 0
    assert told("show", "fix", cwd=checkout)["state"] == "ready"
    assert told("show", "old", cwd=checkout)["state"] == "failed"


def waiting(folder: Path) -> tuple[Path, Path]:
    """A project whose setup command waits to be told to go on, through a pipe."""
    gate = folder / "gate"
    os.mkfifo(gate)
    checkout = app(folder / "app", setup(f"cat '{gate}' > $ROOKERY_WORKSPACE_PATH/let"))
    run("create", "first", cwd=checkout)
    approve(checkout)
    gate.write_text("go")
    wait_for(lambda: told("show", "first", cwd=checkout)["state"] == "ready")
    return checkout, gate


def test_no_wait_returns_while_it_is_being_prepared(daemon: Daemon, tmp_path: Path) -> None:
    checkout, gate = waiting(tmp_path)
    place = made("fix", "--no-wait", cwd=checkout)
    assert told("show", "fix", cwd=checkout)["state"] == "preparing"
    # Who prepares what is being prepared waits for that.
    with at_a_terminal("ws", "prepare", "fix", cwd=checkout) as person:
        person.reads("preparing fix ...")
        gate.write_text("go")
        assert person.ends() == 0
    assert person.text.endswith(f"{place}\n")
    assert (place / "let").read_text() == "go"


def test_on_a_terminal_one_line_changes_and_goes(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    with at_a_terminal("ws", "create", "fix", cwd=checkout) as person:
        assert person.ends() == 0
    assert "\r\x1b[Kcreating fix ..." in person.text
    path = told("show", "fix", cwd=checkout)["path"]
    lines = [line.rpartition("\r\x1b[K")[2] for line in person.text.replace("\r\n", "\n").split("\n")]
    assert lines[0].startswith("fix begins at main (")
    assert lines[1:] == [path, ""]


def test_a_prompt_that_no_agent_can_take_is_refused_before_anything_is_made(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    both = run("create", "fix", "--prompt", "hello", "--no-agent", cwd=checkout)
    assert both.returncode == 2 and "prompt" in both.stderr
    assert names(checkout) == ["@main"]
    assert made("fix", "--no-agent", cwd=checkout).is_dir()


def test_ctrl_c_leaves_a_workspace_that_goes_on_being_prepared(daemon: Daemon, tmp_path: Path) -> None:
    checkout, gate = waiting(tmp_path)
    with on_a_terminal("ws", "create", "fix", "--project", "app") as (pid, ours):
        wait_for_line(ours, b"setting up: cat")
        os.write(ours, b"\x03")
        wait_for_line(ours, b"the operation continues in the background; see: rookery ws show fix")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert told("show", "fix", cwd=checkout)["state"] == "preparing"
    gate.write_text("go")
    place = Path(told("show", "fix", cwd=checkout)["path"])
    wait_for(lambda: (place / "let").read_text() == "go")


def wait_for(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends
