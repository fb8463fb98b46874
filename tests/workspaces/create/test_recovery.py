"""Interrupted creations: after the next start the workspace is complete or gone, and no work is lost."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.workspaces.service import Pause, branches, commit, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio

STEPS = [
    "create.begun",
    "create.branch",
    "create.worktree",
    "create.marked",
    "create.metadata",
    "create.status",
    "create.ended",
    "prepare.copied",
    "prepare.set-up",
    "prepare.ended",
]
ROOT = Path(__file__).parents[3]
DRIVER = (sys.executable, "-m", "tests.programs.workspaces_driver")


# Those of a start that sets right what was cut off.
RECOVERING = ["undo.worktree", "complete.filled"]


def life(*args: str, fault: str = "") -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **({"ROOKERY_FAULT": fault} if fault else {})}
    return subprocess.run(
        [*DRIVER, *args],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def after_restart() -> list[dict[str, Any]]:
    done = life()
    assert done.returncode == 0, done.stderr
    return [one for one in json.loads(done.stdout) if not one["main"]]


def whole_or_gone(app: Path, name: str) -> bool:
    """Whether it is there; either way nothing is left half-done."""
    there = after_restart()
    if not there:
        assert len(git(app, "worktree", "list").splitlines()) == 1
        return False
    (one,) = there
    assert (one["name"], one["state"], one["branch"]) == (name, "ready", name)
    path = Path(one["path"])
    assert git(path, "status", "--porcelain", "--ignored").splitlines() == ["!! .env", "!! set-up"]
    assert (path / ".env").read_text() == "secret"
    assert "locked" not in git(app, "worktree", "list", "--porcelain")
    return True


async def prepare(state: Path, app: Path) -> str:
    ignored = {".gitignore": ".env\nset-up\n", ".keepfiles": ".env\n"}
    make_repository(app, {**ignored, ".rookery/config.toml": '[workspace]\nsetup = "touch set-up"\n'})
    (app / ".env").write_text("secret")
    async with start_workspaces(state) as served:
        return await served.project(app)


@requirement("ws.crash.whole")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("branch", ["new", "existing"])
async def test_e01_killed_at_every_step_of_a_creation(state: Path, tmp_path: Path, step: str, branch: str) -> None:
    app = tmp_path / "app"
    project = await prepare(state, app)
    mine = ""
    if branch == "existing":
        git(app, "checkout", "-q", "-b", "x")
        mine = commit(app, "mine")
        git(app, "checkout", "-q", "main")
    words = [project, "x", *(["x"] if branch == "existing" else [])]
    done = life(*words, fault=step)
    assert done.returncode == -signal.SIGKILL, done.stderr
    there = whole_or_gone(app, "x")
    if branch == "existing":
        assert git(app, "rev-parse", "x") == mine
    elif not there:
        assert branches(app) == {"main"}
    assert there or step in ("create.begun", "create.branch")
    # Nothing is in the way of another try, and a further start changes nothing.
    if not there:
        assert life(*words).returncode == 0
        assert whole_or_gone(app, "x")
    before = git(app, "for-each-ref") + git(app, "worktree", "list", "--porcelain")
    assert len(after_restart()) == 1
    assert git(app, "for-each-ref") + git(app, "worktree", "list", "--porcelain") == before


def killed_in_the_middle(pause: Pause, project: str, *, with_git: bool = True) -> None:
    """Start a creation and kill the service, and its git as well, while the files are written."""
    with subprocess.Popen([*DRIVER, project, "x"], cwd=ROOT, stdout=subprocess.DEVNULL) as driver:
        pause.wait()
        # As if the machine had stopped: the service must not see its git die.
        service = psutil.Process(driver.pid)
        service.suspend()
        for process in (*(service.children(recursive=True) if with_git else ()), service):
            process.kill()
    pause.no_more()


async def half_made(state: Path, tmp_path: Path, *, with_git: bool = True) -> tuple[Path, str]:
    """A repository, and the id of its project, in which the creation of the workspace `x` was killed so."""
    pause = Pause(tmp_path / "pause")
    app = pause.repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
    killed_in_the_middle(pause, project, with_git=with_git)
    return app, project


@requirement("ws.crash.whole")
async def test_e01_killed_while_git_writes_the_files_it_is_completed(state: Path, tmp_path: Path) -> None:
    app, _ = await half_made(state, tmp_path)
    assert "locked initializing" in git(app, "worktree", "list", "--porcelain")
    (one,) = after_restart()
    assert (one["name"], one["state"]) == ("x", "ready")
    assert sorted(entry.name for entry in Path(one["path"]).iterdir()) == [
        ".git", ".gitattributes", "README", "a", "m.slow", "z"
    ]  # fmt: skip
    assert git(Path(one["path"]), "status", "--porcelain") == ""
    assert "locked" not in git(app, "worktree", "list", "--porcelain")


@requirement("ws.crash.whole")
@pytest.mark.parametrize("step", RECOVERING)
async def test_e01_killed_again_while_it_is_set_right(state: Path, tmp_path: Path, step: str) -> None:
    app, _ = await half_made(state, tmp_path)
    (own,) = (app / ".git" / "worktrees").iterdir()
    if step.startswith("undo"):
        (own / "HEAD").write_text("0" * 40 + "\n")
    assert life(fault=step).returncode == -signal.SIGKILL
    there = after_restart()
    assert [one["state"] for one in there] == ([] if step.startswith("undo") else ["ready"])
    assert branches(app) == ({"main"} if step.startswith("undo") else {"main", "x"})
    assert {git(Path(one["path"]), "status", "--porcelain") for one in there} <= {""}
    assert "locked" not in git(app, "worktree", "list", "--porcelain")


def test_e01_every_step_is_tried() -> None:
    folder = ROOT / "src" / "rookery" / "workspaces"
    source = "".join(path.read_text() for path in folder.rglob("*.py"))
    found = re.findall(r'fault_point\("([a-z]+\.[a-z-]+)"\)', source)
    mine = {name for name in found if name.split(".")[0] in ("create", "prepare", "undo", "complete")}
    assert mine == {*STEPS, *RECOVERING}


@requirement("ws.crash.whole")
async def test_e01_if_only_the_service_is_killed_the_next_start_ends_its_git_first(state: Path, tmp_path: Path) -> None:
    app, _ = await half_made(state, tmp_path, with_git=False)
    there = after_restart()
    assert [one["state"] for one in there] in ([], ["ready"])
    assert branches(app) == {"main", *(one["branch"] for one in there)}
    assert len(git(app, "worktree", "list").splitlines()) == 1 + len(there)


@requirement("ws.crash.whole")
async def test_e01_a_branch_that_got_commits_meanwhile_is_never_deleted(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
    assert life(project, "x", fault="create.branch").returncode == -signal.SIGKILL
    git(app, "checkout", "-q", "x")
    mine = commit(app, "mine")
    git(app, "checkout", "-q", "main")
    assert after_restart() == []
    assert git(app, "rev-parse", "x") == mine


@requirement("ws.crash.whole")
async def test_e01_work_in_a_half_made_worktree_is_kept_whether_it_is_completed_or_not(
    state: Path, tmp_path: Path
) -> None:
    app, project = await half_made(state, tmp_path)
    (own,) = (app / ".git" / "worktrees").iterdir()
    (place,) = (state / "projects" / project / "workspaces").iterdir()
    (place / "mine").write_text("mine")
    (place / "a").write_text("changed\n")
    assert [one["state"] for one in after_restart()] == ["ready"]
    assert git(place, "status", "--porcelain") == "?? mine"
    assert (own / "rookery" / "half-made" / "a").read_text() == "changed\n"


@requirement("ws.crash.whole")
async def test_e01_what_cannot_be_completed_is_set_aside(state: Path, tmp_path: Path) -> None:
    app, project = await half_made(state, tmp_path)
    (own,) = (app / ".git" / "worktrees").iterdir()
    (own / "HEAD").write_text("0" * 40 + "\n")
    (place,) = (state / "projects" / project / "workspaces").iterdir()
    (place / "mine").write_text("mine")
    assert after_restart() == []
    assert branches(app) == {"main"}
    (aside,) = place.parent.glob("x.half-made-*")
    assert (aside / "mine").read_text() == "mine"


@requirement("ws.crash.whole")
@pytest.mark.parametrize("way", ["a folder", "a worktree"])
async def test_e01_what_others_put_in_the_place_of_one_that_was_never_made_is_left_alone(
    state: Path, tmp_path: Path, way: str
) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
    assert life(project, "x", fault="create.begun").returncode == -signal.SIGKILL
    place = state / "projects" / project / "workspaces" / "x"
    if way == "a worktree":
        git(app, "worktree", "add", "-q", "-b", "theirs", str(place))
        git(place, "mv", "README", "STAGED")
    else:
        place.mkdir(parents=True)
    (place / "mine").write_text("mine")
    assert [one["name"] for one in after_restart()] == (["theirs"] if way == "a worktree" else [])
    assert (place / "mine").read_text() == "mine"
    assert way == "a folder" or "STAGED" in git(place, "status", "--porcelain")


async def test_e01_what_another_git_is_making_is_left_alone(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", str(tmp_path / "theirs"))
    (own,) = (app / ".git" / "worktrees").iterdir()
    (own / "locked").write_text("initializing")
    async with start_workspaces(state) as served:
        project = await served.project(app)
    async with start_workspaces(state) as served:
        theirs = await served.workspaces.get(project, "theirs")
        assert theirs.state == "failed"
        assert "git worktree remove" in (theirs.error or "")
        with pytest.raises(RookeryError):
            await served.workspaces.prepare(theirs)
    assert (own / "locked").exists()
    assert (tmp_path / "theirs" / "README").exists()
