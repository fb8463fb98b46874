"""The metadata of a workspace."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from tests.support.requirements import requirement
from tests.support.workspaces.service import WorkspaceParts, git, make_clone, make_repository, start_workspaces

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(state: Path) -> AsyncIterator[WorkspaceParts]:
    async with start_workspaces(state) as running:
        yield running


@requirement("ws.metadata.get", "ws.metadata.set", "ws.metadata.delete")
async def test_keys_are_set_read_and_removed(served: WorkspaceParts, tmp_path: Path) -> None:
    project = await served.project(make_repository(tmp_path / "app"))
    made = await served.workspaces.create(project, "x", base="main")
    ws = served.workspaces
    assert await ws.metadata(made) == {"base": "main"}
    await ws.set_metadata(made, "Note", "Ä\n")
    await ws.set_metadata(made, "note", "")
    await ws.set_metadata(made, "name", "anything")
    assert await ws.metadata(made) == {"base": "main", "Note": "Ä\n", "note": "", "name": "anything"}
    assert (await ws.get(project, "x")).name == "x"
    await ws.set_metadata(made, "note", None)
    await ws.set_metadata(made, "absent", None)
    assert await ws.metadata(made) == {"base": "main", "Note": "Ä\n", "name": "anything"}
    changed = [data["metadata"] for event, data in served.told() if event == "workspace.changed"]
    assert changed[-1] == await ws.metadata(made)


@requirement("ws.metadata.get")
async def test_base_is_always_there(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app")
    git(app, "worktree", "add", "-q", str(tmp_path / "theirs"))
    project = await served.project(app)
    for one in await served.workspaces.list(project):
        assert await served.workspaces.metadata(one) == {"base": "origin/main"}
        await served.workspaces.set_metadata(one, "base", "v1")
        assert (await served.workspaces.metadata(one))["base"] == "v1"
        await served.workspaces.set_metadata(one, "base", None)
        assert (await served.workspaces.metadata(one))["base"] == "origin/main"


@requirement("ws.metadata.key")
@pytest.mark.parametrize("key", ["", "1a", "-a", "a_b", "a.b", "a b", "ä", "a\n", "a/b", "__proto__"])
async def test_other_keys_are_refused_and_nothing_is_stored(served: WorkspaceParts, tmp_path: Path, key: str) -> None:
    project = await served.project(make_repository(tmp_path / "app"))
    main = await served.workspaces.get(project, "@main")
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.set_metadata(main, key, "x")
    assert caught.value.code == "invalid-input"
    assert await served.workspaces.metadata(main) == {"base": "main"}


async def test_too_much_is_refused(served: WorkspaceParts, tmp_path: Path) -> None:
    main = await served.workspaces.get(await served.project(make_repository(tmp_path / "app")), "@main")
    with pytest.raises(RookeryError) as caught:
        await served.workspaces.set_metadata(main, "a", "x" * 70_000)
    assert caught.value.code == "invalid-input"


@requirement("ws.metadata.store")
async def test_it_survives_restart_branch_rename_detached_head_and_the_trash(state: Path, tmp_path: Path) -> None:
    async with start_workspaces(state) as served:
        project = await served.project(make_repository(tmp_path / "app"))
        made = await served.workspaces.create(project, "x")
        await served.workspaces.wait_until_prepared(made)
        await served.workspaces.set_metadata(made, "note", "mine")
        await served.workspaces.set_metadata(made, "Note", "MINE")
    wanted = {"base": "main", "note": "mine", "Note": "MINE"}
    own = Path(git(made.path, "rev-parse", "--absolute-git-dir"))
    assert json.loads((own / "rookery" / "metadata.json").read_text())["metadata"] == wanted
    git(made.path, "branch", "-m", "renamed")
    git(made.path, "checkout", "-q", "--detach")
    async with start_workspaces(state) as served:
        workspaces = served.workspaces
        again = await workspaces.get(project, "x")
        assert await workspaces.metadata(again) == wanted
        assert git(made.path, "status", "--porcelain") == ""
        # It goes with the worktree: the next one of that name has none of it, and comes back as well.
        await workspaces.delete(again, force=True, wait=True)
        assert not own.exists()
        next_one = await workspaces.wait_until_prepared(await workspaces.create(project, "x"))
        assert await workspaces.metadata(next_one) == {"base": "main"}
        await workspaces.delete(next_one, wait=True)
        first, _ = workspaces.deletions.trash.all()
        assert await workspaces.metadata(await workspaces.restore(first.id, project)) == wanted


@requirement("ws.metadata.store")
async def test_changes_at_once_are_all_kept(served: WorkspaceParts, tmp_path: Path) -> None:
    main = await served.workspaces.get(await served.project(make_repository(tmp_path / "app")), "@main")
    await asyncio.gather(*(served.workspaces.set_metadata(main, f"k{number}", "v") for number in range(30)))
    assert len(await served.workspaces.metadata(main)) == 31


@requirement("house.limits.shares")
async def test_a_slow_disk_delays_no_other_work(
    served: WorkspaceParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = await served.workspaces.get(await served.project(make_repository(tmp_path / "app")), "@main")
    synced, begun = threading.Event(), threading.Event()

    def sync(handle: int) -> None:
        begun.set()
        assert synced.wait(30)

    monkeypatch.setattr(os, "fsync", sync)
    setting = asyncio.ensure_future(served.workspaces.set_metadata(main, "a", "b"))
    # The event loop goes on.
    assert await asyncio.to_thread(begun.wait, 30)
    assert not setting.done()
    synced.set()
    await setting
    assert (await served.workspaces.metadata(main))["a"] == "b"


@requirement("house.limits.shares")
async def test_kept_events_share_the_values_that_have_not_changed(served: WorkspaceParts, tmp_path: Path) -> None:
    main = await served.workspaces.get(await served.project(make_repository(tmp_path / "app")), "@main")
    await served.workspaces.set_metadata(main, "large", "x" * 60_000)
    for number in range(3):
        await served.workspaces.set_metadata(main, "small", str(number))
    changed = [data["metadata"] for event, data in served.told() if event == "workspace.changed"]
    assert len(changed) == 4 and len({id(values["large"]) for values in changed}) == 1


async def test_a_spoilt_file_counts_as_empty_and_is_written_anew(served: WorkspaceParts, tmp_path: Path) -> None:
    app = make_repository(tmp_path / "app")
    project = await served.project(app)
    main = await served.workspaces.get(project, "@main")
    await served.workspaces.set_metadata(main, "a", "b")
    (app / ".git" / "rookery" / "metadata.json").write_text('{"metadata": [')
    assert await served.workspaces.metadata(main) == {"base": "main"}
    await served.workspaces.set_metadata(main, "c", "d")
    assert await served.workspaces.metadata(main) == {"base": "main", "c": "d"}
