"""One workspace is found by its own git folder, independent of the number of others."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.create.journal import CreationPlan, write_creation
from tests.support.workspaces.service import WorkspaceParts, git, make_repository, start_workspaces

pytestmark = pytest.mark.anyio
NAMES = [f"task-{number}" for number in range(5)]


class Log:
    """The commands of git that were run, by a program that stands before it on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "commands"
        folder.mkdir()
        real = shutil.which("git")
        (folder / "git").write_text(f'#!/bin/sh\necho "$@" >> {self._file}\nexec {real} "$@"\n')
        (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def taken(self) -> list[str]:
        """Those since the last time."""
        found = self._file.read_text().splitlines() if self._file.exists() else []
        self._file.unlink(missing_ok=True)
        return found


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(tmp_path / "bin", monkeypatch)


@pytest.fixture
async def served(state: Path, log: Log) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state) as running:
        yield running


async def workspaces(served: WorkspaceParts, folder: Path) -> tuple[str, Path]:
    app = make_repository(folder / "app")
    project = await served.project(app)
    for name in NAMES:
        await served.workspaces.wait_until_prepared(await served.workspaces.create(project, name))
    await served.workspaces.list(project)
    return project, app


async def test_metadata_of_one_needs_no_git_and_no_look_at_the_others(
    served: WorkspaceParts, log: Log, tmp_path: Path
) -> None:
    project, app = await workspaces(served, tmp_path)
    one = await served.workspaces.get(project, NAMES[0])
    for name in NAMES[1:]:
        # Whoever looked there would find nothing.
        shutil.rmtree(app / ".git" / "worktrees" / name)
    log.taken()
    await served.workspaces.set_metadata(one, "note", "mine")
    assert (await served.workspaces.metadata(one))["note"] == "mine"
    assert await served.workspaces.at(one.path) == one
    own = app / ".git" / "worktrees" / NAMES[0]
    found = await served.workspaces.finder.find_by_git_folder(own)
    assert found is not None and found.workspace == one
    assert log.taken() == []


async def test_what_is_read_of_one_is_what_a_list_says(served: WorkspaceParts, log: Log, tmp_path: Path) -> None:
    project, app = await workspaces(served, tmp_path)
    listed = {one.name: one for one in await served.workspaces.list(project)}
    git(listed[NAMES[0]].path, "checkout", "-q", "-b", "another/branch")
    git(listed[NAMES[1]].path, "checkout", "-q", "--detach")
    git(app, "worktree", "lock", "--reason", "mine", str(listed[NAMES[2]].path))
    shutil.rmtree(listed[NAMES[3]].path)
    log.taken()
    read = {name: await served.workspaces.find(project, name) for name in NAMES}
    assert log.taken() == []
    found = {
        one.workspace.name: one
        for one in await served.workspaces.finder.list_located(await served.projects.get(project))
    }
    for name in NAMES:
        assert read[name].workspace == found[name].workspace
        assert read[name].worktree.locked == found[name].worktree.locked
        assert read[name].worktree.path == found[name].worktree.path
    assert read[NAMES[0]].workspace.branch == "another/branch"
    assert read[NAMES[1]].worktree.detached
    assert read[NAMES[3]].workspace.state == "missing"


async def test_one_that_is_gone_or_being_made_or_not_ours_is_asked_of_git(
    served: WorkspaceParts, state: Path, log: Log, tmp_path: Path
) -> None:
    project, app = await workspaces(served, tmp_path)
    one = await served.workspaces.get(project, NAMES[0])
    git(app, "worktree", "remove", "--force", str(one.path))
    with pytest.raises(RookeryError, match="there is no workspace"):
        await served.workspaces.get(project, NAMES[0])
    git(app, "worktree", "add", "-q", str(one.path), NAMES[0])
    # It has the name of the branch now, and nothing of ours.
    assert (await served.workspaces.get(project, NAMES[0])).path == one.path
    other = await served.workspaces.get(project, NAMES[1])
    known = await served.projects.get(project)
    write_creation(state, known, CreationPlan(NAMES[1], NAMES[1], str(other.path), "main", "", True))
    assert (await served.workspaces.get(project, NAMES[1])).state == "preparing"
    assert any("worktree list" in command for command in log.taken())
