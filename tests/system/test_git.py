"""Calling git so that nothing of the repository runs."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.system.git import Git
from rookery.system.ids import new_id
from rookery.system.process.spawn import Spawner

pytestmark = pytest.mark.anyio


@pytest.fixture
async def git() -> AsyncIterator[Git]:
    spawner = Spawner(new_id())
    yield Git(spawner)
    await spawner.stop_all()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    run("git", "init", "-q", "-b", "main", str(made))
    run(
        "git",
        "-C",
        str(made),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "one",
    )
    return made


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=30)


async def test_the_main_checkout_is_found_from_a_subfolder_and_from_a_worktree(git: Git, repository: Path) -> None:
    (repository / "a" / "b").mkdir(parents=True)
    run("git", "-C", str(repository), "worktree", "add", "-q", "../side")
    assert await git.main_checkout(repository / "a" / "b") == repository
    assert await git.main_checkout(repository.parent / "side") == repository


@pytest.mark.parametrize("case", ["no repository", "no folder", "bare"])
async def test_what_is_no_checkout_is_refused_with_a_remedy(git: Git, tmp_path: Path, case: str) -> None:
    folder = tmp_path / "x"
    if case != "no folder":
        folder.mkdir()
    if case == "bare":
        run("git", "init", "-q", "--bare", str(folder))
    with pytest.raises(RookeryError) as caught:
        await git.main_checkout(folder)
    assert caught.value.code == "repository-not-found"
    assert str(folder) in caught.value.message
    assert caught.value.remedy


async def test_a_submodule_and_a_checkout_with_its_git_folder_elsewhere_are_checkouts(
    git: Git, repository: Path, tmp_path: Path
) -> None:
    run("git", "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere.git"), str(tmp_path / "apart"))
    assert await git.main_checkout(tmp_path / "apart") == tmp_path / "apart"
    run("git", "-C", str(tmp_path), "init", "-q", "super")
    allow = ("-c", "protocol.file.allow=always")
    run("git", *allow, "-C", str(tmp_path / "super"), "submodule", "add", "-q", str(repository), "lib")
    assert await git.main_checkout(tmp_path / "super" / "lib") == tmp_path / "super" / "lib"


async def test_a_folder_that_cannot_be_looked_at_is_refused(git: Git, tmp_path: Path) -> None:
    with pytest.raises(RookeryError):
        await git.main_checkout(tmp_path / ("x" * 300))


async def test_variables_that_steer_git_elsewhere_do_not_count(
    git: Git, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("git", "init", "-q", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    assert await git.main_checkout(repository) == repository


async def test_neither_hook_nor_fsmonitor_of_a_repository_runs(git: Git, repository: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    run("git", "-C", str(repository), "config", "core.fsmonitor", str(evil))
    run("git", "-C", str(repository), "config", "core.hooksPath", str(tmp_path))
    await git.main_checkout(repository)
    await git.run(repository, "status", "--porcelain=v2")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", [("status", "--porcelain"), ("diff", "--ignore-submodules=none"), ("diff-files",)])
async def test_nothing_that_the_config_of_a_submodule_names_runs_either(
    git: Git, tmp_path: Path, command: tuple[str, ...]
) -> None:
    person = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    for name in ("outer", "middle", "inner"):
        run("git", "init", "-q", "-b", "main", str(tmp_path / name))
        (tmp_path / name / "file").write_text("one\n")
        run("git", "-C", str(tmp_path / name), "add", "file")
        run("git", "-C", str(tmp_path / name), *person, "commit", "-q", "-m", "one")
    for name, inner in (("middle", "inner"), ("outer", "middle")):
        run("git", "-C", str(tmp_path / name), *person, "submodule", "add", "-q", str(tmp_path / inner), "lib")
        run("git", "-C", str(tmp_path / name), *person, "commit", "-q", "-m", "lib")
    outer = tmp_path / "outer"
    run("git", "-C", str(outer), *person, "submodule", "update", "-q", "--init", "--recursive")
    for number, place in enumerate((outer / "lib", outer / "lib" / "lib")):
        for key in ("clean", "process"):
            run("git", "-C", str(place), "config", f"filter.evil{number}.{key}", f"touch {tmp_path}/ran-{number}; cat")
        (place / ".gitattributes").write_text(f"* filter=evil{number}\n")
        # Of the same size: git has to look at the content.
        (place / "file").write_text("eno\n")
    assert (await git.run(outer, *command)).stdout
    assert not list(tmp_path.glob("ran-*"))
