"""Bringing workspaces back, emptying the trash, and which workspaces are merged."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rookery.system.clock import SystemClock
from rookery.system.errors import RookeryError
from rookery.workspaces.listing import find_workspaces
from rookery.workspaces.merged import merged_workspaces
from rookery.workspaces.metadata import Kept, read_kept, write_kept
from tests.support.deletions import Removing, contents, fill, index_of, make_app, make_workspace, removing
from tests.support.requirements import requirement
from tests.support.workspaces import branches, commit, git, make_clone

pytestmark = pytest.mark.anyio

DAY = 86_400.0


class Later(SystemClock):
    """A clock that can be put forward."""

    days = 0.0

    def wall(self) -> float:
        return super().wall() + self.days * DAY


async def delete(ours: Removing, name: str) -> None:
    await ours.removals.delete(await ours.find(name), force=True, wait=True)


@requirement("ws.delete.restore")
async def test_branch_folder_staged_work_metadata_and_upstream_come_back(state: Path, tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app")
    place = make_workspace(app, "task", tmp_path / "task")
    head = fill(place)
    git(app, "config", "branch.task.remote", "origin")
    git(app, "config", "branch.task.merge", "refs/heads/main")
    async with removing(state, app) as ours:
        kept = Kept("task", {"base": "origin/main", "Note": "mine"})
        write_kept((await ours.find("task")).own, kept)
        before, staged = contents(place), index_of(place)
        await delete(ours, "task")
        assert git(app, "config", "--get-regexp", "^branch.task", check=False) == ""
        await ours.removals.restore("task")
        assert read_kept((await ours.find("task")).own) == kept
        assert ours.told()[-1][0] == "workspace.restored"
    assert (contents(place), index_of(place)) == (before, staged)
    assert git(app, "rev-parse", "task") == head
    assert git(app, "config", "branch.task.merge") == "refs/heads/main"
    assert not list((state / "trash").iterdir())


async def test_it_comes_back_at_another_place_too(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    place, other = make_workspace(app, "task", tmp_path / "task"), tmp_path / "deep" / "other"
    fill(place)
    staged = index_of(place)
    async with removing(state, app) as ours:
        await delete(ours, "task")
        make_workspace(app, "new", place)
        await ours.removals.restore("task", to=other)
        assert sorted(await ours.names()) == ["new", "task"]
        assert (await ours.find("task")).workspace.state == "ready"
    assert index_of(other) == staged


@pytest.mark.parametrize("taken", ["place", "branch", "name", "project"])
async def test_it_is_refused_where_something_is_taken_and_nothing_is_touched(
    state: Path, tmp_path: Path, taken: str
) -> None:
    app = make_app(tmp_path)
    place = make_workspace(app, "task", tmp_path / "task")
    fill(place)
    async with removing(state, app) as ours:
        await delete(ours, "task")
        if taken == "place":
            place.mkdir()
        elif taken == "branch":
            git(app, "branch", "task", "main")
        elif taken == "name":
            make_workspace(app, "task", tmp_path / "again")
        else:
            shutil.rmtree(app)
        before = contents(tmp_path) | contents(state / "trash")
        with pytest.raises(RookeryError):
            await ours.removals.restore("task")
        assert contents(tmp_path) | contents(state / "trash") == before
        assert not list(state.glob("projects/*/restoring/*"))


async def test_what_is_not_in_the_trash_cannot_be_restored(state: Path, tmp_path: Path) -> None:
    async with removing(state, make_app(tmp_path)) as ours:
        with pytest.raises(RookeryError, match="no task in the trash"):
            await ours.removals.restore("task")


@requirement("ws.delete.restore")
async def test_the_trash_is_emptied_of_what_is_old(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    clock = Later()
    async with removing(state, app, clock=clock) as ours:
        for name in ("old", "new"):
            fill(make_workspace(app, name, tmp_path / name))
        clock.days = -10
        await delete(ours, "old")
        clock.days = 0
        await delete(ours, "new")
        assert await ours.removals.empty_trash() == []
        clock.days = 5
        assert [one.name for one in await ours.removals.empty_trash()] == ["old"]
        assert [one.name for one in ours.removals.trash.all()] == ["new"]
        assert {path.name.partition("-")[2] for path in (state / "trash").iterdir()} == {"new", "new.git", "new.json"}
        assert len(git(app, "for-each-ref", "refs/rookery").splitlines()) == 2


@requirement("ws.delete.restore")
async def test_the_trash_is_emptied_of_the_oldest_while_it_is_too_large(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with removing(state, app, limit=2_500_000) as ours:
        for name in ("first", "second", "third"):
            (make_workspace(app, name, tmp_path / name) / "large").write_bytes(b"x" * 1_000_000)
            await delete(ours, name)
        assert [one.name for one in await ours.removals.empty_trash()] == ["first"]
        assert [one.name for one in ours.removals.trash.all()] == ["second", "third"]
        assert [one.name for one in await ours.removals.purge("second")] == ["second"]
        assert [one.name for one in await ours.removals.purge()] == ["third"]
        assert not list((state / "trash").iterdir())
    assert not git(app, "for-each-ref", "refs/rookery")


async def test_a_purge_that_was_cut_off_is_finished_and_never_restored(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    async with removing(state, app) as ours:
        await delete(ours, "task")
        (one,) = ours.removals.trash.all()
        git(app, "update-ref", "-d", one.ref)
        (state / "trash" / f"{one.id}.json").write_bytes(
            (state / "trash" / f"{one.id}.json").read_bytes().replace(b'"purging":false', b'"purging":true')
        )
        with pytest.raises(RookeryError, match="not whole"):
            await ours.removals.restore("task")
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]
        assert not list((state / "trash").iterdir())


async def test_a_project_that_is_gone_does_not_keep_its_trash_from_being_emptied(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    async with removing(state, app) as ours:
        await delete(ours, "task")
        shutil.rmtree(app)
        assert len(await ours.removals.purge()) == 1
        assert not list((state / "trash").iterdir())


async def test_two_of_the_same_name_are_two_entries_and_the_newest_comes_back(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with removing(state, app) as ours:
        for text in ("one", "two"):
            (make_workspace(app, "task", tmp_path / "task") / "note").write_text(text)
            await delete(ours, "task")
        old, _ = ours.removals.trash.all()
        await ours.removals.restore("task")
        assert (tmp_path / "task" / "note").read_text() == "two"
        await delete(ours, "task")
        await ours.removals.restore(old.id)
        assert (tmp_path / "task" / "note").read_text() == "one"


@requirement("ws.daily.merged")
async def test_merged_are_those_whose_work_is_in_the_base_however_it_came_there(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    names = ["ancestor", "squashed", "picked", "open", "dirty", "untouched"]
    places = {name: make_workspace(app, name, tmp_path / name) for name in names}
    for name in names[:-1]:
        commit(places[name], f"{name}-1")
        commit(places[name], f"{name}-2")
    git(app, "merge", "-q", "--no-ff", "-m", "merge", "ancestor")
    git(app, "merge", "-q", "--squash", "squashed")
    git(app, "commit", "-q", "-m", "squashed")
    git(app, "cherry-pick", "picked~1", "picked")
    # Its content is no longer that of the base, but each of its commits is in there.
    commit(app, "picked-1", "changed since\n")
    git(app, "merge", "-q", "--no-ff", "-m", "merge", "dirty")
    (places["dirty"] / "new").write_text("new")
    async with removing(state, app) as ours:
        found = await find_workspaces(ours.git, state, ours.project)
        bases = {one.workspace.path: "main" for one in found}
        merged = {one.workspace.name: how for one, how in await merged_workspaces(ours.git, found, bases)}
        assert merged == {"ancestor": "merged", "squashed": "same-content", "picked": "picked"}
        await asyncio.gather(*[ours.removals.delete(await ours.find(name), wait=True) for name in merged])
        assert sorted(await ours.names()) == ["dirty", "open", "untouched"]
    assert branches(app) == {"main", "dirty", "open", "untouched"}
