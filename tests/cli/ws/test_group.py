"""`rookery ws list`, `show`, `path`, `open`, `close` and `diff`, with a real daemon and real git."""

import json
import os
import subprocess
from pathlib import Path

import click
import pytest

from rookery.cli.ws.group import COMMANDS, ws as group
from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, names, run, told, ws
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git

pytestmark = requirement("ws.cli.verbs")


def test_the_summaries_in_the_lazy_table_are_those_of_the_commands() -> None:
    for name, (_, text) in COMMANDS.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None and command.help is not None
        assert command.help.partition("\n")[0] == text


def row(table: str, name: str) -> str:
    return next(line for line in table.splitlines() if line.split()[:1] == [name])


def test_the_list_tells_branch_state_and_changes(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    assert ws("list", cwd=checkout).splitlines()[0].split() == [
        *("NAME", "BRANCH", "STATE", "CHANGES", "AGENT", "NEEDS", "YOU")
    ]
    fix, other = made("fix", cwd=checkout), made("other", cwd=checkout)
    commit(fix, "new")
    (fix / "README").write_text("changed")
    commit(checkout, "on-main")
    git(other, "switch", "-q", "--detach")
    shown = ws("list", cwd=tmp_path)
    assert row(shown, "@main").split() == ["@main", "main", "closed"]
    assert row(shown, "fix").split() == ["fix", "fix", "ready", "dirty,", "1", "unmerged,", "+1", "-1", "new"]
    assert row(shown, "other").split() == ["other", "(detached)", "ready", "-1", "new"]
    fast = ws("list", "--no-status", cwd=tmp_path)
    assert row(fast, "fix").split() == ["fix", "fix", "ready", "new"]
    listed = told("list", cwd=tmp_path)
    assert [one["name"] for one in listed] == ["@main", "fix", "other"]
    assert listed[1]["status"]["isDirty"] and listed[1]["attention"] == []


def test_several_projects_stand_apart_unless_one_is_named(daemon: Daemon, tmp_path: Path) -> None:
    one, two = app(tmp_path / "one"), app(tmp_path / "two")
    made("fix", cwd=one)
    made("fix", cwd=two)
    ids = [project["id"] for project in json.loads(rookery("project", "list", "--json").stdout)]
    shown = ws("list", cwd=tmp_path)
    assert [line for line in shown.splitlines() if line.startswith(tuple(ids))] == [
        f"{ids[0]}  {one}",
        f"{ids[1]}  {two}",
    ]
    assert len(ws("list", "--project", "two", cwd=tmp_path).splitlines()) == 3
    several = run("path", "fix", cwd=tmp_path)
    assert several.returncode == 2 and f"{ids[0]}/fix, {ids[1]}/fix" in several.stderr
    assert ws("path", "two/fix", cwd=tmp_path) == ws("path", "fix", cwd=two)
    assert ws("path", "fix", "--project", "one", cwd=two) == ws("path", "fix", cwd=one)
    assert ws("path", f"{ids[1]}/@main", cwd=one) == f"{two}\n"


@requirement("ws.daily.attention")
def test_the_list_shows_who_needs_the_user_and_attention_only_those(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    assert ws("list", "--attention", cwd=checkout) == "nothing needs you\n"
    made("well", cwd=checkout)
    clashes, lost = made("clashes", cwd=checkout), made("lost", cwd=checkout)
    commit(clashes, "README", "mine\n")
    commit(checkout, "README", "theirs\n")
    lost.rename(lost.with_name("elsewhere"))
    shown = ws("list", cwd=checkout)
    assert "conflicts" in row(shown, "clashes") and "README" in row(shown, "clashes")
    needy = ws("list", "--attention", cwd=checkout)
    assert [line.split()[0] for line in needy.splitlines()] == ["NAME", "clashes", "lost"]
    assert {one["name"] for one in told("list", "--attention", cwd=checkout)} == {"clashes", "lost"}
    gone = run("path", "lost", cwd=checkout)
    assert gone.returncode == 3 and "is missing" in gone.stderr


def test_a_terminal_gets_lines_that_fit_it(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    place = made("lost", cwd=checkout)
    place.rename(place.with_name("elsewhere"))
    assert len(row(ws("list", cwd=checkout), "lost")) > 60
    with at_a_terminal("ws", "list", cwd=checkout, env={"COLUMNS": "60"}) as person:
        assert person.ends() == 0
    assert len(row(person.text, "lost")) == 60


def test_the_current_folder_says_which_workspace_is_meant(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    fix = made("feature/x", cwd=checkout)
    (fix / "deep").mkdir()
    assert ws("path", cwd=fix / "deep") == f"{fix}\n"
    assert ws("path", cwd=checkout / ".git") == f"{checkout}\n"
    assert told("path", "feature/x", cwd=fix) == {"path": str(fix)}
    shown = ws("show", cwd=fix)
    assert shown.splitlines()[0] == "feature/x"
    assert f"path       {fix}" in shown and "branch     feature/x" in shown
    assert "changes    none" in shown and "base: main" in shown
    assert told("show", cwd=fix)["metadata"]["base"] == "main"
    outside = run("show", cwd=tmp_path)
    assert outside.returncode == 3
    link = tmp_path / "link"
    link.symlink_to(fix)
    assert ws("path", cwd=link) == f"{fix}\n"


def test_open_and_close(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    fix = made("fix", cwd=checkout)
    assert told("show", cwd=fix)["open"] is True
    assert ws("close", cwd=fix) == "fix is closed\n"
    assert row(ws("list", cwd=fix), "fix").split()[2] == "closed"
    assert ws("open", "fix", cwd=checkout) == "fix is open\n"
    assert told("show", cwd=fix)["open"] is True
    assert told("close", "fix", cwd=checkout)["open"] is False


def test_diff_shows_what_was_changed_since_the_base(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    fix = made("fix", cwd=checkout)
    nothing = run("diff", cwd=fix)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "nothing has changed since main" in nothing.stderr
    commit(fix, "new", "one\ntwo\n")
    (fix / "README").write_text("other\n")
    commit(checkout, "on-main")
    patch = ws("diff", "fix", cwd=checkout)
    assert "+two\n" in patch and "-one\n+other\n" in patch and "on-main" not in patch
    # It is a patch that git takes.
    subprocess.run(["git", "apply", "--check"], input=patch, text=True, cwd=checkout, check=True, timeout=30)
    stat = ws("diff", "--stat", cwd=fix)
    assert row(stat, "added").split() == ["added", "+2", "-0", "new"]
    assert row(stat, "modified").split() == ["modified", "+1", "-1", "README"]
    assert stat.splitlines()[-1] == "2 files, +3 -1"
    assert {one["path"] for one in told("diff", cwd=fix)["files"]} == {"new", "README"}


def test_a_diff_on_a_terminal_has_colour_and_cannot_play_tricks(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    fix = made("fix", cwd=checkout)
    (fix / "README").write_text("\x1b]0;owned\x07\n")
    with at_a_terminal("ws", "diff", cwd=fix, env={"NO_COLOR": ""}) as person:
        assert person.ends() == 0
    assert "\x1b[32m+\\e]0;owned\\u{7}\x1b[0m" in person.text
    assert "\x1b]0" not in person.text


def test_status_for_people_has_the_workspaces(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    made("fix", cwd=checkout)
    shown = rookery("status").stdout
    assert row(shown, "fix").split()[:3] == ["fix", "fix", "ready"]
    listed = json.loads(rookery("status", "--json").stdout)["workspaces"]
    assert {one["name"]: one["main"] for one in listed} == {"@main": True, "fix": False}


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_a_shell_completes_names_if_a_daemon_runs(daemon: Daemon, tmp_path: Path, shell: str) -> None:
    checkout = app(tmp_path / "app")
    made("fix-login", cwd=checkout)
    made("feature/x", cwd=checkout)

    def completed(*words: str) -> set[str]:
        asked = {"_ROOKERY_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(["rookery", *words])}
        asked["COMP_CWORD"] = words[-1] if shell == "fish" else str(len(words))
        lines = rookery(env=asked, cwd=checkout).stdout.splitlines()
        return {line.split(",")[1].split("\t")[0] for line in lines}

    assert completed("ws", "path", "f") == {"fix-login", "feature/x"}
    assert completed("ws", "rm", "fix-login", "fe") == {"feature/x"}
    assert "fix-login" in completed("ws", "meta", "get", "base", "-w", "fi")


def test_completion_starts_no_daemon(state: Path) -> None:
    asked = {"_ROOKERY_COMPLETE": "bash_complete", "COMP_WORDS": "rookery ws path f", "COMP_CWORD": "3"}
    done = rookery(env=asked)
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert not (state / "daemon.json").exists()


@pytest.mark.parametrize("words", [["list"], ["show", "x"], ["rm", "x"], ["create", "x"], ["exec", "x", "--", "true"]])
def test_without_a_daemon_and_a_start_the_code_is_5(state: Path, words: list[str]) -> None:
    at = words.index("--") if "--" in words else len(words)
    done = rookery("ws", *words[:at], "--no-start", *words[at:])
    assert done.returncode == 5 and "rookery up -d" in done.stderr
    assert not (state / "daemon.json").exists()


@requirement("ws.project.add")
def test_a_project_that_is_removed_is_forgotten_and_nothing_of_it_is_touched(daemon: Daemon, tmp_path: Path) -> None:
    checkout = app(tmp_path / "app")
    fix = made("fix", cwd=checkout)
    (fix / "work").write_text("mine")
    before = git(checkout, "worktree", "list", "--porcelain"), git(checkout, "for-each-ref")
    done = rookery("project", "remove", "app")
    assert done.returncode == 0 and done.stdout.startswith("unregistered app-")
    assert "are unchanged" in done.stderr and str(checkout) in done.stderr
    assert json.loads(rookery("project", "list", "--json").stdout) == []
    assert (git(checkout, "worktree", "list", "--porcelain"), git(checkout, "for-each-ref")) == before
    assert (fix / "work").read_text() == "mine"
    assert rookery("project", "remove", "app").returncode == 3
    # Added again, all is there; what was there before is listed as closed.
    assert rookery("project", "add", str(fix)).returncode == 0
    assert names(checkout) == ["@main", "fix"]
    assert os.fspath(fix) == told("path", "fix", cwd=checkout)["path"]
