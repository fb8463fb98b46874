"""Git that Rookery runs where a confined program may have replaced the repository."""

from pathlib import Path

import pytest

from rookery.system.confinement.locations import SandboxOptions
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner
from rookery.workspaces.confinement import WorkspaceSandboxes
from rookery.workspaces.lookup import LocatedWorkspace
from rookery.workspaces.model import Workspace
from rookery.workspaces.projects import Project
from rookery.workspaces.worktrees import Worktree
from tests.support.confinement import SECRET
from tests.support.requirements import requirement
from tests.support.workspaces.service import git, make_repository

pytestmark = pytest.mark.anyio


def make_workspace(folder: Path) -> LocatedWorkspace:
    """Return a workspace whose program has replaced its repository by one with a filter that reads a key."""
    app, path = make_repository(folder / "app", {"file": "a"}), folder / "fix"
    git(app, "worktree", "add", "-q", "-b", "fix", str(path))
    (folder / "key").write_text(SECRET)
    evil = make_repository(path / "evil", {"file": "a"})
    git(evil, "config", "filter.x.clean", f"cat {folder}/key > {path}/stolen; cat")
    (evil / ".git" / "info" / "attributes").write_text("* filter=x\n")
    git(evil, "config", "core.worktree", str(path))
    (path / ".git").write_text(f"gitdir: {evil}/.git\n")
    (path / "file").write_text("b")
    workspace = Workspace(Project("app-1", "app", str(app)), "fix", path, "fix", False, "ready")
    return LocatedWorkspace(workspace, Worktree(path), app / ".git" / "worktrees" / "fix")


@requirement("guard.sandbox.owner")
@pytest.mark.parametrize("confined", [False, True])
async def test_e20_a_repository_that_was_swapped_in_runs_nothing_outside(tmp_path: Path, confined: bool) -> None:
    """`trusted` leaves out the look at the config, as a program does that swaps the repository right after it."""
    located = make_workspace(tmp_path)
    sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions(), always=confined)
    sandboxes.add_listed([located])
    spawner = Spawner(new_id())
    spawner.find_confinement = sandboxes.find_git_policy
    try:
        result = await Git(spawner).run(located.workspace.path, "status", "--porcelain", trusted=True)
    finally:
        await spawner.stop_all()
    assert result.returncode == 0 and b"file" in result.stdout
    stolen = located.workspace.path / "stolen"
    assert (stolen.read_text() if stolen.exists() else "") == ("" if confined else SECRET)


async def test_git_is_confined_where_a_confined_program_has_run(tmp_path: Path) -> None:
    app, path = make_repository(tmp_path / "app"), tmp_path / "fix"
    git(app, "worktree", "add", "-q", "-b", "fix", str(path))
    workspace = Workspace(Project("app-1", "app", str(app)), "fix", path, "fix", False, "ready")
    located = LocatedWorkspace(workspace, Worktree(path), app / ".git" / "worktrees" / "fix")
    sandboxes = WorkspaceSandboxes(tmp_path / "state", SandboxOptions())
    sandboxes.add_listed([located])
    assert sandboxes.find_git_policy(path) is None
    sandboxes.make(located, "workspace", {})
    policy = sandboxes.find_git_policy(path / "folder")
    assert policy is not None and str(path) in policy.write
    assert sandboxes.find_git_policy(app) is None

    spawner = Spawner(new_id())
    spawner.find_confinement = sandboxes.find_git_policy
    runner = Git(spawner)
    try:
        (path / "new").write_text("x")
        assert await runner.output(path, "status", "--porcelain") == b"?? new"
        assert (await runner.run(path, "reset", "--hard", "--quiet", write=True)).returncode == 0
    finally:
        await spawner.stop_all()
