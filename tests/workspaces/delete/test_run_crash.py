"""Killed at any step of deleting or restoring: after the next start nothing is incomplete or lost."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import requirement
from tests.support.workspaces.deletion import contents, fill, index_of, make_app, make_workspace
from tests.support.workspaces.service import branches, git

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "rookery" / "workspaces"
DELETING = ["intended", "kept", "recorded", "locked", "moved", "unregistered", "branch", "struck"]
RESTORING = ["intended", "branch", "registered", "moved", "joined", "unlocked", "dropped", "forgotten"]


def life(*args: str, fault: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.programs.deletion_driver", *args],
        cwd=ROOT,
        env={**os.environ, **({"ROOKERY_FAULT": fault} if fault else {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lived(*args: str) -> None:
    done = life(*args)
    assert done.returncode == 0, done.stderr


def test_every_step_of_deleting_and_restoring_is_tried() -> None:
    named = {
        str(ast.literal_eval(node.args[0]))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault_point"
    }
    tried = {f"delete.{name}" for name in DELETING} | {f"restore.{name}" for name in RESTORING}
    assert {name for name in named if name.startswith(("delete.", "restore."))} == tried


@requirement("ws.crash.whole")
@pytest.mark.parametrize("step", DELETING)
def test_e02_a_deletion_that_is_killed_is_finished_and_can_be_restored(state: Path, tmp_path: Path, step: str) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    head = fill(place)
    before, staged = contents(place), index_of(place)
    assert life("delete", str(app), "task", fault=f"delete.{step}").returncode == -signal.SIGKILL
    lived("start", str(app))
    assert not place.exists()
    assert branches(app) == {"main"}
    assert len(git(app, "worktree", "list").splitlines()) == 1
    assert not list(state.glob("projects/*/deleting/*"))
    (record,) = (state / "trash").glob("*.json")
    assert contents(record.with_suffix("")) == before
    assert git(app, "rev-parse", f"refs/rookery/trash/{record.stem}") == head
    # What is only staged must also outlive git's housekeeping.
    git(app, "gc", "--quiet", "--prune=now")
    lived("restore", str(app), "task")
    assert contents(place) == before
    assert index_of(place) == staged
    git(place, "fsck", "--strict")
    assert git(place, "show", "HEAD@{2}:amended") == "before"


@requirement("ws.crash.whole", "ws.delete.restore")
@pytest.mark.parametrize("step", RESTORING)
def test_e02_a_restoring_that_is_killed_is_finished(state: Path, tmp_path: Path, step: str) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    head = fill(place)
    before, staged = contents(place), index_of(place)
    lived("delete", str(app), "task")
    assert life("restore", str(app), "task", fault=f"restore.{step}").returncode == -signal.SIGKILL
    lived("start", str(app))
    assert contents(place) == before
    assert index_of(place) == staged
    assert git(app, "rev-parse", "refs/heads/task") == head
    assert not list((state / "trash").iterdir())
    assert not list(state.glob("projects/*/restoring/*"))
    assert not git(app, "for-each-ref", "refs/rookery")
    assert "locked" not in git(app, "worktree", "list", "--porcelain")


def test_e02_commits_made_after_a_crash_of_restoring_stay(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    lived("delete", str(app), "task")
    assert life("restore", str(app), "task", fault="restore.unlocked").returncode == -signal.SIGKILL
    git(place, "commit", "-q", "--allow-empty", "-m", "later")
    later = git(place, "rev-parse", "HEAD")
    lived("start", str(app))
    assert git(app, "rev-parse", "refs/heads/task") == later
    assert state.is_dir()
