"""`rookery ws rm`, `restore` and `trash`, with a real daemon and real git."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cli.user import at_a_terminal
from tests.support.cli.workspaces import app, made, names, run, told, ws
from tests.support.daemon.process import ROOKERY, SECONDS, Daemon, rookery, up
from tests.support.requirements import requirement
from tests.support.workspaces.service import branches, commit, git

pytestmark = requirement("ws.cli.verbs")


@pytest.fixture
def checkout(daemon: Daemon, tmp_path: Path) -> Path:
    return app(tmp_path / "app")


def dirty(name: str, checkout: Path) -> Path:
    """A workspace with a commit that is nowhere else, and a file that is not committed."""
    place = made(name, cwd=checkout)
    commit(place, "mine", f"{name}\n")
    (place / "draft").write_text("not yet")
    return place


def test_a_clean_workspace_goes_to_the_trash_and_comes_back(checkout: Path) -> None:
    fix = made("fix", cwd=checkout)
    done = run("rm", "fix", cwd=checkout)
    assert (done.returncode, done.stdout) == (0, "fix is in the trash\n")
    assert "moving to the trash" in done.stderr
    assert not fix.exists() and branches(checkout) == {"main"}
    assert names(checkout) == ["@main"]
    listed = ws("trash", cwd=checkout)
    assert listed == ws("trash", "list", cwd=checkout)
    assert listed.splitlines()[1].split()[0] == "fix"
    assert ws("restore", "fix", cwd=checkout) == f"{fix}\n"
    assert fix.is_dir() and branches(checkout) == {"main", "fix"}
    assert ws("trash", cwd=checkout) == "the trash is empty\n"


@requirement("ws.delete.preflight")
def test_what_is_not_clean_is_refused_with_3_and_the_list_unless_forced(checkout: Path) -> None:
    fix = dirty("fix", checkout)
    refused = run("rm", "fix", "--yes", cwd=checkout)
    assert refused.returncode == 3 and refused.stdout == ""
    lines = refused.stderr.splitlines()
    assert lines[0].startswith("rookery: fix has changes that are not committed")
    assert any("draft" in line for line in lines) and any(line.endswith("mine") for line in lines)
    assert "force" in lines[-1] and "trash" in lines[-1]
    error = json.loads(run("rm", "fix", "--json", cwd=checkout).stderr)["error"]
    assert error["code"] == "workspace-not-clean"
    assert any("draft" in one for one in error["details"]) and any("mine" in one for one in error["details"])
    assert (fix / "draft").exists()
    found = told("rm", "fix", "--force", cwd=checkout)["deleted"]
    assert [one["name"] for one in found] == ["fix"] and not fix.exists()
    assert ws("restore", found[0]["trash"], cwd=checkout) == f"{fix}\n"
    assert (fix / "draft").read_text() == "not yet" and (fix / "mine").read_text() == "fix\n"


@requirement("ws.delete.preflight")
def test_the_main_checkout_is_never_deleted(checkout: Path) -> None:
    refused = run("rm", "@main", "--force", cwd=checkout)
    assert refused.returncode == 2 and "never deleted" in refused.stderr
    assert "to remove the project from Rookery: rookery project remove" in refused.stderr
    again = run("rm", "--yes", cwd=checkout)
    assert again.returncode == 2
    assert checkout.is_dir() and "moved to the trash" not in refused.stderr + again.stderr


def test_on_a_terminal_what_is_not_clean_is_shown_and_asked_about(checkout: Path) -> None:
    fix = dirty("fix", checkout)
    with at_a_terminal("ws", "rm", "fix", cwd=checkout) as person:
        seen = person.reads("Move it to the trash anyway? [y/N]: ")
        person.types("n\n")
        assert person.ends() == 3
    assert "draft" in seen and "fix was not deleted" in person.text
    assert fix.is_dir()
    with at_a_terminal("ws", "rm", "fix", cwd=checkout) as person:
        person.reads("anyway?")
        person.types("y\n")
        assert person.ends() == 0
    assert not fix.exists() and person.text.endswith("fix is in the trash\n")


def test_the_branch_is_kept_if_that_is_wanted_and_then_its_commits_are_no_reason(checkout: Path) -> None:
    fix = made("fix", cwd=checkout)
    tip = commit(fix, "mine")
    assert run("rm", "fix", cwd=checkout).returncode == 3
    ws("rm", "fix", "--keep-branch", cwd=checkout)
    assert git(checkout, "rev-parse", "fix") == tip


def test_several_at_once_each_for_itself(checkout: Path) -> None:
    one, two, three = made("one", cwd=checkout), dirty("two", checkout), made("three", cwd=checkout)
    unknown = run("rm", "one", "nothing", cwd=checkout)
    assert unknown.returncode == 3 and one.is_dir()
    done = run("rm", "one", "two", "three", "one", cwd=checkout)
    assert done.returncode == 3
    assert done.stdout == "one is in the trash\nthree is in the trash\n"
    assert "two: two has changes" in done.stderr
    assert (one.exists(), two.exists(), three.exists()) == (False, True, False)


def test_where_one_stands_is_asked_about_and_told(checkout: Path) -> None:
    fix = made("fix", cwd=checkout)
    unasked = run("rm", cwd=fix)
    assert unasked.returncode == 3 and "--yes" in unasked.stderr and fix.is_dir()
    with at_a_terminal("ws", "rm", cwd=fix) as person:
        person.reads("Delete fix, the workspace of the current folder? [y/N]: ")
        person.types("n\n")
        assert person.ends() == 130
    assert fix.is_dir()
    with at_a_terminal("ws", "rm", cwd=fix) as person:
        person.reads("[y/N]: ")
        person.types("y\n")
        assert person.ends() == 0
    assert not fix.exists() and f"cd {checkout}\n" in person.text


@requirement("ws.daily.merged")
def test_merged_shows_the_list_and_removes_those_that_are_merged_and_clean(checkout: Path) -> None:
    nothing = run("rm", "--merged", cwd=checkout)
    assert (nothing.returncode, nothing.stdout) == (0, "") and "no workspace is merged" in nothing.stderr
    places = {name: made(name, cwd=checkout) for name in ("merged", "squashed", "open", "fresh", "draft")}
    for name in ("merged", "squashed", "open", "draft"):
        commit(places[name], name, f"{name}\n")
    git(checkout, "merge", "-q", "--no-edit", "merged", "draft")
    git(checkout, "merge", "-q", "--squash", "squashed")
    git(checkout, "commit", "-q", "-m", "squashed")
    (places["draft"] / "more").touch()
    unasked = run("rm", "--merged", cwd=checkout)
    assert unasked.returncode == 3 and "--yes" in unasked.stderr
    shown = [line.split()[0] for line in unasked.stderr.splitlines()]
    assert shown[:3] == ["NAME", "merged", "squashed"] and shown[3] == "rookery:"
    assert all(place.is_dir() for place in places.values())
    with at_a_terminal("ws", "rm", "--merged", cwd=checkout) as person:
        seen = person.reads("Delete these 2 workspaces? [y/N]: ")
        person.types("y\n")
        assert person.ends() == 0
    assert "merged" in seen and "squashed" in seen and "fresh" not in seen
    assert {name for name, place in places.items() if place.exists()} == {"open", "fresh", "draft"}
    assert branches(checkout) == {"main", "open", "fresh", "draft"}
    assert run("rm", "--merged", "--force", cwd=checkout).returncode == 2
    assert told("rm", "--merged", "--yes", cwd=checkout) == {"deleted": []}


def test_no_wait_returns_when_it_has_begun(checkout: Path) -> None:
    fix = dirty("fix", checkout)
    assert run("rm", "fix", "--no-wait", cwd=checkout).returncode == 3
    assert ws("rm", "fix", "--no-wait", "--force", cwd=checkout) == "fix is being deleted\n"
    # Asked again, it waits for the same deletion, or finds that it has ended.
    again = run("rm", "fix", "--force", cwd=checkout)
    assert again.returncode in (0, 3)
    assert not fix.exists()


@requirement("ws.delete.restore")
def test_it_is_restored_by_name_or_id_to_another_place_and_purged_for_good(checkout: Path, tmp_path: Path) -> None:
    first = dirty("fix", checkout)
    ws("rm", "fix", "--force", cwd=checkout)
    git(checkout, "branch", "other")
    made("fix", "--branch", "other", cwd=checkout)
    ws("rm", "fix", "--keep-branch", cwd=checkout)
    older, newer = told("trash", cwd=checkout)
    assert older["name"] == newer["name"] == "fix"
    ambiguous = run("restore", "nothing", cwd=checkout)
    assert ambiguous.returncode == 3 and "rookery ws trash" in ambiguous.stderr
    place = tmp_path / "elsewhere"
    assert ws("restore", older["id"], "--to", "elsewhere", cwd=tmp_path) == f"{place}\n"
    assert (place / "draft").read_text() == "not yet" and not first.exists()
    unasked = run("trash", "purge", "fix", cwd=checkout)
    assert unasked.returncode == 3 and "--yes" in unasked.stderr
    assert run("trash", "purge", cwd=checkout).returncode == 2
    assert run("trash", "purge", "fix", "--all", cwd=checkout).returncode == 2
    with at_a_terminal("ws", "trash", "purge", "fix", cwd=checkout) as person:
        person.reads("Purge fix? This cannot be undone. [y/N]: ")
        person.types("y\n")
        assert person.ends() == 0
    assert told("trash", cwd=checkout) == []
    assert ws("trash", "purge", "--all", "--yes", cwd=checkout) == "the trash is empty\n"


@requirement("ws.delete.foreign")
def test_e04_a_script_that_stands_in_a_workspace_survives_its_own_rm(checkout: Path) -> None:
    fix = dirty("fix", checkout)
    # A loop keeps the shell from becoming the command itself.
    script = f'echo pid $$; for each in 1; do "{ROOKERY}" ws rm fix --force; done; echo "went on: $?"; ls -a "$PWD" .'
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=fix, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    pid, deleted, went_on, *_ = done.stdout.splitlines()
    assert (deleted, went_on) == ("fix is in the trash", "went on: 0"), done
    # It still sees its files, which are in the trash now.
    assert not fix.exists() and "draft" in done.stdout
    named = next(line for line in done.stderr.splitlines() if "did not start" in line)
    assert pid in named and "/bin/sh -c" in named


@requirement("ws.delete.foreign")
def test_e04_json_and_rest_name_the_processes_that_stayed(daemon: Daemon, checkout: Path) -> None:
    for way in ("cli", "rest"):
        fix = made("fix", cwd=checkout)
        with subprocess.Popen(["/bin/cat"], cwd=fix, stdin=subprocess.PIPE) as editor:
            if way == "cli":
                (found,) = told("rm", "fix", "--force", cwd=checkout)["deleted"]
            else:
                (record,) = [one for one in told("list", "--no-status", cwd=checkout) if one["name"] == "fix"]
                place = f"/api/workspaces/{record['project']}/fix?wait=true&force=true"
                found = daemon.http("DELETE", place).json()
                assert found["started"] is True
            (process,) = found["processes"]
            assert (process["pid"], process["name"], process["command"]) == (editor.pid, "cat", "/bin/cat")
            assert editor.poll() is None and Path(f"/proc/{editor.pid}/cwd").samefile(_in_trash(daemon, checkout))
            editor.communicate()
        assert editor.returncode == 0


def _in_trash(daemon: Daemon, checkout: Path) -> Path:
    return daemon.state / "trash" / told("trash", cwd=checkout)[-1]["id"]


def _break(record: Path, how: str) -> None:
    content = record.read_bytes()
    record.unlink()
    if how == "garbled":
        record.write_bytes(b"\xff\x00{")
    elif how == "nested":
        record.write_bytes(b'{"id":' + b"[" * 200_000)
    elif how == "of another":
        record.write_bytes(content.replace(b'"id":"2', b'"id":"../2'))
    elif how == "a pipe":
        os.mkfifo(record)


@requirement("house.start.damaged", "ws.delete.restore")
def test_entries_without_a_readable_record_are_shown_and_kept_until_purged(daemon: Daemon, checkout: Path) -> None:
    ways = ["garbled", "nested", "of another", "a pipe", "missing"]
    for number in range(len(ways) + 1):
        dirty(f"fix{number}", checkout)
        ws("rm", f"fix{number}", "--force", cwd=checkout)
    whole, *broken = told("trash", cwd=checkout)
    for one, how in zip(broken, ways, strict=True):
        _break(daemon.state / "trash" / f"{one['id']}.json", how)
    assert rookery("down").returncode == 0
    up(env={"ROOKERY_TRASH_DAYS": "0.000001", "ROOKERY_TRASH_LIMIT": "1024"})
    done = run("trash", "list", cwd=checkout)
    assert done.returncode == 0
    for one, how in zip(broken, ways, strict=True):
        line = next(line for line in done.stdout.splitlines() if line.endswith(one["id"]))
        assert line.split()[:2] == [one["name"], "?"]
        reason = next(line for line in done.stderr.splitlines() if line.startswith(one["id"]))
        assert ("missing" if how == "missing" else "cannot be read") in reason
        assert str(daemon.state / "trash" / one["id"]) in reason
        assert (daemon.state / "trash" / one["id"] / "draft").read_text() == "not yet"
    found = {one["id"]: one for one in told("trash", cwd=checkout)}
    assert [found[one["id"]]["name"] for one in broken] == [one["name"] for one in broken]
    assert all(found[one["id"]]["error"] and found[one["id"]]["size"] > 0 for one in broken)
    refused = run("restore", broken[0]["id"], cwd=checkout)
    assert refused.returncode == 1 and "cannot be restored" in refused.stderr
    assert str(daemon.state / "trash" / broken[0]["id"]) in refused.stderr
    ws("trash", "purge", broken[0]["id"], "--yes", cwd=checkout)
    assert broken[0]["id"] not in {one["id"] for one in told("trash", cwd=checkout)}
    ws("trash", "purge", "--all", "--yes", cwd=checkout)
    assert told("trash", cwd=checkout) == [] and not list((daemon.state / "trash").iterdir())
    assert not git(checkout, "for-each-ref", "refs/rookery"), whole
