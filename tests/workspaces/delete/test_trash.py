"""Restoring workspaces, emptying the trash, and which workspaces are merged."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from rookery.system.errors import RookeryError
from rookery.workspaces.lookup import list_workspaces
from rookery.workspaces.metadata import StoredMetadata, read_metadata, write_metadata
from rookery.workspaces.status.merges import list_merged_workspaces
from tests.support.clock import MachineClock
from tests.support.requirements import requirement
from tests.support.workspaces.deletion import (
    DeletionParts,
    contents,
    fill,
    index_of,
    make_app,
    make_workspace,
    start_deletions,
)
from tests.support.workspaces.service import branches, commit, git, make_clone

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def delete(ours: DeletionParts, name: str) -> None:
    await ours.removals.delete(await ours.find(name), force=True, wait=True)


@requirement("ws.delete.restore")
async def test_branch_folder_staged_work_metadata_and_upstream_come_back(state: Path, tmp_path: Path) -> None:
    app = make_clone(tmp_path / "app")
    place = make_workspace(app, "task", tmp_path / "task")
    head = fill(place)
    git(app, "config", "branch.task.remote", "origin")
    git(app, "config", "branch.task.merge", "refs/heads/main")
    async with start_deletions(state, app) as ours:
        kept = StoredMetadata("task", {"base": "origin/main", "Note": "mine"})
        write_metadata((await ours.find("task")).git_folder, kept)
        before, staged = contents(place), index_of(place)
        await delete(ours, "task")
        assert git(app, "config", "--get-regexp", "^branch.task", check=False) == ""
        await ours.removals.restore("task")
        assert read_metadata((await ours.find("task")).git_folder) == kept
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
    async with start_deletions(state, app) as ours:
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
    async with start_deletions(state, app) as ours:
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
    async with start_deletions(state, make_app(tmp_path)) as ours:
        with pytest.raises(RookeryError, match="task is not in the trash"):
            await ours.removals.restore("task")


@requirement("ws.delete.restore")
async def test_the_trash_is_emptied_of_what_is_old(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    clock = MachineClock()
    async with start_deletions(state, app, clock=clock) as ours:
        for name in ("old", "new"):
            fill(make_workspace(app, name, tmp_path / name))
        await delete(ours, "old")
        clock.run(10 * DAY)
        await delete(ours, "new")
        assert await ours.removals.empty_trash() == []
        clock.sleep(5 * DAY)
        assert [one.name for one in await ours.removals.empty_trash()] == ["old"]
        assert [one.name for one in ours.removals.trash.all()] == ["new"]
        assert {path.name.partition("-")[2] for path in (state / "trash").iterdir()} == {"new", "new.git", "new.json"}
        assert len(git(app, "for-each-ref", "refs/rookery").splitlines()) == 2


@requirement("ws.delete.restore")
async def test_the_trash_is_emptied_of_the_oldest_while_it_is_too_large(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with start_deletions(state, app, limit=2_500_000) as ours:
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
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        (one,) = ours.removals.trash.all()
        git(app, "update-ref", "-d", one.ref)
        (state / "trash" / f"{one.id}.json").write_bytes(
            (state / "trash" / f"{one.id}.json").read_bytes().replace(b'"purging":false', b'"purging":true')
        )
        with pytest.raises(RookeryError, match="no longer complete"):
            await ours.removals.restore("task")
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]
        assert not list((state / "trash").iterdir())


async def test_a_project_that_is_gone_does_not_keep_its_trash_from_being_emptied(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    async with start_deletions(state, app) as ours:
        await delete(ours, "task")
        shutil.rmtree(app)
        assert len(await ours.removals.purge()) == 1
        assert not list((state / "trash").iterdir())


async def test_two_of_the_same_name_are_two_entries_and_the_newest_comes_back(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    async with start_deletions(state, app) as ours:
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
    async with start_deletions(state, app) as ours:
        found = await list_workspaces(ours.git, state, ours.project)
        bases = {one.workspace.path: "main" for one in found}
        merged = {one.workspace.name: where for one, where in await list_merged_workspaces(ours.git, found, bases)}
        assert {where.branch for where in merged.values()} == {"main"}
        ways = {name: where.how for name, where in merged.items()}
        assert ways == {"ancestor": "merged", "squashed": "same-content", "picked": "picked"}
        await asyncio.gather(*[ours.removals.delete(await ours.find(name), wait=True) for name in merged])
        assert sorted(await ours.names()) == ["dirty", "open", "untouched"]
    assert branches(app) == {"main", "dirty", "open", "untouched"}


@requirement("ws.trash.clock")
@pytest.mark.parametrize("lives", ["one daemon", "daemon restarts", "machine restarts"])
async def test_a_wrong_clock_never_empties_the_trash(state: Path, tmp_path: Path, lives: str) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    clock = MachineClock()
    # Ahead, back, far ahead; as of 1970; and ahead with every look, as after each start with a dead battery.
    jumps = [20 * DAY, -20 * DAY, 3650 * DAY, -clock.wall(), *[20 * DAY] * 30]

    async def live(jumps: list[float], *, first: bool = False) -> None:
        async with start_deletions(state, app, clock=clock) as ours:
            if first:
                await delete(ours, "task")
            for jump in jumps:
                clock.set_wall(jump)
                clock.run(600)
                ours.removals.trash.time.save()
                assert await ours.removals.empty_trash() == []
            assert [one.name for one in ours.removals.trash.all()] == ["task"]

    await live([], first=True)
    for some in [jumps] if lives == "one daemon" else [[jump] for jump in jumps]:
        if lives == "machine restarts":
            clock.restart(off=3600.0)
        await live(some)
    # Days that the machine was on or slept do count, also while no daemon ran.
    clock.sleep(14 * DAY + 1)
    async with start_deletions(state, app, clock=clock) as ours:
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]


@requirement("ws.trash.clock")
async def test_what_was_deleted_first_goes_first_though_its_clock_was_ahead(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    clock = MachineClock()
    async with start_deletions(state, app, limit=1_500_000, clock=clock) as ours:
        clock.set_wall(300 * DAY)
        for name in ("first", "second"):
            (make_workspace(app, name, tmp_path / name) / "large").write_bytes(b"x" * 1_000_000)
            await delete(ours, name)
            clock.run(60)
            clock.set_wall(-300 * DAY)
        assert [one.name for one in ours.removals.trash.all()] == ["first", "second"]
        assert [one.name for one in await ours.removals.empty_trash()] == ["first"]


@requirement("ws.trash.clock")
@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 100_000, b'{"boot": "boot 1", "at": -1e300}', None])
async def test_damage_to_the_saved_time_purges_nothing(state: Path, tmp_path: Path, damage: bytes | None) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    clock = MachineClock()
    clock.run(100 * DAY)
    async with start_deletions(state, app, clock=clock) as ours:
        await delete(ours, "task")
        clock.run(10 * DAY)
        ours.removals.trash.time.save()
    if damage is None:
        (state / "trash-age.json").unlink()
    else:
        (state / "trash-age.json").write_bytes(damage)
    async with start_deletions(state, app, clock=clock) as ours:
        assert await ours.removals.empty_trash() == []
        clock.run(13 * DAY)
        assert await ours.removals.empty_trash() == []
        clock.run(2 * DAY)
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]


async def test_an_entry_of_an_older_version_ages_from_now_on(state: Path, tmp_path: Path) -> None:
    app = make_app(tmp_path)
    make_workspace(app, "task", tmp_path / "task")
    clock = MachineClock()
    async with start_deletions(state, app, clock=clock) as ours:
        await delete(ours, "task")
        (record,) = (state / "trash").glob("*.json")
        content = msgspec.json.decode(record.read_bytes())
        del content["since"]
        record.write_bytes(msgspec.json.encode(content | {"at": 0.0}))
        assert await ours.removals.empty_trash() == []
        clock.run(15 * DAY)
        assert [one.name for one in await ours.removals.empty_trash()] == ["task"]
