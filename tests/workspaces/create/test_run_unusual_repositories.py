"""Repositories in unusual states, and malicious ones."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from tests.support.workspaces.service import WorkspaceParts, commit, git, make_repository, snapshot, start_workspaces

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(state: Path) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state, approve=False) as running:
        yield running


async def make(served: WorkspaceParts, app: Path, name: str = "x") -> Path:
    made = await served.workspaces.wait_until_prepared(await served.workspaces.create(await served.project(app), name))
    assert made.state == "ready"
    return made.path


async def test_e11_a_bare_repository_is_refused_with_a_remedy(served: WorkspaceParts, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(RookeryError, match="bare") as caught:
        await served.project(tmp_path / "bare")
    assert caught.value.remedy


async def test_e11_a_repository_without_a_commit_is_listed_and_refuses_workspaces(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "app")
    project = await served.project(tmp_path / "app")
    (main,) = await served.workspaces.list(project)
    assert (main.branch, main.state) == ("main", "ready")
    assert await served.workspaces.metadata(main) == {"base": "main"}
    with pytest.raises(RookeryError, match="no commit") as caught:
        await served.workspaces.create(project, "x")
    assert caught.value.remedy
    assert git(tmp_path / "app", "for-each-ref") == ""


async def test_e11_a_detached_head_and_a_rebase_half_way_do_not_matter(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "checkout", "-q", "-b", "topic")
    commit(app, "README", "topic\n")
    git(app, "checkout", "-q", "main")
    head = commit(app, "README", "main\n")
    git(app, "rebase", "main", "topic", check=False)
    assert "rebase" in git(app, "status")
    path = await make(served, app)
    assert git(path, "rev-parse", "HEAD") == head
    assert "rebase" not in git(path, "status")
    (main, made) = await served.workspaces.list()
    assert (main.branch, made.branch) == (None, "x")
    assert (await served.workspaces.metadata(made))["base"] == head


async def test_e11_a_shallow_clone_a_sparse_checkout_and_submodules(served: WorkspaceParts, tmp_path: Path) -> None:
    lib = make_repository(tmp_path / "lib")
    origin = make_repository(tmp_path / "origin", {"in/a": "1", "out/b": "2"})
    git(origin, "submodule", "add", "-q", str(lib), "lib")
    git(origin, "commit", "-q", "-m", "lib")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "app")
    app = tmp_path / "app"
    path = await make(served, app, "shallow")
    assert git(path, "status", "--porcelain") == ""
    assert list((path / "lib").iterdir()) == []
    git(app, "sparse-checkout", "set", "in")
    path = await make(served, app, "sparse")
    assert ((path / "in").exists(), (path / "out").exists()) == (True, False)
    assert git(path, "status", "--porcelain") == ""
    # A submodule is a repository like any other.
    git(app, "submodule", "update", "-q", "--init")
    assert (await make(served, app / "lib", "inner") / "README").read_text() == "one\n"


@pytest.mark.parametrize("spoilt", [b"", b"gitdir: a\0b\n", b"gitdir: " + b"x" * 70_000, b"\xff" * 10])
async def test_e11_a_worktree_that_is_spoilt_hides_no_other(
    served: WorkspaceParts, tmp_path: Path, spoilt: bytes
) -> None:
    app = make_repository(tmp_path / "app")
    path = await make(served, app, "good")
    bad = await make(served, app, "bad")
    (bad / ".git").write_bytes(spoilt)
    found = {one.name: one for one in await served.workspaces.list()}
    assert (found["good"].state, found["good"].path) == ("ready", path)
    assert found["bad"].state == "missing"
    assert found["bad"].error


async def test_e11_a_checkout_with_its_git_folder_elsewhere(served: WorkspaceParts, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--separate-git-dir", str(tmp_path / "apart.git"), "app")
    commit(tmp_path / "app", "README")
    path = await make(served, tmp_path / "app")
    assert (path / "README").exists()
    main, _ = await served.workspaces.list()
    assert (main.name, main.path, main.state) == ("@main", tmp_path.resolve() / "app", "ready")


def hooks(app: Path, body: str) -> None:
    folder = app / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("body", ["exit 1", "sleep 1000"])
async def test_e11_hooks_that_fail_or_hang_do_not_hurt(served: WorkspaceParts, tmp_path: Path, body: str) -> None:
    app = make_repository(tmp_path / "app")
    hooks(app, body)
    path = await make(served, app)
    assert (path / "README").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_e19_a_repository_of_another_user_is_refused_with_a_remedy(
    served: WorkspaceParts, tmp_path: Path
) -> None:
    app = make_repository(tmp_path / "app")
    project = await served.project(app)
    for path in (app, *app.rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(RookeryError, match="another user") as caught:
        await served.workspaces.list(project)
    assert "safe.directory" in caught.value.remedy


def hostile(app: Path, evil: Path) -> None:
    """Every way known to us in which a repository's own config and attributes name programs."""
    (app / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n*.x filter=odd=name.y\n")
    (app / "a.x").write_text("x\n")
    git(app, "add", ".")
    git(app, "commit", "-q", "-m", "attributes")
    for key in (
        "core.fsmonitor", "core.sshCommand", "core.askPass", "core.pager", "core.editor", "core.gitProxy",
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "filter.odd=name.y.clean",
        "filter.odd=name.y.smudge", "diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver",
        "gpg.program", "gpg.ssh.program", "credential.helper", "sequence.editor", "core.alternateRefsCommand",
        "remote.origin.uploadpack",
    ):  # fmt: skip
        git(app, "config", key, str(evil))
    git(app, "config", "filter.evil.required", "true")
    git(app, "config", "log.showSignature", "true")
    git(app, "config", "core.hooksPath", str(evil.parent))
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (evil.parent / hook).write_bytes(evil.read_bytes())
        (evil.parent / hook).chmod(0o755)


@pytest.mark.parametrize("where", ["config", "included", "worktree"])
async def test_e20_nothing_of_a_hostile_repository_runs(served: WorkspaceParts, tmp_path: Path, where: str) -> None:
    app = make_repository(tmp_path / "app")
    evil = tmp_path / "evil" / "evil.sh"
    evil.parent.mkdir()
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    hostile(app, evil)
    config = app / ".git" / "config"
    if where == "included":
        config.rename(app / ".git" / "more")
        config.write_text("[core]\n\trepositoryformatversion = 0\n[include]\n\tpath = more\n")
    if where == "worktree":
        config.rename(app / ".git" / "config.worktree")
        config.write_text("[core]\n\trepositoryformatversion = 0\n[extensions]\n\tworktreeConfig = true\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    (app / "README").write_text("changed\n")
    project = await served.project(app)
    main = await served.workspaces.get(project, "@main")
    await served.workspaces.metadata(main)
    path = await make(served, app)
    for folder in (app, path):
        await served.git.run(folder, "status", "--porcelain=v2")
        await served.git.run(folder, "diff", "HEAD")
        await served.git.run(folder, "log", "-p")
        await served.git.run(folder, "merge-tree", "--write-tree", "HEAD", "main")
    assert not (tmp_path / "ran").exists()
    assert (path / "a.x").read_text() == "x\n"
    assert [one.kind for one in served.asked] == ["git-config"]
    assert "filter.evil.smudge" in served.asked[0].content


def partial_clone(tmp_path: Path) -> Path:
    """One that has no file yet, and fetches each when it is needed."""
    origin = make_repository(tmp_path / "origin", {"a": "text\n"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{origin}", "app")
    return tmp_path / "app"


async def test_e11_a_partial_clone_fetches_what_it_lacks(served: WorkspaceParts, tmp_path: Path) -> None:
    assert (await make(served, partial_clone(tmp_path)) / "a").read_text() == "text\n"


@pytest.mark.parametrize("key", ["remote.origin.uploadpack", "remote.origin.url"])
async def test_e20_a_partial_clone_does_not_fetch_by_a_program_of_its_config(
    served: WorkspaceParts, tmp_path: Path, key: str
) -> None:
    app, evil = partial_clone(tmp_path), tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    evil.chmod(0o755)
    git(app, "config", key, str(evil) if key.endswith("pack") else f"ext::{evil}")
    git(app, "config", "protocol.ext.allow", "always")
    project, before = await served.project(app), snapshot(app)
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.create(project, "x")
    assert caught.value.code == "git-failed"
    assert "not allowed" in caught.value.message
    assert not (tmp_path / "ran").exists()
    assert snapshot(app) == before


async def test_e20_filters_run_if_they_are_the_users_or_approved(state: Path, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app", {"a.x": "text\n", ".gitattributes": "*.x filter=up\n"})
    git(app, "config", "filter.up.smudge", "tr a-z A-Z")
    async with start_workspaces(state, approve=True) as served:
        assert (await make(served, app, "approved") / "a.x").read_text() == "TEXT\n"
    async with start_workspaces(state, approve=False) as served:
        assert (await make(served, app, "refused") / "a.x").read_text() == "text\n"
        git(app, "config", "--global", "filter.up.smudge", "sed s/text/user/")
        assert (await make(served, app, "users") / "a.x").read_text() == "user\n"
        git(app, "config", "--unset", "filter.up.smudge")
        assert (await make(served, app, "only") / "a.x").read_text() == "user\n"
