"""Writers of one repository run one after the other, and wait for locks of git."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.locks import RepositoryLocks, run_git_write
from tests.support.workspaces.service import WorkspaceParts, branches, git, make_repository, snapshot, start_workspaces

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(state: Path) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state) as running:
        yield running


async def test_one_writer_at_a_time_in_one_repository_and_others_beside_it() -> None:
    locks, order = RepositoryLocks(), list[str]()
    free = asyncio.Event()

    async def write(path: str, name: str) -> None:
        async with locks.write_lock(path):
            order.append(f"{name} in")
            if name == "first":
                await free.wait()
            order.append(f"{name} out")
            free.set()

    async with asyncio.timeout(10):
        await asyncio.gather(write("/a", "first"), write("/a", "second"), write("/b", "other"))
    assert order == ["first in", "other in", "other out", "first out", "second in", "second out"]


@pytest.mark.parametrize("name", ["config.lock", "index.lock", "packed-refs.lock"])
async def test_e07_a_lock_that_goes_away_is_waited_for(served: WorkspaceParts, tmp_path: Path, name: str) -> None:
    app = make_repository(tmp_path / "app")
    git(app, "branch", "old")
    git(app, "pack-refs", "--all")
    lock = app / ".git" / name
    lock.touch()
    command = {
        "config.lock": ("config", "a.b", "c"),
        "index.lock": ("read-tree", "HEAD"),
        "packed-refs.lock": ("update-ref", "-d", "refs/heads/old"),
    }[name]
    asyncio.get_running_loop().call_later(0.3, lock.unlink)
    assert (await run_git_write(served.git, app, *command)).returncode == 0


async def test_e07_a_lock_that_stays_is_named_and_left(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    lock = app / ".git" / "refs" / "heads" / "x.lock"
    lock.touch()
    with pytest.raises(RookeryError) as caught:
        await run_git_write(served.git, app, "update-ref", "refs/heads/x", "HEAD", lock_wait_seconds=0.2)
    assert caught.value.code == "repository-busy"
    assert str(lock) in caught.value.message
    assert f"rm {lock}" in caught.value.remedy
    assert lock.exists()


async def test_e07_a_creation_that_meets_a_lock_leaves_nothing_and_works_later(
    served: WorkspaceParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.workspaces.locks.LOCK_WAIT_SECONDS", 0.2)
    app = make_repository(tmp_path / "app")
    project, before = await served.project(app), snapshot(app)
    lock = app / ".git" / "refs" / "heads" / "x.lock"
    lock.touch()
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.create(project, "x")
    assert caught.value.code == "repository-busy"
    assert snapshot(app) == before
    lock.unlink()
    await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "x"))
    assert branches(app) == {"main", "x"}
