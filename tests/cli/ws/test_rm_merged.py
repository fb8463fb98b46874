"""Work counts as merged once a remaining branch contains it, and that branch is named."""

from pathlib import Path

import pytest

from tests.support.cli.workspaces import made, names, run, told, ws
from tests.support.daemon.process import Daemon, rookery
from tests.support.requirements import requirement
from tests.support.workspaces.service import commit, git, make_clone

pytestmark = [requirement("ws.merged.anywhere"), pytest.mark.timeout(300)]


def begun(app: Path, *wanted: str) -> None:
    """Workspaces with two commits each."""
    for name in wanted:
        place = made(name, "--no-agent", cwd=app)
        commit(place, f"{name}-1")
        commit(place, f"{name}-2")


def merged_into(app: Path) -> dict[str, tuple[int, str | None]]:
    """The unmerged commits of each workspace, and which branch has the rest."""
    listed = [one for one in told("list", cwd=app) if not one["main"]]
    return {one["name"]: (one["status"]["unmergedCommits"], one["status"]["mergedInto"]) for one in listed}


def a_clone() -> Path:
    app = make_clone(Path.home() / "app")
    git(app, "config", "user.name", "t")
    git(app, "config", "user.email", "t@t")
    assert rookery("project", "add", str(app)).returncode == 0
    return app


def test_work_in_a_branch_that_stays_is_merged_however_it_came_there(daemon: Daemon) -> None:
    app = a_clone()
    begun(app, "local", "squashed", "picked", "develop-only", "released", "half")
    assert set(merged_into(app).values()) == {(2, None)}
    # Into the local default branch, of which the remote knows nothing.
    git(app, "merge", "-q", "--no-ff", "-m", "merge", "local")
    git(app, "merge", "-q", "--squash", "squashed")
    git(app, "commit", "-q", "-m", "squashed")
    git(app, "cherry-pick", "picked~1", "picked")
    git(app, "merge", "-q", "--no-ff", "-m", "half", "half~1")
    # Into another local branch, and into one that only a remote has.
    git(app, "branch", "develop", "develop-only")
    git(app, "push", "-q", "origin", "released:release")
    assert merged_into(app) == {
        "local": (0, "main"),
        "squashed": (0, "main"),
        "picked": (0, "main"),
        "develop-only": (0, "develop"),
        "released": (0, "origin/release"),
        "half": (1, None),
    }
    assert "merged into develop" in ws("list", cwd=app)
    assert "merged into origin/release" in ws("show", "released", cwd=app)
    refused = run("rm", "half", cwd=app)
    assert refused.returncode == 3 and "half-2" in refused.stderr and "half-1" not in refused.stderr
    assert ws("rm", "local", cwd=app).strip() == "local is in the trash; its commits are in main"
    (deleted,) = told("rm", "develop-only", cwd=app)["deleted"]
    assert deleted["mergedInto"] == "develop"
    done = run("rm", "--merged", "--yes", cwd=app)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[2:4] for line in done.stderr.splitlines() if len(line.split()) > 3}
    assert rows["released"] == ["origin/release", "merged"]
    assert rows["squashed"] == ["main", "same-content"]
    assert rows["picked"][0] == "main"
    assert names(app) == ["@main", "half"]


def test_a_branch_that_goes_with_a_workspace_does_not_count_nor_does_a_pushed_copy(daemon: Daemon) -> None:
    app = a_clone()
    begun(app, "pushed", "stacked", "fresh-start")
    made("other", "--no-agent", cwd=app)
    git(app, "push", "-q", "origin", "pushed")
    git(Path(ws("path", "other", cwd=app).strip()), "merge", "-q", "--no-ff", "-m", "take", "stacked")
    made("untouched", "--no-agent", cwd=app)
    found = merged_into(app)
    assert found["pushed"] == found["stacked"] == (2, None)
    assert found["untouched"] == (0, None)
    for name in ("pushed", "stacked"):
        assert run("rm", name, cwd=app).returncode == 3
    assert ws("rm", "untouched", cwd=app).strip() == "untouched is in the trash"
    done = run("rm", "--merged", "--yes", cwd=app)
    assert "no workspace is merged" in done.stderr
    # Once that workspace is gone, its branch is kept and stays.
    assert run("rm", "other", "--keep-branch", "--force", cwd=app).returncode == 0
    assert merged_into(app)["stacked"] == (0, "other")
