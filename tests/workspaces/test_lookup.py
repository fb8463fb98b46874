"""Workspaces follow from git's worktrees; contradictions are reported, and nothing is pruned."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.worktrees import parse_worktrees
from tests.support.requirements import requirement
from tests.support.workspaces.service import WorkspaceParts, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(state: Path) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state) as running:
        yield running


async def states(served: WorkspaceParts, project: str) -> dict[str, str]:
    return {one.name: one.state for one in await served.workspaces.list(project)}


@requirement("ws.derive.git")
async def test_other_worktrees_are_named_by_branch_or_folder_and_the_main_is_listed(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", "-b", "topic/a", str(tmp_path / "one"))
    git(app, "worktree", "add", "-q", "--detach", str(tmp_path / "with\nnew line"))
    project = await served.project(app)
    found = {one.name: one for one in await served.workspaces.list(project)}
    assert set(found) == {"@main", "topic/a", "with\nnew line"}
    assert (found["@main"].main, found["@main"].path, found["@main"].branch) == (True, app, "main")
    assert found["topic/a"].path == tmp_path.resolve() / "one"
    assert found["with\nnew line"].branch is None
    assert {one.state for one in found.values()} == {"ready"}


@requirement("ws.derive.git")
async def test_e16_names_stay_unique_and_ours_stay_whatever_is_checked_out(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    project = await served.project(app)
    ours = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
    git(ours.path, "checkout", "-q", "-b", "y")
    git(app, "worktree", "add", "-q", str(tmp_path / "theirs"), "x")
    found = {one.name: one.branch for one in await served.workspaces.list(project)}
    assert found == {"@main": "main", "x": "y", "theirs": "x"}
    git(ours.path, "checkout", "-q", "--detach")
    assert (await served.workspaces.get(project, "x")).path == ours.path


@requirement("ws.derive.git")
async def test_e05_a_worktree_that_was_deleted_by_hand_is_missing_and_not_pruned(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        shutil.rmtree(made.path)
        gone = await served.workspaces.get(project, "x")
        assert gone.state == "missing"
        assert "does not exist" in (gone.error or "")
        with pytest.raises(RookeryError) as caught:
            await served.workspaces.metadata(gone)
        assert caught.value.code == "workspace-not-found"
    async with start_workspaces(state) as served:
        assert await states(served, project) == {"@main": "ready", "x": "missing"}
    assert str(made.path) in git(app, "worktree", "list")


@requirement("ws.derive.git")
async def test_e05_a_worktree_that_was_moved_is_found_again_with_its_work(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
        await served.workspaces.set_metadata(made, "note", "mine")
    (made.path / "untracked").write_text("work")
    moved = made.path.with_name("elsewhere")
    made.path.rename(moved)
    assert "prunable" in git(app, "worktree", "list", "--porcelain")
    async with start_workspaces(state) as served:
        again = await served.workspaces.get(project, "x")
        assert (again.path, again.state) == (moved, "ready")
        assert (await served.workspaces.metadata(again))["note"] == "mine"
    assert "prunable" not in git(app, "worktree", "list", "--porcelain")
    assert git(moved, "status", "--porcelain") == "?? untracked"


async def test_e05_of_two_copies_neither_is_taken_for_the_moved_one(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", str(tmp_path / "x"))
    shutil.copytree(tmp_path / "x", tmp_path / "copy")
    (tmp_path / "x").rename(tmp_path / "moved")
    async with start_workspaces(state) as served:
        project = await served.project(app)
    async with start_workspaces(state) as served:
        assert await states(served, project) == {"@main": "ready", "x": "missing"}


@requirement("ws.derive.git")
async def test_e06_a_repository_that_was_moved_gets_its_worktrees_back(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    async with start_workspaces(state) as served:
        old = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(old, "x"))
        app.rename(tmp_path / "new")
        (gone,) = await served.workspaces.list(old)
        assert (gone.name, gone.state) == ("@main", "missing")
        project = (await served.projects.add(tmp_path / "new")).project
        assert await states(served, project.id) == {"@main": "ready", "x": "missing"}
        await served.workspaces.repair(project)
        assert await states(served, project.id) == {"@main": "ready", "x": "ready"}
    assert git(made.path, "status", "--porcelain") == ""


@requirement("ws.derive.git")
async def test_e06_a_worktree_that_names_another_repository_is_refused_and_not_seized(
    state: Path, tmp_path: Path
) -> None:
    app, other = make_repository(tmp_path / "app"), make_repository(tmp_path / "other")
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
    named = f"gitdir: {other / '.git'}\n"
    (made.path / ".git").write_text(named)
    async with start_workspaces(state) as served:
        found = await served.workspaces.get(project, "x")
        assert found.state == "missing"
        assert str(other) in (found.error or "")
        with pytest.raises(RookeryError):
            await served.workspaces.set_metadata(found, "a", "b")
        # A copy of the repository has the same list, but the worktrees are not its own.
        shutil.copytree(app, tmp_path / "copy")
        copy = (await served.projects.add(tmp_path / "copy")).project
        await served.workspaces.repair(copy)
        assert await states(served, copy.id) == {"@main": "ready", "x": "missing"}
    assert (made.path / ".git").read_text() == named


async def test_e18_a_nested_worktree_is_listed(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "worktree", "add", "-q", str(app / "inner" / "tree"))
    found = {one.name: one.path for one in await served.workspaces.list(await served.project(app))}
    assert found == {"@main": app, "tree": app / "inner" / "tree"}


async def test_e16_a_project_that_became_another_repositorys_worktree_is_told(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    app, other = make_repository(tmp_path / "app"), make_repository(tmp_path / "other")
    project = await served.project(app)
    shutil.rmtree(app)
    git(other, "worktree", "add", "-q", str(app))
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.list(project)
    assert caught.value.code == "project-not-found"
    # It does not hide the others.
    await served.project(other)
    first, *rest = await served.workspaces.list()
    assert (first.project.id, first.state, first.error) == (project, "missing", caught.value.message)
    assert [one.name for one in rest] == ["@main", "app"]


def test_records_are_read_whatever_they_hold() -> None:
    listed = b"\0\0".join([
        b"worktree /a b\0HEAD " + b"a" * 40 + b"\0branch refs/heads/x/y",
        b"worktree /n\nl\0HEAD " + b"b" * 40 + b"\0detached\0locked",
        b"worktree /z\0HEAD " + b"0" * 40 + b"\0branch refs/heads/new\0locked why not\0prunable gone",
    ]) + b"\0\0"  # fmt: skip
    first, second, third = parse_worktrees(listed)
    assert (first.path, first.branch, first.main) == (Path("/a b"), "x/y", True)
    assert (second.path, second.detached, second.locked, second.main) == (Path("/n\nl"), True, "", False)
    assert (third.head, third.branch, third.locked) == (None, "new", "why not")
