"""The trash under unusual conditions: purge during a restore, partial failures, and failures at start."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces import locks
from rookery.workspaces.delete.folders import measure_folder, remove_folder
from rookery.workspaces.delete.trash import DeletionIntent, RestoreIntent
from rookery.workspaces.model import Workspace
from tests.support.workspaces.deletion import DeletionParts, contents, fill, make_app, make_workspace, start_deletions
from tests.support.workspaces.service import git, start_workspaces

pytestmark = pytest.mark.anyio


async def delete(ours: DeletionParts, name: str) -> None:
    await ours.removals.delete(await ours.find(name), force=True, wait=True)


async def test_what_is_restored_while_the_trash_is_emptied_is_not_purged(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with start_deletions(state, app, days=-1) as ours:
        places = {name: make_workspace(app, name, tmp_path / name) for name in ("first", "second")}
        fill(places["second"])
        before = contents(places["second"])
        for name in places:
            await delete(ours, name)
        async with ours.removals._restores._locks.write_lock(app):
            # Both have looked at the trash, and wait for their turn.
            restored = asyncio.ensure_future(ours.removals.restore("second"))
            await asyncio.sleep(0)
            emptied = asyncio.ensure_future(ours.removals.empty_trash())
            await asyncio.sleep(0)
        assert [one.name for one in await emptied] == ["first"]
        await restored
        assert contents(places["second"]) == before
        assert not list((state / "trash").iterdir())


async def test_what_is_being_purged_is_not_restored_any_more(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        async with ours.removals._restores._locks.write_lock(app):
            purged = asyncio.ensure_future(ours.removals.purge("task"))
            again = asyncio.ensure_future(ours.removals.purge("task"))
            await asyncio.sleep(0)
            restored = asyncio.ensure_future(ours.removals.restore("task"))
            await asyncio.sleep(0)
        with pytest.raises(RookeryError, match="no longer complete"):
            await restored
        assert (len(await purged), len(await again)) == (1, 0)
        assert not (tmp_path / "task").exists()
        assert not list((state / "trash").iterdir())


async def test_one_that_cannot_be_purged_does_not_keep_the_others(state: Path, tmp_path: Path) -> None:
    app, other = make_app(tmp_path), make_app(tmp_path / "other")
    make_workspace(app, "stuck", tmp_path / "stuck")
    make_workspace(other, "task", tmp_path / "task")
    async with start_deletions(state, app) as ours:
        await delete(ours, "stuck")
    async with start_deletions(state, other, days=-1) as ours:
        await delete(ours, "task")
        (app / ".git" / "config").write_text("[broken\n")
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]
        assert [one.name for one in ours.removals.trash.all()] == ["stuck"]
        shutil.rmtree(app / ".git")
        assert [one.name for one in await ours.removals.empty_trash()] == ["stuck"]


async def test_a_worktree_behind_a_link_goes_and_is_purged_as_a_link(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task").rename(tmp_path / "real")
    (tmp_path / "task").symlink_to(tmp_path / "real")
    before = contents(tmp_path / "real")
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        assert not os.path.lexists(tmp_path / "task")
        assert len(await ours.removals.purge()) == 1
        assert not list((state / "trash").iterdir())
    assert contents(tmp_path / "real") == before


def test_a_folder_that_forbids_to_be_looked_into_is_removed_too(tmp_path: Path) -> None:
    for place in ("closed/deep/deeper", "open"):
        (tmp_path / "one" / place).mkdir(parents=True)
    (tmp_path / "one" / "closed" / "deep").chmod(0)
    (tmp_path / "one" / "closed").chmod(0)
    assert measure_folder(tmp_path / "one") >= 0
    remove_folder(tmp_path / "one")
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("what", ["deletion", "restoring"])
async def test_an_interrupted_operation_in_a_deleted_repository_does_not_prevent_a_start(
    state: Path, tmp_path: Path, what: str
) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        (one,) = ours.removals.trash.all()
        if what == "deletion":
            await ours.removals.restore("task")
            ours.removals._deletions.intents.write(DeletionIntent(one, True))
        else:
            ours.removals._restores.intents.write(RestoreIntent(one, one.path, one.own))
    shutil.rmtree(app)
    async with start_deletions(state, app, days=-1) as ours:
        assert not list(state.glob("projects/*/*/*.json"))
        await ours.removals.empty_trash()
        assert not list((state / "trash").iterdir())


async def test_a_deletion_that_cannot_be_taken_back_whole_fails_all_the_same(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    monkeypatch.setattr(locks, "LOCK_WAIT_SECONDS", 0.1)

    async def lock(_: Workspace) -> bool:
        (app / ".git" / "packed-refs.lock").touch()
        raise RookeryError("timeout", "it does not stop")

    async with start_deletions(state, app, stop=lock) as ours:
        with pytest.raises(RookeryError, match="does not stop"):
            await delete(ours, "task")
        assert ours.told()[-1][0] == "workspace.failed"
        assert (await ours.find("task")).workspace.state == "ready"
        (app / ".git" / "packed-refs.lock").unlink()
        await ours.removals.trash.empty(days=14, limit=2**40, busy=lambda: ())
        assert ours.removals.trash.all() == []
    assert place.is_dir()


async def test_restoring_that_fails_can_be_tried_again(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "in" / "task")
    fill(place)
    before = contents(place)
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        place.parent.rmdir()
        place.parent.write_text("in the way")
        with pytest.raises(RookeryError, match="not restored"):
            await ours.removals.restore("task")
        assert ours.told()[-1][0] == "workspace.failed"
        place.parent.unlink()
        # Half-way: the repository knows it again, its folder is still in the trash.
        (one,) = ours.removals.trash.all()
        own = Path(one.own)
        ours.removals._restores.intents.write(RestoreIntent(one, one.path, one.own))
        git(app, "update-ref", f"refs/heads/{one.branch}", one.head or "")
        own.parent.mkdir(exist_ok=True)
        (state / "trash" / f"{one.id}.git").rename(own)
        await ours.removals.restore("task")
        assert (await ours.find("task")).workspace.state == "ready"
        assert not list((state / "trash").iterdir())
    assert contents(place) == before


async def test_a_place_to_restore_to_is_taken_as_git_spells_it(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    (tmp_path / "deep" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "real")
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        for refused in (tmp_path / "new" / "..", app / ".git" / "task", state / "trash" / "task"):
            with pytest.raises(RookeryError):
                await ours.removals.restore("task", to=refused)
        for number, above in enumerate((tmp_path / "link", tmp_path / "link" / "..", tmp_path / "link" / ".." / "new")):
            if number:
                await delete(ours, "task")
            await ours.removals.restore("task", to=above / f"task-{number}")
            found = (await ours.find("task")).workspace
            assert (found.state, found.path) == ("ready", (above / f"task-{number}").resolve())


async def test_nothing_is_restored_into_a_project_that_was_removed_until_it_is_added_again(
    state: Path, tmp_path: Path
) -> None:
    app = make_app(tmp_path)
    async with start_workspaces(state) as served:
        project = await served.project(app)
        made = await served.workspaces.wait_until_prepared(await served.workspaces.create(project, "task"))
        await served.workspaces.delete(made, wait=True)
        await served.projects.remove(project)
        with pytest.raises(RookeryError, match="no longer registered as a project"):
            await served.workspaces.restore("task")
        assert not made.path.exists()
        await served.project(app)
        assert (await served.workspaces.restore("task")).path == made.path
